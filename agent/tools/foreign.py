"""What somebody else wrote, as it reaches a model: between marks that its writer cannot know, and called data."""

from __future__ import annotations

import secrets

from agent.prompts.untrusted import as_data, inert_markers
from agent.tools.base import Excerpt

ROOM_FOR_MARKS = 240  # what stands around a text, beside the name of its source
_ROOM_FOR_CUT_NOTE = 80  # what the registry puts behind an excerpt


def foreign(text: str, source: str, max_chars: int, whole: str | None = None) -> str | Excerpt:
    """A text, without secrets, as foreign data within `max_chars`.

    `source` is where it came from. `whole` is the length of the whole in words, where `text` is only its beginning.
    """
    mark = secrets.token_hex(4)
    room = max_chars - len(as_data("", source, mark))
    clean = inert_markers(text)
    if whole is None and len(clean) <= room:
        return as_data(clean, source, mark)
    shown = as_data(clean[: room - _ROOM_FOR_CUT_NOTE], source, mark)
    return Excerpt(shown, whole or f"{len(text):,} characters")
