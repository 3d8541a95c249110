"""JSON as RFC 8259 has it, read from texts that nobody vouches for.

Python's own reader takes NaN and Infinity, lets the last of two equal keys win, and hands on halves of surrogate
pairs that no file or terminal can take. Here the first two are errors and the third becomes U+FFFD.
"""

from __future__ import annotations

import json
import math
from typing import Any

# Deeper than any honest reply; keeps whoever walks the value afterwards (validators, dumps) off the recursion limit.
MAX_DEPTH = 64


def loads(text: str) -> Any:
    """The one JSON value that `text` is.

    Raises:
        ValueError: it is not exactly one value, a key stands twice, a number is not finite or has thousands of
            digits, or it nests deeper than 64 levels.
    """
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return checked(value)


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins exactly at `start`, and where it ends.

    Raises:
        ValueError: no value begins there, or see `loads`.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return checked(value), end


def whole_characters(text: str) -> str:
    """`text` with split surrogate pairs joined and lone halves replaced by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def checked(value: Any, depth: int = 0) -> Any:
    """A copy of a JSON value with whole characters only.

    Raises:
        ValueError: it nests deeper than 64 levels.
    """
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, list):
        return [checked(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {whole_characters(key): checked(item, depth + 1) for key, item in value.items()}
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits:.40} is too large")
    return number


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)
