"""Secrets taken out of text before it is kept or shown: a server may echo a key, and a program may read one."""

from __future__ import annotations

from collections.abc import Iterable

MARK = "[redacted]"
MIN_SECRET_CHARS = 4  # a shorter one would take ordinary words apart, and protects nothing


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with every whole occurrence of a secret replaced."""
    for secret in secrets:
        if len(secret) >= MIN_SECRET_CHARS:
            text = text.replace(secret, MARK)
    return text
