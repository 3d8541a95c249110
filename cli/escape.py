"""Hostile text made inert for a terminal, which acts on controls where a report only shows them.

The rules stand in evals/inert.py; here is what the command line needs beside them.
"""

from __future__ import annotations

from evals.inert import clip, inert

__all__ = ["clip", "encodable", "inert", "inert_line"]

LINE_CHARS = 2000


def inert_line(text: str, limit: int = LINE_CHARS) -> str:
    """`text` inert and on one line of at most `limit` characters; what is cut is said."""
    return clip(" ".join(inert(text).split()), limit)


def encodable(text: str) -> str:
    """`text` without lone surrogates, which a path or an argument may hold and no UTF-8 file can."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
