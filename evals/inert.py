"""Hostile text made inert: what a model, a page or a file wrote can show, and do nothing else.

Controls, and characters that reorder or hide others, are replaced by visible stand-ins, so that nothing vanishes
unseen. In Markdown all such text stands in code, where nothing of it is markup, a link, an image or a mention.
"""

from __future__ import annotations

import html
import re
import unicodedata

# The joiners shape letters in Persian and Indic scripts and hold emoji together; they reorder and hide nothing.
_KEPT = frozenset("\n\t\u200c\u200d")
# Cc: controls. Cf: bidi overrides, invisible and tag characters. Cs: lone surrogates, which no file can hold.
# Zl, Zp: line breaks that line-based readers do not expect.
_ACTIVE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters, marks and symbols that show as nothing, and what Unicode says is to be ignored where it is not known. Of the
# variation selectors, those that emoji and mathematics are written with (U+FE00, U+FE0E, U+FE0F) stay. Some controls of
# Egyptian (U+13439 to U+1343F) are none yet to older releases of Python.
BLANK = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0, 0x16FE4, 0x1D159),
        *(*range(0x180B, 0x180E), 0x180F, *range(0xFE01, 0xFE0E), *range(0xFFF0, 0xFFF9), *range(0x13430, 0x13443)),
        *range(0xE0000, 0xE1000),
        *range(0xFDD0, 0xFDF0),  # these, and the last two of each plane, are no characters
        *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)),
    )
)


class _StandIns(dict[int, int | str]):
    """For `str.translate`: what each code point becomes, worked out when it is first met."""

    def __missing__(self, code: int) -> int | str:
        shown: int | str = code
        hides = code in BLANK or unicodedata.category(chr(code)) in _ACTIVE
        if hides and chr(code) not in _KEPT:
            shown = 0x2400 + code if code < 0x20 else f"<U+{code:04X}>"
        self[code] = shown
        return shown


_STAND_INS = _StandIns()


def inert(text: str) -> str:
    """`text` with every control, bidi, invisible and unencodable character shown; newlines and tabs stay."""
    return text.replace("\r\n", "\n").translate(_STAND_INS)


def one_line(text: str, limit: int) -> str:
    """`inert` on one line of at most about `limit` characters; what is cut is said."""
    return clip(" ".join(inert(clip(text, 4 * limit)).split()), limit)


def clip(text: str, limit: int) -> str:
    """The first `limit` characters, and how many more there were."""
    return text if len(text) <= limit else f"{text[:limit].rstrip()} ... ({len(text) - limit:,} more characters)"


def code_span(text: str, limit: int = 80) -> str:
    """One line as Markdown code that the text cannot end; fit for a table cell, where a pipe would end it."""
    shown = one_line(text, limit).replace("|", "\u00a6") or "(empty)"
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if "`" in (shown[0], shown[-1]) else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def code_block(text: str) -> str:
    """Lines as a fenced block that the text cannot close."""
    shown = inert(text)
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}text\n{shown}\n{fence}"


def html_code(text: str, limit: int = 80) -> str:
    """One line as code where HTML is expected."""
    return f"<code>{html.escape(one_line(text, limit)) or '(empty)'}</code>"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
