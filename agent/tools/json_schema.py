"""One pydantic declaration, read four ways: plain JSON Schema, a bounded one for decoding, words, and typed values.

Every function here starts from `plain_schema`, so that none can say something else than the declaration does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

# llama.cpp counts repetitions while it compiles a schema to a grammar and refuses 2,000 of them or more (which figure
# exactly differs between releases); some count nested ones together. Half of that has passed everywhere.
GRAMMAR_MAX_TEXT = 1000
# From here on a length is left out of what native tool calling sends: servers compile that to a grammar too.
NATIVE_MAX_TEXT = 1999

# A text's parameter may declare (in json_schema_extra) what a grammar lets a model write of it. It must be anchored at
# both ends and bounded; it guides decoding only, and what is refused or accepted does not depend on it.
DECODE_PATTERN = "decodePattern"

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")
_WORDS = {"string": "text", "boolean": "true or false", "null": "null"}


def plain_schema(model: type[BaseModel]) -> Schema:
    """The JSON Schema of a declaration with its references inlined and titles, defaults and docstrings left out.

    Raises:
        TypeError: the declaration leaves something unbounded or undescribed; a bug of ours.
    """
    raw = model.model_json_schema()
    schema = _inlined(raw, raw.get("$defs", {}))
    schema.pop("description", None)
    schema.setdefault("properties", {})
    for name, node in schema["properties"].items():
        if not node.get("description"):
            raise TypeError(f"{model.__name__}.{name} needs a description")
    _demand_bounds(schema, model.__name__)
    return schema


def native_schema(schema: Schema) -> Schema:
    """What native tool calling is sent: the plain schema without lengths that a server's grammar cannot hold."""

    def relax(node: Schema) -> Schema:
        too_long = node.get("maxLength", 0) > NATIVE_MAX_TEXT
        left_out = {DECODE_PATTERN, "maxLength"} if too_long else {DECODE_PATTERN}
        return {key: value for key, value in node.items() if key not in left_out}

    return _mapped(schema, relax)


def bounded_schema(schema: Schema) -> Schema:
    """The schema for constrained decoding: every text short enough for a grammar, and no words to read."""

    def bound(node: Schema) -> Schema:
        kept = {key: value for key, value in node.items() if key != "description"}
        if DECODE_PATTERN in kept:  # it has bounds of its own; grammars take a length or a pattern, not both
            return {"type": "string", "pattern": kept[DECODE_PATTERN]}
        if "maxLength" in kept:
            kept["maxLength"] = min(kept["maxLength"], GRAMMAR_MAX_TEXT)
        # llama.cpp makes an invalid grammar of an object that can hold nothing; a constant says the same.
        return {"const": {}} if kept.get("properties") == {} else kept

    return _mapped(schema, bound)


def action_form(name: str, arguments: Schema) -> Schema:
    """The bounded schema of one call of `name` with such arguments, `{"tool": name, "args": {...}}`."""
    return {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": [name]}, "args": arguments},
        "required": ["tool", "args"],
        "additionalProperties": False,
    }


def type_words(schema: Schema) -> str:
    """The type in words for a prompt or an error: text, integer, number, true or false, list of text, one of a, b."""
    if "anyOf" in schema:
        return " or ".join(type_words(branch) for branch in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    kind: str = schema["type"]
    return f"list of {type_words(schema['items'])}" if kind == "array" else _WORDS.get(kind, kind)


def parameter_words(schema: Schema) -> list[str]:
    """Each parameter with its type and whether it must be given."""
    required = schema.get("required", [])
    return [
        f"{name} ({type_words(node)}, required)" if name in required else f"{name} ({_given_words(node)}, optional)"
        for name, node in schema["properties"].items()
    ]


def _given_words(schema: Schema) -> str:
    """The type of a value that is given: for what may be left out, null says no more than that."""
    given = [branch for branch in schema.get("anyOf", []) if branch.get("type") != "null"]
    return type_words({"anyOf": given} if given else schema)


def typed(value: object, schema: Schema) -> object:
    """The value in the type its schema asks for, where that loses nothing; else the very same object.

    Text that spells a number, a truth value or null becomes that where it is due, a number becomes text where text is
    due; whether the value then fits is for validation to say.
    """
    if "anyOf" in schema:
        return _typed_by_branch(value, schema["anyOf"])
    kind = schema.get("type")
    if kind == "array" and isinstance(value, list):
        items = [typed(item, schema["items"]) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if kind == "object" and isinstance(value, dict):
        known = schema.get("properties", {})
        fields = {key: typed(item, known[key]) if key in known else item for key, item in value.items()}
        return value if all(fields[key] is value[key] for key in value) else fields
    convert = _CONVERSIONS.get(str(kind))
    return convert(value) if convert else value


def _typed_by_branch(value: object, branches: list[Schema]) -> object:
    if any(isinstance(value, _PYTHON_TYPES.get(branch.get("type", ""), ())) for branch in branches):
        return value
    for branch in branches:
        changed = typed(value, branch)
        if changed is not value:
            return changed
    return value


def _as_number(value: object) -> object:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = json.loads(value)
        return number if math.isfinite(number) else value
    return value


def _as_integer(value: object) -> object:
    number = _as_number(value)
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        return int(number)
    return number if isinstance(number, int) else value


def _as_boolean(value: object) -> object:
    return {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value


def _as_null(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in {"null", "none"} else value


def _as_text(value: object) -> object:
    return repr(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}

_CONVERSIONS: dict[str, Callable[[object], object]] = {
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "null": _as_null,
    "string": _as_text,
}


def _mapped(node: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """The schema with `change` applied to it and to every schema inside it."""
    out = change(node)
    if "properties" in out:
        out["properties"] = {name: _mapped(child, change) for name, child in out["properties"].items()}
    if "items" in out:
        out["items"] = _mapped(out["items"], change)
    if "anyOf" in out:
        out["anyOf"] = [_mapped(branch, change) for branch in out["anyOf"]]
    return out


def _inlined(node: Schema, definitions: Schema) -> Schema:
    """The schema with each reference replaced by what it points to and pydantic's own words dropped."""

    def resolve(inner: Schema) -> Schema:
        if "$ref" in inner:
            target = definitions[inner["$ref"].removeprefix("#/$defs/")]
            inner = {**target, **inner}
        return {key: value for key, value in inner.items() if key not in {"$ref", "$defs", "title", "default"}}

    return _mapped(node, resolve)


def _demand_bounds(node: Schema, where: str) -> None:
    """A grammar without bounds lets a small model write on until its tokens are spent."""
    if "anyOf" in node:
        for branch in node["anyOf"]:
            _demand_bounds(branch, where)
        return
    if "enum" in node or "const" in node:
        return
    kind = node.get("type")
    if kind == "string" and "maxLength" not in node:
        raise TypeError(f"{where}: a text needs max_length")
    if kind == "array" and not ("maxItems" in node and "items" in node):
        raise TypeError(f"{where}: a list needs max_length and the type of its items")
    if kind == "object" and node.get("additionalProperties") is not False:
        raise TypeError(f"{where}: an object must forbid unknown fields")
    if kind not in {"string", "array", "object", "integer", "number", "boolean", "null"}:
        raise TypeError(f"{where}: {kind} is not a type that models and grammars know")
    for name, child in node.get("properties", {}).items():
        _demand_bounds(child, f"{where}.{name}")
    if kind == "array":
        _demand_bounds(node["items"], where)
