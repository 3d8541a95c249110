"""JSON as models write it when no grammar holds them: read where its meaning is beyond doubt, every repair named.

Trailing commas, comments, Python's quotes and literals, typographic quotes, bare keys and raw line breaks in strings
are read. A string, object or list without its end is not: half a value is never completed. Takes linear time.
"""

# ruff: noqa: RUF001  # the quotes that look alike are what this is about

from __future__ import annotations

import re
from typing import Any

from agent.llm import strict_json

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SMALL = re.compile(r"-?[1-9][0-9]{0,17}")
_LITERALS = {"true": True, "false": False, "null": None}
_PYTHON = {"True": True, "False": False, "None": None}
_ENDS = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’"}
_QUOTE_REPAIRS = {"'": "python_literals", "“": "smart_quotes", "”": "smart_quotes", "‘": "smart_quotes"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}


def value_at(text: str, start: int, repairs: list[str]) -> tuple[Any, int]:
    """The value that begins at `start` (blanks before it are skipped), and where it ends. Repairs are added by name.

    Raises:
        ValueError: no value begins there, or it is broken beyond the repairs that this module knows.
    """
    place = _end(_SPACE, text, start)
    try:
        return strict_json.value_at(text, place)
    except ValueError:
        reader = Reader(text, place)
        value = reader.value()
        repairs += [name for name in reader.repairs if name not in repairs]
        return strict_json.checked(value), reader.place


class Reader:
    """Reads values from `place` on; `repairs` says what was not JSON."""

    def __init__(self, text: str, place: int) -> None:
        self.text = text
        self.place = place
        self.repairs: list[str] = []

    def value(self, depth: int = 0) -> Any:
        """The value at `place`, which moves to its end."""
        if depth > strict_json.MAX_DEPTH:
            raise ValueError("nested too deeply")
        self.skip()
        first = self.peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        return self._string() if first in _ENDS else self._literal()

    def peek(self) -> str:
        """The character at `place`; empty at the end."""
        return self.text[self.place : self.place + 1]

    def take(self, expected: str) -> bool:
        """Move past `expected` and blanks before it, if it comes next."""
        self.skip()
        if not self.text.startswith(expected, self.place):
            return False
        self.place += len(expected)
        return True

    def skip(self) -> None:
        """Move past blanks and comments."""
        sign = self.peek()
        if not sign.isspace() and sign != "/":  # nearly always; asking is faster than matching
            return
        self.place = _end(_SPACE, self.text, self.place)
        while self.text.startswith(("//", "/*"), self.place):
            end = "\n" if self.text[self.place + 1] == "/" else "*/"
            found = self.text.find(end, self.place + 2)
            if found < 0:
                raise ValueError("a comment without its end")
            self._repaired("comments")
            self.place = _end(_SPACE, self.text, found + len(end))

    def word(self) -> str:
        """A bare word at `place`; empty where there is none."""
        found = _WORD.match(self.text, self.place)
        self.place = found.end() if found else self.place
        return found.group() if found else ""

    def _object(self, depth: int) -> dict[str, Any]:
        self.place += 1
        found: dict[str, Any] = {}
        self.skip()
        while self.peek() != "}":
            key = self._key()
            if key in found:
                raise ValueError(f"the key {key[:40]!r} stands twice in one object")
            if not self.take(":"):
                raise ValueError(f"no value for the key {key[:40]!r}")
            found[key] = self.value(depth + 1)
            self._separator("}")
        self.place += 1
        return found

    def _list(self, depth: int) -> list[Any]:
        self.place += 1
        found: list[Any] = []
        self.skip()
        while self.peek() != "]":
            found.append(self.value(depth + 1))
            self._separator("]")
        self.place += 1
        return found

    def _separator(self, end: str) -> None:
        """Move past a comma to what follows it: the next member, or the end."""
        comma = self.take(",")
        if comma:
            self.skip()
        if self.peek() == end:
            if comma:
                self._repaired("trailing_comma")
        elif not comma:
            raise ValueError(f"neither a comma nor {end} after a value")

    def _key(self) -> str:
        self.skip()
        if self.peek() in _ENDS and self.peek():
            return self._string()
        key = self.word()
        if not key:
            raise ValueError("no key where one is due")
        self._repaired("bare_keys")
        return key

    def _string(self) -> str:
        opening = self.peek()
        if opening in _QUOTE_REPAIRS:
            self._repaired(_QUOTE_REPAIRS[opening])
        closing = _ENDS[opening]
        plain = _PLAIN[closing]
        self.place += 1
        begins, pieces = self.place, []
        while True:
            found = _end(plain, self.text, self.place)
            pieces.append(self.text[self.place : found])
            self.place = found + 1
            if found >= len(self.text):
                raise ValueError("a string without its end")
            if self.text[found] == closing:
                break
            pieces.append(self._escaped())
        if any(sign in self.text[begins : self.place] for sign in "\n\r\t"):
            self._repaired("raw_control_characters")
        return "".join(pieces)

    def _escaped(self) -> str:
        sign = self.peek()
        self.place += 1
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        digits = self.text[self.place : self.place + 4]
        if sign == "u" and re.fullmatch("[0-9a-fA-F]{4}", digits):
            self.place += 4
            return chr(int(digits, 16))
        raise ValueError(f"an unknown escape \\{sign}")

    def _literal(self) -> Any:
        number = _NUMBER.match(self.text, self.place)
        if number is not None:
            self.place = number.end()
            digits = number.group()
            return int(digits) if _SMALL.fullmatch(digits) else strict_json.loads(digits)
        word = self.word()
        if word in _LITERALS:
            return _LITERALS[word]
        if word in _PYTHON:
            self._repaired("python_literals")
            return _PYTHON[word]
        raise ValueError(f"{word[:40]!r} is no JSON value" if word else "no value where one is due")

    def _repaired(self, name: str) -> None:
        if name not in self.repairs:
            self.repairs.append(name)


_PLAIN = {closing: re.compile(rf"[^\\{closing}]*") for closing in set(_ENDS.values())}


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where a pattern that matches anything, even nothing, ends."""
    found = pattern.match(text, start)
    return found.end() if found else start
