"""A name and arguments, as a model gave them -> a ToolCall that the offered tools know, or why there is none.

Names are exact. Arguments are typed by the schema and by nothing else: "45" becomes 45 where an integer is due, "1"
stays text where text is due. A required argument that is missing is an error, never a call with less.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from typing import Any

from agent.errors import ToolCallError
from agent.llm import strict_json
from agent.llm.schemas import first_mismatch
from agent.state import ToolCall

Outcome = ToolCall | ToolCallError
Tools = Sequence[dict[str, Any]]

_INTEGER = re.compile(r"[+-]?\d{1,400}")
_NUMBER = re.compile(r"[+-]?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?")
_WORDS = {"true": True, "false": False}


def read_native(calls: Sequence[dict[str, Any]], tools: Tools, repairs: list[str]) -> list[Outcome]:
    """The calls that the server itself found, in order (their `index` says nothing: servers number them all 0)."""
    return [outcome(call["name"], call["arguments"], tools, repairs, ident=call["id"], encoded=True) for call in calls]


def outcome(
    name: str, arguments: Any, tools: Tools, repairs: list[str], *, ident: str | None = None, encoded: bool = False
) -> Outcome:
    """One call, or the error that says why it cannot be made. What had to be repaired is added to `repairs`.

    `encoded` says that JSON text is the ordinary form of arguments here, as on /v1.
    """
    try:
        typed = typed_arguments(name, arguments, _parameters(name, tools), repairs, encoded=encoded)
    except ToolCallError as error:
        return error
    return ToolCall(name=name, arguments=typed, id=ident)


def typed_arguments(
    name: str, arguments: Any, parameters: dict[str, Any], repairs: list[str], *, encoded: bool = False
) -> dict[str, Any]:
    """The arguments of one call, as JSON Schema `parameters` types them. Repairs are added where it can be made.

    Raises:
        ToolCallError: missing_arguments, or bad_arguments (detail "schema_echo" where a schema stands for a value).
    """
    needed: list[str] = []
    typed = _typed(name, _as_object(name, arguments, needed, encoded=encoded), parameters, needed)
    repairs += [repair for repair in dict.fromkeys(needed) if repair not in repairs]
    return typed


def from_texts(name: str, texts: dict[str, str], tools: Tools, repairs: list[str]) -> Outcome:
    """One call whose arguments came as bare texts, as XML has them: here the schema alone says what a text means."""
    try:
        properties = _parameters(name, tools).get("properties", {})
    except ToolCallError as error:
        return error
    return outcome(name, {key: _meant(text, properties.get(key)) for key, text in texts.items()}, tools, repairs)


def malformed(why: str) -> ToolCallError:
    """The error for what was begun as a call and is none."""
    return ToolCallError("malformed_tool_call", f"the tool call cannot be read: {why}; write it again, whole")


def offered_names(tools: Tools) -> list[str]:
    """The names of the offered tools, in order."""
    return [str(tool["function"]["name"]) for tool in tools]


def _parameters(name: str, tools: Tools) -> dict[str, Any]:
    for tool in tools:
        if tool["function"]["name"] == name:
            parameters: dict[str, Any] = tool["function"].get("parameters") or {}
            return parameters
    suggest = nearest(name, offered_names(tools))
    hint = f"; did you mean {suggest}?" if suggest else ""
    offered = ", ".join(offered_names(tools)) or "none"
    raise ToolCallError(
        "unknown_tool",
        f"there is no tool called {name[:80]!r}{hint or '.'} Tools: {offered}",
        tool=name,
        suggest=suggest,
    )


def nearest(name: str, offered: Sequence[str]) -> str | None:
    """The offered name that was likely meant: the same but for case or a made-up prefix, else one close in letters."""
    plain = name[:80].lower()
    last = re.split(r"[.:/]", plain)[-1]
    for known in offered:
        if known.lower() in (plain, last):
            return known
    return next(iter(difflib.get_close_matches(plain, offered, n=1, cutoff=0.75)), None)


def _as_object(name: str, arguments: Any, repairs: list[str], *, encoded: bool) -> dict[str, Any]:
    """The arguments as an object. Text is read as JSON; once more than is ordinary, some models encode them."""
    value = arguments
    if encoded and isinstance(value, str):
        value = _parsed(name, value)
    if isinstance(value, str):
        repairs.append("double_encoded")
        value = _parsed(name, value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolCallError("bad_arguments", f"the arguments of {name} must be a JSON object", tool=name)
    try:
        checked: dict[str, Any] = strict_json.checked(value)
    except ValueError as error:
        raise ToolCallError("bad_arguments", f"the arguments of {name}: {error}", tool=name) from None
    return checked


def _parsed(name: str, text: str) -> Any:
    if not text.strip():
        return None
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise ToolCallError("bad_arguments", f"the arguments of {name} are not JSON: {error}", tool=name) from None


def _typed(name: str, given: dict[str, Any], schema: dict[str, Any], repairs: list[str]) -> dict[str, Any]:
    missing = tuple(key for key in schema.get("required", ()) if key not in given)
    if missing:
        raise ToolCallError(
            "missing_arguments",
            f"{name} needs {', '.join(missing)}; write all of its arguments",
            tool=name,
            missing=missing,
        )
    properties = schema.get("properties", {})
    typed = {key: _as_due(key, value, properties.get(key), repairs) for key, value in given.items()}
    mismatch = first_mismatch(typed, schema) if schema else None
    if mismatch is None:
        return typed
    detail = "schema_echo" if any(_echoes(typed.get(key), due) for key, due in properties.items()) else None
    raise ToolCallError("bad_arguments", f"the arguments of {name} do not fit: {mismatch}", tool=name, detail=detail)


def _echoes(value: Any, schema: Any) -> bool:
    """Whether the model wrote the parameter's own schema where its value belongs."""
    return (
        isinstance(value, dict) and isinstance(schema, dict) and "type" in value and value["type"] == schema.get("type")
    )


def _types(schema: Any) -> list[Any]:
    """The JSON types that a schema allows, those of its branches included; none where it does not say."""
    if not isinstance(schema, dict):
        return []
    if "type" in schema:
        return schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    return [kind for branch in branches for kind in _types(branch)]


def _meant(text: str, schema: Any) -> Any:
    """A bare text as the schema means it: null, text, or a JSON value; as it is where none of them fits."""
    types = _types(schema)
    if "null" in types and text.strip() == "null":
        return None
    if "string" in types or not types:
        return text
    try:
        value = strict_json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str) else value


def _as_due(key: str, value: Any, schema: Any, repairs: list[str]) -> Any:
    """A text, or a text in a list or object, as the type that its schema asks for, where it can be only that."""
    if isinstance(schema, dict) and isinstance(value, list):
        return [_as_due(key, item, schema.get("items"), repairs) for item in value]
    if isinstance(schema, dict) and isinstance(value, dict):
        known = schema.get("properties", {})
        return {name: _as_due(key, item, known.get(name), repairs) for name, item in value.items()}
    types = _types(schema)
    if not isinstance(value, str) or "string" in types:
        return value
    text = value.strip()
    for kind in types:
        found = _read_as(kind, text)
        if found is not None or (kind == "null" and text.lower() in ("null", "none")):
            repairs.append(f"coerced:{key}")
            return found
    return value


def _read_as(kind: Any, text: str) -> Any:
    """`text` as JSON type `kind`; None where it is not such a value."""
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        number = float(text)
        return int(text) if _INTEGER.fullmatch(text) else number if math.isfinite(number) else None
    if kind == "boolean":
        return _WORDS.get(text.lower())
    if kind in ("object", "array") and text[:1] in ("{", "["):
        try:
            return strict_json.loads(text)
        except ValueError:
            return None
    return None
