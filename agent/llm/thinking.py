"""Thinking that a model wrote into its reply, taken apart from what it says. Thinking is never scanned for calls."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)(?:think|thinking)\s*>|\[(/?)THINK\]", re.IGNORECASE)


def leading_thinking(text: str) -> str:
    """What a reply that was asked to think says: up to its first end mark, without a mark that opens it, stripped."""
    end = next((tag.start() for tag in _TAG.finditer(text) if _closes(tag)), len(text))
    text = text[:end].strip()
    opening = _TAG.match(text)
    return text[opening.end() :].lstrip() if opening else text


def split_thinking(text: str) -> tuple[str, str]:
    """`text` as (thinking, what is said), both stripped.

    An opening tag without its end makes all that follows thinking; an end without its opening all that came before
    (templates often write the opening tag into the prompt).
    """
    thought: list[str] = []
    said: list[str] = []
    inside, place = False, 0
    for tag in _TAG.finditer(text):
        closes = _closes(tag)
        piece, place = text[place : tag.start()], tag.end()
        (thought if inside else said).append(piece)
        if closes and not inside:
            thought += said
            said.clear()
        inside = not closes
    (thought if inside else said).append(text[place:])
    return "".join(thought).strip(), "".join(said).strip()


def _closes(tag: re.Match[str]) -> bool:
    return tag.group(1) == "/" or tag.group(2) == "/"
