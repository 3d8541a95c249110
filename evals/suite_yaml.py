"""YAML for suites: a small, safe part of YAML 1.2, with the line of every value.

Anchors, aliases, tags, merge keys and several documents are refused. Plain words are read by YAML 1.2's core schema;
the words that YAML 1.1 took for booleans (`no`, `on`) are refused unquoted, so that no reader guesses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from agent.errors import UsageError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 5 * 1024 * 1024
MAX_DEPTH = 20
MAX_VALUES = 100_000
MAX_NUMBER = 400  # characters

Key = str | int
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_AMBIGUOUS = {"yes", "no", "on", "off"}
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_HINTS = {  # what libyaml says -> how to mend it
    "cannot start any token": "indent with spaces, not tabs, and quote texts that start with @ or `",
    "mapping values are not allowed": "quote a text that holds a colon and a space, or check the indentation",
    "expected a single document": "leave out '---': one file is one suite",
    "could not find expected ':'": "check the indentation, and that a key ends with ': '",
    "did not find expected": "check the indentation, the brackets and the quotes above this line",
    "expected <block end>": "check the indentation, the brackets and the quotes above this line",
}


@dataclass
class Document:
    """A parsed file: its value, and the line (from 1) of everything in it by its path of keys and places."""

    path: Path
    value: Any = None
    lines: dict[tuple[Key, ...], int] = field(default_factory=dict)

    def line(self, loc: tuple[Key, ...]) -> int:
        """The line of a path, or of its nearest part that the file holds."""
        return self.lines.get(self.known(loc), 1)

    def known(self, loc: tuple[Key, ...]) -> tuple[Key, ...]:
        """A validator's path without the keys that the file does not have: it also names the types it chose."""
        known: tuple[Key, ...] = ()
        for key in loc:
            if (*known, key) in self.lines:
                known = (*known, key)
        return known

    def refuse(self, line: int, message: str) -> NoReturn:
        """Say what is wrong, where.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{shown_path(self.path)}:{line}: {message}")


def shown(text: str, room: int = 60) -> str:
    """A piece of a file inside a message: quoted, on one line, nothing that a terminal would obey."""
    cut = text if len(text) <= room else text[: room - 1] + "…"
    return "'" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut) + "'"


def shown_path(path: Path) -> str:
    """A path as a person typed it, with nothing that a terminal would obey."""
    return shown(str(path), 1000)[1:-1]


def read_yaml(path: Path) -> Document:
    """Read one file.

    Raises:
        UsageError: it cannot be read, is too large, or is not the YAML that suites are written in.
    """
    import yaml  # noqa: PLC0415  # slow to import, and `--help` reads no suite

    document = Document(path)
    text = _read_text(document)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_unsafe(document, text, loader)
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or "not YAML"
        hint = next((hint for said, hint in _HINTS.items() if said in f"{error.context} {problem}"), "")
        document.refuse(mark.line + 1 if mark else 1, f"not valid YAML: {problem}{f'; {hint}' if hint else ''}")
    except yaml.YAMLError as error:
        document.refuse(1, f"not valid YAML: {shown(' '.join(str(error).split()), 120)}")
    if root is not None:
        document.value = _Builder(document).build(root, ())
    return document


def _read_text(document: Document) -> str:
    path = document.path
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise UsageError(f"{shown_path(path)} is a folder; name a suite file in it") from None
    except FileNotFoundError:
        raise UsageError(f"{shown_path(path)} does not exist; name a suite file such as suites/core.yaml") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{shown_path(path)} cannot be read: {why}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{shown_path(path)} is larger than {MAX_BYTES // 1024**2} MiB; split the suite")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        document.refuse(line, "not UTF-8; save the file as UTF-8")


def _refuse_unsafe(document: Document, text: str, loader: Any) -> None:
    """Look at the flat list of events before a tree is built: nothing here grows with nesting or aliases."""
    import yaml  # noqa: PLC0415  # as above

    if bad := re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        line = text.count("\n", 0, bad.start()) + 1
        document.refuse(line, f"a control character ({shown(bad.group())}) is not allowed; remove it")
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=loader)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            document.refuse(
                line, "anchors and aliases (& and *) are not used in suites; write the value out, or quote it"
            )
        if tag := getattr(event, "tag", None):
            document.refuse(line, f"tags ({shown(tag)}) are not used in suites; remove it")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            document.refuse(line, f"nested deeper than {MAX_DEPTH} levels")
        if count > MAX_VALUES:
            document.refuse(line, f"more than {MAX_VALUES} values; split the suite")


class _Builder:
    """From nodes to values, noting lines. Recursion is bounded: the depth was checked before."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def build(self, node: yaml.Node, path: tuple[Key, ...]) -> Any:
        import yaml  # noqa: PLC0415  # as above

        self.document.lines.setdefault(path, _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, place)) for place, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: tuple[Key, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = _line(key_node)
            if not isinstance(key_node.value, str):
                self.document.refuse(line, "a key must be a plain word")
            key = key_node.value
            if key in found:
                first = self.document.lines[(*path, key)]
                self.document.refuse(line, f"the key {shown(key)} stands here twice (first on line {first}); keep one")
            self.document.lines[(*path, key)] = line
            found[key] = self.build(value_node, (*path, key))
        return found

    def _scalar(self, node: yaml.Node) -> Any:
        text, line = node.value, _line(node)
        for char in text:
            if (char < " " and char not in "\n\t\r") or char == "\x7f" or "\ud800" <= char <= "\udfff":
                self.document.refuse(line, f"a control character ({shown(char)}) is not allowed; remove it")
        return text if getattr(node, "style", None) else self._plain(text, line)

    def _plain(self, text: str, line: int) -> Any:
        if text in _NULL or text in _TRUE or text in _FALSE:
            return None if text in _NULL else text in _TRUE
        if text.lower() in _AMBIGUOUS:
            self.document.refuse(
                line, f'{text} could be a word or a yes/no: write "{text}" in quotes, or true or false'
            )
        if _NOT_FINITE.fullmatch(text):
            self.document.refuse(line, f"{text} is not a number that anything can be held against; write a finite one")
        if not _FLOAT.fullmatch(text):
            return text
        if len(text) > MAX_NUMBER:
            self.document.refuse(line, f"a number of {len(text)} characters is too long; at most {MAX_NUMBER}")
        number = int(text) if _INT.fullmatch(text) else float(text)
        if number in (float("inf"), float("-inf")):
            self.document.refuse(line, f"{text} is too large for a number")
        return number


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
