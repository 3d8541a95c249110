"""Secrets of the kinds that people have, made up, and the pieces of them that must not be seen anywhere."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable

TOKEN = "eyJhbGciOiJSUzI1NiJ9." + "".join(f"{number:03d}aZ" for number in range(72))  # 381 characters
_BODY = "".join(b64encode(hashlib.sha256(bytes([number])).digest()).decode()[:40] for number in range(8))
KEY_LINES = tuple(_BODY[at : at + 64] for at in range(0, len(_BODY), 64))
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----", ""])
PIECE_CHARS = 16


def seen_of(secret: str, *texts: str) -> set[str]:
    """The pieces of a secret's lines, of some characters each, that stand in any of the texts; headers do not count."""
    return {piece for piece in _pieces(secret.splitlines()) for text in texts if piece in text}


def _pieces(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if not line.startswith("-----"):
            yield from (line[at : at + PIECE_CHARS] for at in range(max(1, len(line) - PIECE_CHARS + 1)))
