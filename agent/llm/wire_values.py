"""Values out of a body that may hold anything in any place: each reader gives what was meant, or its absence."""

from __future__ import annotations

import json
from typing import Any

from agent.llm.strict_json import whole_characters
from agent.state import Usage

_LARGEST_COUNT = 2**53  # above this it is no count of tokens, and other readers of a trace would round it


def as_dict(value: Any) -> dict[str, Any]:
    """The object that `value` is, or an empty one."""
    return value if isinstance(value, dict) else {}


def object_in(line: bytes) -> dict[str, Any]:
    """A line of a stream as a JSON object; an empty one where it is none, which the reading of the whole reports."""
    try:
        return as_dict(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def as_text(value: Any) -> str:
    """Text, or the text parts of a list of parts; anything else is no text."""
    if isinstance(value, list):
        return "".join(part["text"] for part in value if isinstance(as_dict(part).get("text"), str))
    return value if isinstance(value, str) else ""


def as_whole(value: Any) -> int | None:
    """A whole number of at least 0."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_COUNT
    return value if is_whole else None


def as_count(value: Any) -> int | None:
    """A token count. Servers leave a missing count out or write 0, and neither prompt nor reply is ever empty."""
    return as_whole(value) or None


def as_seconds(value: Any, unit: float, otherwise: float | None) -> float | None:
    """A duration that is counted in `unit` seconds; `otherwise` where it is none."""
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return value * unit if is_time else otherwise


def as_calls(value: Any) -> list[dict[str, Any]]:
    """Native calls in one form: id, index, name, and the arguments as they came (object, JSON text or None)."""
    found = []
    for call in value if isinstance(value, list) else ():
        function = as_dict(as_dict(call).get("function"))
        found.append(
            {
                "id": as_text(as_dict(call).get("id")) or None,
                "index": as_whole(as_dict(call).get("index")),
                "name": whole_characters(as_text(function.get("name"))),
                "arguments": function.get("arguments"),
            }
        )
    return found


def merged(before: Usage, now: Usage) -> Usage:
    """Counts of a later object win; one that it does not give stays as it was."""
    return before.model_copy(update=now.model_dump(exclude_none=True))
