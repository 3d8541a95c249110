"""Hostile text made inert for a terminal: what a model, a page or a file wrote can show, and do nothing else.

A terminal acts on C0 and C1 controls (colours, cursor, clipboard, links, window title), and a reader is deceived by
characters that reorder or hide others. Each is replaced by a visible stand-in, so that nothing vanishes unseen.
"""

from __future__ import annotations

import unicodedata

# The joiners shape letters in Persian and Indic scripts and hold emoji together; they reorder and hide nothing.
_KEPT = frozenset("\n\t\u200c\u200d")
# Cc: controls. Cf: bidi overrides, invisible and tag characters. Cs: lone surrogates, which no stream can encode.
# Zl, Zp: line breaks that line-based readers do not expect.
_ACTIVE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def inert(text: str) -> str:
    """`text` with every control, bidi, invisible and unencodable character shown instead of sent.

    Newlines and tabs stay; a carriage return before a newline is dropped. Doing it twice changes nothing.
    """
    return text.replace("\r\n", "\n").translate(_STAND_INS)


def inert_line(text: str, limit: int = 2000) -> str:
    """`inert` on one line of at most `limit` characters: line breaks become spaces, what is cut is said."""
    return clip(" ".join(inert(text).split()), limit)


def clip(text: str, limit: int) -> str:
    """The first `limit` characters, and how many more there were."""
    return text if len(text) <= limit else f"{text[:limit].rstrip()} ... ({len(text) - limit:,} more characters)"


def encodable(text: str) -> str:
    """`text` without lone surrogates, which a path or an argument may hold and no UTF-8 file can."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _StandIns(dict[int, int | str]):
    """For `str.translate`: what each code point becomes, worked out when it is first met."""

    def __missing__(self, code: int) -> int | str:
        shown: int | str = code
        if chr(code) not in _KEPT and unicodedata.category(chr(code)) in _ACTIVE:
            shown = _picture(code)
        self[code] = shown
        return shown


def _picture(code: int) -> int | str:
    if code < 0x20:
        return 0x2400 + code  # the control pictures: ESC is shown as one small sign
    return 0x2421 if code == 0x7F else f"<U+{code:04X}>"


_STAND_INS = _StandIns()
