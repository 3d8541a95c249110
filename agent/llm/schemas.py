"""Values held against a JSON Schema, with the library's import put off and each validator built once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_CACHE_SIZE = 256
_SHOWN = 200
# By identity: the schemas of a run are shared objects that never change. Each is held, so that its id stays its own.
_validators: dict[int, tuple[dict[str, Any], Validator]] = {}


def first_mismatch(value: Any, schema: dict[str, Any]) -> str | None:
    """The most telling way in which `value` does not meet `schema`, as one line with its place; None where it does."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415  # heavy, and only needed to judge a reply

    error = best_match(_validator(schema).iter_errors(value))
    if error is None:
        return None
    said = error.message if len(error.message) <= _SHOWN else error.message[:_SHOWN] + "…"
    return f"{error.json_path}: {said}"


def _validator(schema: dict[str, Any]) -> Validator:
    known = _validators.get(id(schema))
    if known is not None:
        return known[1]
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # as above

    if len(_validators) >= _CACHE_SIZE:
        _validators.clear()
    validator = Draft202012Validator(schema)
    _validators[id(schema)] = (schema, validator)
    return validator
