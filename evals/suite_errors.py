"""From a validator's report to one line for the author of a suite: the file, the line, what, and how to mend it."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agent.errors import UsageError
from evals.asserts import ASSERT_CLASSES
from evals.run_asserts import ArgMatch
from evals.suite_yaml import Document, shown, shown_path

_KINDS = {  # pydantic's type of error -> what was due; {} is filled from the error's context
    "string_type": "needs a text",
    "string_too_long": "may have at most {max_length} characters",
    "bool_type": "needs true or false",
    "int_type": "needs a whole number",
    "int_from_float": "needs a whole number",
    "float_type": "needs a number",
    "list_type": "needs a list",
    "too_short": "needs at least {min_length} item",
    "too_long": "may have at most {max_length} items",
    "dict_type": "needs a mapping",
    "model_type": "needs a mapping",
    "model_attributes_type": "needs a mapping",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}


def explain(error: ValidationError, document: Document, place: int, value: Any, case: type[BaseModel]) -> UsageError:
    """The first mistake in a case, by its line. A field that lacks comes last: an unknown one may be meant for it."""
    found = [(_path(document, place, details), details) for details in error.errors(include_url=False)]
    path, details = min(found, key=lambda pair: (pair[1]["type"] == "missing", document.line(pair[0])))
    name = value.get("id") if isinstance(value, dict) else None
    where = f"case {shown(name)}" if isinstance(name, str) else f"case number {place + 1}"
    message = _say(details, path, where, case)
    return UsageError(f"{shown_path(document.path)}:{document.line(path)}: {message}")


def _path(document: Document, place: int, details: ErrorDetails) -> tuple[str | int, ...]:
    return document.known(("cases", place, *details["loc"]))


def _say(details: ErrorDetails, path: tuple[str | int, ...], where: str, case: type[BaseModel]) -> str:
    kind, loc = details["type"], details["loc"]
    field = next((str(key) for key in reversed(path[2:]) if isinstance(key, str)), "")
    if kind == "extra_forbidden":
        return f"unknown field {shown(field)} in {where}; {_suggest(field, _known_fields(loc, case))}"
    if kind == "missing":
        assert_type = next((f"the assert {key} of " for key in loc[-2:-1] if key in ASSERT_CLASSES), "")
        return f"{assert_type}{where} lacks the field {shown(str(loc[-1]))}"
    if kind == "union_tag_not_found":
        return f"an assert of {where} lacks its 'type'; {_suggest('', list(ASSERT_CLASSES))}"
    if kind == "union_tag_invalid":
        word = str(details["input"].get("type"))
        return f"unknown assert type {shown(word)} in {where}; {_suggest(word, list(ASSERT_CLASSES))}"
    bounds = {name: f"{bound:.15g}" if _is_number(bound) else bound for name, bound in details.get("ctx", {}).items()}
    due = _KINDS[kind].format_map(bounds) if kind in _KINDS else _lower(details["msg"])
    return f"{f'{shown(field)} in ' if field else ''}{where}: {due}"


def _known_fields(loc: tuple[str | int, ...], case: type[BaseModel]) -> list[str]:
    """The fields of the model that the unknown one was found in: the innermost that its path names."""
    for key in reversed(loc[:-1]):
        if key in ASSERT_CLASSES:
            return list(ASSERT_CLASSES[str(key)].model_fields)
        if key == "args":
            return list(ArgMatch.model_fields)
        if key == "limits":
            return list(type(case.model_fields["limits"].default).model_fields)
    return list(case.model_fields)


def _suggest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {shown(close[0])}?" if close else f"known: {', '.join(known)}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
