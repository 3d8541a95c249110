"""Secrets taken out of a reply's body before anything of it is read or kept.

What is taken out of the body has to be what would be found later in the texts that are read out of it: else a trace
would not follow from its own raw replies. So it is the texts in its JSON that are cleaned, however they are escaped,
and those of a stream as the one text that their pieces make: a model writes a secret in many pieces.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent.redaction import MARK, redacted, redacted_values, secret_spans

_LAYERS = 2  # a text of a reply may hold JSON (a call), and that JSON again (its arguments)
_Held = tuple[Any, str | int]  # an object or a list, and the name or number of what is held in it
_LINE = re.compile(r"(\s*(?:data:|error:)?)(.*)", re.DOTALL)


@dataclass
class _Line:
    """A line of a body: what stands before its JSON, and that in a list; nothing is in it where it holds none."""

    text: str
    before: str
    held: list[Any]


def without_secrets(body: str, secrets: tuple[str, ...]) -> str:
    """The body of a reply, whole or streamed; as it came where no secret stands in it."""
    if not secrets:
        return body
    lines, is_found = _lines(body), bool(secret_spans(body, secrets, layers=_LAYERS + 1))
    if not is_found and len(lines) == 1:
        return body
    try:
        is_changed = _clean(lines, secrets)
        return "\n".join(_written(line, secrets) for line in lines) if is_changed or is_found else body
    except RecursionError:  # deeper than anything that is read
        return redacted(body, secrets)


def _lines(body: str) -> list[_Line]:
    whole = _line(body)
    return [whole] if whole.held else [_line(text) for text in body.split("\n")]


def _line(text: str) -> _Line:
    found = _LINE.fullmatch(text)
    before, rest = found.groups() if found else ("", text)
    try:
        return _Line(text, before, [json.loads(rest)])
    except (ValueError, RecursionError):
        return _Line(text, before, [])


def _clean(lines: Sequence[_Line], secrets: tuple[str, ...]) -> bool:
    """Clean the texts in the lines, those of one place as one text over all lines, and say whether any was changed."""
    places: dict[int, list[_Held]] = {}
    for place, held in _texts([line.held for line in lines]):
        places.setdefault(place, []).append(held)
    is_changed = False
    for texts in places.values():
        pieces = [holder[key] for holder, key in texts]
        for (holder, key), clean in zip(texts, _clean_pieces(pieces, secrets), strict=True):
            is_changed |= holder[key] != clean
            holder[key] = clean
    return is_changed


def _texts(values: Sequence[Any]) -> Iterator[tuple[int, _Held]]:
    """Every text in some JSON values of one form, with a number for its place in them: in each value the same."""
    numbers: dict[tuple[int, str | int], int] = {}
    for value in values:
        left = [(0, value)]
        while left:
            place, holder = left.pop()
            for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
                inner = numbers.setdefault((place, key), len(numbers) + 1)
                if isinstance(item, str):
                    yield inner, (holder, key)
                elif isinstance(item, dict | list):
                    left.append((inner, item))


def _clean_pieces(pieces: Sequence[str], secrets: tuple[str, ...]) -> Iterator[str]:
    """The pieces of a text without the secrets in it: where one begins its mark stands."""
    spans = deque(secret_spans("".join(pieces), secrets, layers=_LAYERS))
    begins = 0
    for piece in pieces:
        kept, at = [], 0
        while spans and spans[0][0] < begins + len(piece):
            start, after = spans[0][0] - begins, spans[0][1] - begins
            kept += [piece[at : max(start, 0)], MARK if start >= 0 else ""]
            at = min(after, len(piece))
            if after > len(piece):
                break
            spans.popleft()
        yield "".join([*kept, piece[at:]])
        begins += len(piece)


def _written(line: _Line, secrets: tuple[str, ...]) -> str:
    """The line, as it came where nothing was taken out of it."""
    if not line.held:
        return redacted(line.text, secrets)
    clean = json.dumps(redacted_values(line.held[0], secrets))  # the names of fields, too
    if clean == json.dumps(json.loads(line.text[len(line.before) :])):
        return line.text
    return f"{line.before} {clean}" if line.before else clean
