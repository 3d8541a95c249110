"""Does an answer say numbers that nothing it rests on says? Deterministic: numbers are compared, words are not.

A rounded number is founded where what it was rounded from stands in a source. Numbers are compared without their sign
("3 below zero"), and those that only count the lines of a list are nobody's claim.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from decimal import Decimal, localcontext

from agent.guards.numbers import MAX_DIGITS, find_numbers

MAX_CHARS = 20_000  # of the answer, and of each source, that are read
MAX_SHOWN = 5
_MAX_SHOWN_DIGITS = 30
# Digits that touch a letter are no number of their own in an answer, and in a source may well be one: 05T09, 25th, F25.
_BESIDE_LETTERS = re.compile(r"(?<=[A-Za-z])[0-9]{1,20}(?![0-9])|(?<![0-9])[0-9]{1,20}(?=[A-Za-z])")
_LIST_NUMBER = re.compile(r"^[ \t]{0,8}(?:[-*][ \t])?[0-9]{1,3}[.)](?=\s)", re.MULTILINE)


def unfounded_numbers(answer: str, sources: Iterable[str]) -> list[str]:
    """The first numbers of the answer, at most MAX_SHOWN, that no source says, written plainly; empty where all are."""
    known = sorted({number for source in sources for number in _given(source[:MAX_CHARS])})
    said = dict.fromkeys(abs(number) for number in find_numbers(_LIST_NUMBER.sub("", answer[:MAX_CHARS])))
    with localcontext(prec=MAX_DIGITS + 50):
        found = [number for number in said if not _is_founded(number, known)]
    return [_shown(number) for number in found[:MAX_SHOWN]]


def _given(source: str) -> Iterator[Decimal]:
    yield from map(abs, find_numbers(source))
    yield from map(Decimal, _BESIDE_LETTERS.findall(source))


def _is_founded(number: Decimal, known: list[Decimal]) -> bool:
    """Whether one of the sorted `known` rounds to this number."""
    half = Decimal(5).scaleb(_last_place(number) - 1)
    place = bisect_left(known, number - half)
    return place < len(known) and known[place] <= number + half


def _last_place(number: Decimal) -> int:
    """The power of ten that the number was rounded to: its last digit's, zeros at the end of a whole one apart.

    Two digits always count: 1,200 may stand for 1,204, and 100 for 98, but not for 120.
    """
    written = int(number.as_tuple().exponent)
    if written < 0 or not number:
        return written
    zeros_apart = int(number.normalize().as_tuple().exponent)
    return max(written, min(zeros_apart, number.adjusted() - 1))


def _shown(number: Decimal) -> str:
    plain = f"{number:f}"
    return plain if len(plain) <= _MAX_SHOWN_DIGITS else f"{number:.6e}"
