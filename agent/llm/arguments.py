"""The reply to an extraction call -> the arguments of one tool. Such a call asks for bare arguments and nothing else.

The first object anywhere in the text that meets the tool's schema is taken: bare, in a fence, in prose, in a list, or
wrapped as a whole call. What stands inside a broken object, or in thinking, is never looked at. A value that is no
object is refused however few parameters there are: that it was meant for one of them would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agent.errors import ToolCallError
from agent.llm import lenient_json, strict_json
from agent.llm.replies import cut_off, nothing_said
from agent.llm.text_calls import calls_in_text
from agent.llm.text_forms import ARGUMENT_KEYS, NAME_KEYS
from agent.llm.thinking import split_thinking
from agent.llm.tool_calls import malformed, typed_arguments
from agent.state import ToolCall

MOST_CANDIDATES = 64  # tried in one reply; it keeps the time linear where a reply is nothing but braces
_KEY = r"\"[^\"{}\n]{0,80}\"|'[^'{}\n]{0,80}'|[“”][^“”{}\n]{0,80}[“”]|[A-Za-z_][\w.-]{0,80}"
# Where an object begins: `{curly}` in a sentence and `{` in a program do not look like this.
_BEGINS = re.compile(rf"\{{\s*(?:\}}|//|/\*|(?:{_KEY})\s*:)")
_BRACES = re.compile(r"[{}]")
_BRACES_AND_STRINGS = re.compile(r"[{}]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+(?:\"|\\?\Z)", re.DOTALL)
_FENCE_OPEN = re.compile(r"```\w*")


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call, typed by the schema, and what had to be repaired for it."""

    arguments: dict[str, Any]
    repairs: list[str]


@dataclass(frozen=True)
class _Candidate:
    """What may be the arguments, or why it cannot be. `knows` counts the parameters that it gives by name."""

    value: Any = None
    error: ToolCallError | None = None
    knows: int = 1
    repairs: list[str] = field(default_factory=list)


def read_arguments(
    raw: str, schema: dict[str, Any], *, tool: str | None = None, finish: str | None = None
) -> Arguments:
    """The arguments that the text of a reply holds for the tool with the parameters `schema` (JSON Schema).

    `tool` is its name: a call that names another one is refused. `finish` is the server's reason for the end.

    Raises:
        ModelError: empty_reply, thinking_only, or truncated (detail "thinking" where the cap went into thinking).
        ToolCallError: what is wrong with the object that comes nearest (missing_arguments, bad_arguments,
            unknown_tool, malformed_tool_call), or malformed_tool_call where there is none.
    """
    text, noted = _said(raw, finish)
    nearest: tuple[int, ToolCallError] | None = None
    for candidate in islice(_candidates(text, schema, tool), MOST_CANDIDATES):
        error = candidate.error
        if error is None:
            repairs = [*noted, *candidate.repairs]
            try:
                return Arguments(typed_arguments(tool or "the tool", candidate.value, schema, repairs), repairs)
            except ToolCallError as mismatch:
                error = mismatch
        if nearest is None or candidate.knows > nearest[0]:
            nearest = candidate.knows, error
    if finish == "length":
        raise cut_off()
    if nearest is not None:
        raise nearest[1]
    raise _no_object(schema)


def _said(raw: str, finish: str | None) -> tuple[str, list[str]]:
    """The text without thinking, and out of its quotes where all of it is one JSON string."""
    whole = _json_or_none(raw)
    thinking, text = ("", raw) if whole is not None else split_thinking(raw)
    if not text:
        raise nothing_said(thinking, finish)
    inner = whole if whole is not None else _json_or_none(text)
    return (inner, ["double_encoded"]) if isinstance(inner, str) else (text, [])


def _json_or_none(text: str) -> Any:
    try:
        return strict_json.loads(text)
    except ValueError:
        return None


def _no_object(schema: dict[str, Any]) -> ToolCallError:
    names = ", ".join(schema.get("properties", {})) or "none"
    return ToolCallError(
        "malformed_tool_call",
        f"the reply holds no JSON object; write one with the arguments and no other text: {names}",
    )


# -- where objects stand ----------------------------------------------------------------------------------------------


def _candidates(text: str, schema: dict[str, Any], tool: str | None) -> Iterator[_Candidate]:
    """All that may be the arguments, in order; calls in another form than JSON come last."""
    known = schema.get("properties", {}).keys()
    place: int | None = 0
    while place is not None and (begins := _BEGINS.search(text, place)) is not None:
        start = begins.start()
        reader = lenient_json.Reader(text, start)
        try:
            value = _value_at(reader)
        except ValueError as error:
            yield _Candidate(error=malformed(str(error)))
            place = _end_of_broken(text, start, reader.place)
            continue
        repairs = [*reader.repairs, *_around(text[:start].strip(), text[reader.place :].strip())]
        for inner in _inside(value, known, tool):
            wrapped = ["wrapped"] if inner.value is not value else []
            yield _Candidate(inner.value, inner.error, inner.knows, [*repairs, *wrapped])
        place = reader.place
    if tool is not None:
        yield from _other_forms(text, schema, tool)


def _value_at(reader: lenient_json.Reader) -> Any:
    """The value at the reader's place, which moves to its end; or to where it broke."""
    try:
        value, reader.place = strict_json.value_at(reader.text, reader.place)
    except ValueError:
        value = strict_json.checked(reader.value())
    return value


def _end_of_broken(text: str, start: int, reached: int) -> int | None:
    """Where a broken object ends: where its braces close, whether or not those in its strings are counted.

    None where they never do: then all that follows may stand inside it.
    """
    ends = [_closed(pattern, text, start) for pattern in (_BRACES, _BRACES_AND_STRINGS)]
    return None if None in ends else max(reached, *(end for end in ends if end is not None))


def _closed(pattern: re.Pattern[str], text: str, start: int) -> int | None:
    depth = 0
    for token in pattern.finditer(text, start):
        sign = token.group()
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return token.end()
    return None


def _around(before: str, after: str) -> list[str]:
    """What stood around an object, as the name of a repair."""
    if not before and not after:
        return []
    if _FENCE_OPEN.fullmatch(before) and after in ("", "```"):
        return ["fence"]
    return ["list"] if before == "[" and after == "]" else ["prose"]


# -- what stands in an object -----------------------------------------------------------------------------------------


def _inside(value: Any, known: Any, tool: str | None) -> Iterator[_Candidate]:
    """What in a value may be the arguments. An object with one of their names is them, right or wrong."""
    if isinstance(value, list):
        for item in value:
            yield from _inside(item, known, tool)
    if not isinstance(value, dict):
        return
    given = len(value.keys() & known)
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), None)
    wrapper = next((key for key in ARGUMENT_KEYS if key in value and key not in known), None)
    if wrapper is not None and (name is not None or not given):
        yield _unwrapped(value[wrapper], name, known, tool)
    elif given or not value:
        yield _Candidate(value, knows=given)
    elif name is not None and name == tool and len(value) == 1:
        yield _Candidate({}, knows=0)
    elif isinstance(value.get("properties"), dict):
        yield _Candidate(error=_echo())
    else:
        for item in value.values():
            if item:
                yield from _inside(item, known, tool)
        yield _Candidate(value, knows=0)


def _unwrapped(arguments: Any, name: str | None, known: Any, tool: str | None) -> _Candidate:
    if name is not None and tool is not None and name != tool:
        return _Candidate(
            error=ToolCallError(
                "unknown_tool", f"the reply calls {name[:80]!r}; the arguments of {tool} are asked for", tool=name
            )
        )
    return _Candidate(arguments, knows=len(arguments.keys() & known) if isinstance(arguments, dict) else 0)


def _echo() -> ToolCallError:
    why = "the reply repeats the schema; write an object with the values themselves"
    return ToolCallError("bad_arguments", why, detail="schema_echo")


def _other_forms(text: str, schema: dict[str, Any], tool: str) -> Iterator[_Candidate]:
    """A call in a form of the model's own (XML, Python), which models that were taught one fall back to."""
    repairs: list[str] = []
    offered = {"type": "function", "function": {"name": tool, "parameters": schema}}
    for found in calls_in_text(text, [offered], repairs):
        if isinstance(found, ToolCall):
            yield _Candidate(found.arguments, repairs=[*repairs, "wrapped"])
        else:
            yield _Candidate(error=found)
