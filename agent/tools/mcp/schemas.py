"""A server's tool made into one of ours: its JSON Schema, which may hold anything, into parameters that are bounded.

A server writes its schemas and descriptions for whoever reads them, and some servers are hostile: nothing here follows
them further than a fixed number of parts, and no pattern of theirs is ever run. Where they say less than we need (how
long a text may be), our own bound stands.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, create_model

from agent.prompts.untrusted import inert_markers
from agent.redaction import redacted
from agent.tools.base import Params
from agent.tools.corpus import clean

MAX_TOOL_NAME = 64
MAX_DESCRIPTION = 500
MAX_PARAMETER_DESCRIPTION = 200
MAX_PARAMETERS = 24
MAX_TEXT = 4000
MAX_ITEMS = 20
MAX_CHOICES = 50
MAX_CHOICE = 100
MAX_DEPTH = 5
MAX_PARTS = 200  # of one tool's schema, each time a reference leads to it
_NO_WORDS = "Not described."

_PARAMETER_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_.$-]{0,63}")
MCP_PREFIX = "mcp_"  # of the names of all servers' tools
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/~%]{1,200})")
_EXACT = 2**53  # whole numbers below it are the same in every program that reads JSON

Schema = Mapping[str, Any]


class InexpressibleError(Exception):
    """A schema asks for what no bounded declaration of ours can say; the message says what."""


@dataclass(frozen=True)
class Declared:
    """A server's tool as it is offered. `left_out` are parameters that it is offered without, with the reason."""

    server_name: str
    name: str
    description: str
    params: type[Params]
    left_out: tuple[str, ...] = ()


def declared(
    server: str, name: str, description: str | None, schema: Schema, secrets: tuple[str, ...] = ()
) -> Declared:
    """A server's tool with its name made ours, its words made inert and its parameters bounded.

    Secrets are taken out of its words; a name or a value to choose that holds one cannot be offered.

    Raises:
        InexpressibleError: the tool cannot be offered.
    """
    ours = f"{MCP_PREFIX}{server}_{_NOT_IN_A_NAME.sub('_', name)}"
    if not name or len(ours) > MAX_TOOL_NAME:
        raise InexpressibleError(f"with its server's name it is longer than {MAX_TOOL_NAME} characters")
    if redacted(name, secrets) != name:
        raise InexpressibleError("its name holds a secret")
    reader = _Reader(schema, secrets)
    params = reader.params(f"Params_{ours}")
    return Declared(name, ours, _words(description, MAX_DESCRIPTION, secrets), params, tuple(reader.left_out))


@dataclass
class _Reader:
    """Reads one tool's schema. What it has read is counted, since a reference may lead to the same part many times."""

    root: Schema
    secrets: tuple[str, ...] = field(default=(), repr=False)
    left_out: list[str] = field(default_factory=list)
    _parts: int = 0

    def params(self, title: str) -> type[Params]:
        """The tool's parameters as a declaration of ours."""
        schema = self._resolved(self.root)
        if schema.get("type", "object") != "object" or any(word in schema for word in ("anyOf", "oneOf", "allOf")):
            raise InexpressibleError("its parameters are no plain object")
        return self._object(schema, title, 0, outermost=True)

    def _object(self, schema: Schema, title: str, depth: int, *, outermost: bool = False) -> type[Params]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise InexpressibleError("its properties are no object")
        if len(properties) > MAX_PARAMETERS:
            raise InexpressibleError(f"it has more than {MAX_PARAMETERS} parameters in one object")
        if not properties and schema.get("additionalProperties") not in (None, False) and not outermost:
            raise InexpressibleError("an object may have any fields")
        if unknown := [name for name in required if name not in properties]:
            raise InexpressibleError(f"it requires {ascii(unknown[0])[:80]}, which it does not describe")
        fields: dict[str, Any] = {}
        for place, (name, part) in enumerate(properties.items()):
            try:
                fields[f"p{place}"] = self._field(name, part, depth, is_required=name in required)
            except InexpressibleError as error:
                if name in required or self._parts > MAX_PARTS:
                    raise
                self.left_out.append(f"{ascii(name)[:80]} ({error})")
        return create_model(title[:100], __base__=_ServerParams, **fields)

    def _field(self, name: str, part: object, depth: int, *, is_required: bool) -> tuple[Any, Any]:
        """A field's type and its declaration. The server's name is an alias: Python's own names may be others."""
        if not _PARAMETER_NAME.fullmatch(name):
            raise InexpressibleError(f"{ascii(name)[:80]} is no name of a parameter")
        if redacted(name, self.secrets) != name:
            raise InexpressibleError("its name holds a secret")
        schema = self._resolved(part)
        kind = self._type(schema, depth + 1)
        told = part.get("description") if isinstance(part, dict) else None
        words = _words(told or schema.get("description"), MAX_PARAMETER_DESCRIPTION, self.secrets)
        if is_required:
            return kind, Field(alias=name, description=words)
        return kind | None, Field(None, alias=name, description=words)

    def _type(self, part: object, depth: int) -> Any:
        """The type of one value, as Python writes it."""
        if depth > MAX_DEPTH:
            raise InexpressibleError(f"it is nested more than {MAX_DEPTH} deep")
        schema = self._resolved(part)
        if "const" in schema or "enum" in schema:
            return _choice(schema["enum"] if "enum" in schema else [schema["const"]], self.secrets)
        if len(schema.get("allOf") or ()) == 1:
            return self._type(schema["allOf"][0], depth + 1)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._any_of(schema[word], depth)
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            return self._any_of([{**schema, "type": one} for one in kind[:MAX_CHOICES]], depth)
        return self._plain(kind, schema, depth)

    def _plain(self, kind: object, schema: Schema, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, "Fields", depth)
        if kind == "array":
            item, (low, high) = self._type(schema.get("items"), depth + 1), _lengths(schema, "Items", MAX_ITEMS)
            return Annotated[list[item], Field(min_length=low, max_length=high)]  # type: ignore[valid-type]  # built
        if kind == "string":
            low, high = _lengths(schema, "Length", MAX_TEXT)
            return Annotated[str, Field(min_length=low, max_length=high)]
        if kind == "integer":
            return Annotated[int, Field(**_bounds(schema, math.ceil, math.floor))]
        if kind == "number":
            return Annotated[float, Field(allow_inf_nan=False, **_bounds(schema, float, float))]
        if kind == "boolean":
            return bool
        if kind == "null":
            return type(None)
        raise InexpressibleError("a part of it says no type, or one that is not known")

    def _any_of(self, branches: object, depth: int) -> Any:
        if not isinstance(branches, list) or not 1 <= len(branches) <= MAX_CHOICES:
            raise InexpressibleError("it has no or too many alternatives")
        return functools.reduce(operator.or_, (self._type(branch, depth + 1) for branch in branches))

    def _resolved(self, part: object) -> Schema:
        """A part of the schema with the reference that it may be followed, within the document only."""
        for _ in range(MAX_DEPTH):
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise InexpressibleError(f"it has more than {MAX_PARTS} parts")
            if not isinstance(part, dict):
                raise InexpressibleError("a part of it is no schema of its own")
            if "$ref" not in part:
                return part
            found = _REFERENCE.fullmatch(str(part["$ref"])[:300])
            definitions = self.root.get(found[1]) if found else None
            part = definitions.get(found[2]) if found and isinstance(definitions, dict) else None
        raise InexpressibleError("a reference of it leads nowhere")


class _ServerParams(Params):
    """What every tool of a server takes: named as the server names it."""

    model_config = ConfigDict(extra="forbid", strict=True, serialize_by_alias=True)


def arguments_of(params: Params) -> dict[str, Any]:
    """What the server is sent: every argument that was given, by the server's own names. Null is one not given."""
    return params.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _choice(values: object, secrets: tuple[str, ...]) -> Any:
    """One of a few values that can be written down: short texts, whole numbers, truth values, null."""
    if not isinstance(values, list) or not 1 <= len(values) <= MAX_CHOICES:
        raise InexpressibleError(f"it offers no value to choose, or more than {MAX_CHOICES}")
    for value in values:
        if not _is_plain(value):
            raise InexpressibleError("a value to choose is too long, or no plain one")
        if redacted(str(value), secrets) != str(value):
            raise InexpressibleError("a value to choose holds a secret")
    return Literal[tuple(values)]


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_CHOICE and value.isprintable() and inert_markers(value) == value
    return value is None or (isinstance(value, int) and abs(value) < _EXACT)


def _bounds(schema: Schema, up: Callable[[float], float], down: Callable[[float], float]) -> dict[str, Any]:
    """The least and the greatest number that the server takes, as far as they can be compared."""
    bounds: dict[str, Any] = {}
    words = (("minimum", "ge", up), ("maximum", "le", down), ("exclusiveMinimum", "gt", down))
    for word, ours, rounded in (*words, ("exclusiveMaximum", "lt", up)):
        value = schema.get(word)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _EXACT:
            bounds[ours] = rounded(value)
    return bounds


def _lengths(schema: Schema, word: str, most: int) -> tuple[int, int]:
    """The shortest and the longest that the server takes, as far as it says so and within our bound."""
    low, high = _count(schema.get(f"min{word}"), 0), min(_count(schema.get(f"max{word}"), most), most)
    if low > high:
        raise InexpressibleError(f"a part of it must be longer than {high}")
    return low, high


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _words(text: object, limit: int, secrets: tuple[str, ...]) -> str:
    """A server's words on one line, inert, bounded and without secrets: they stand in the system message."""
    plain = inert_markers(clean(redacted(text, secrets)[: 4 * limit])) if isinstance(text, str) else ""
    return (plain if len(plain) <= limit else f"{plain[: limit - 1]}\u2026") or _NO_WORDS
