"""JSON objects and arrays inside a text: alone, fenced, or between sentences."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_STARTS = 200  # opening brackets that are tried, so that a text of brackets alone costs no time


def find_json(text: str) -> list[Any]:
    """The outermost objects and arrays of a text in their order. What does not parse is passed over."""
    found: list[Any] = []
    end = 0
    decoder = json.JSONDecoder(parse_constant=_refuse)
    for start in (match.start() for _, match in zip(range(MAX_STARTS), re.finditer(r"[{\[]", text), strict=False)):
        if start < end:
            continue
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        found.append(value)
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
