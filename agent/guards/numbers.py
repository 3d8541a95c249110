"""Numbers as people and models write them in English text, read exactly (Decimal, never float).

Read: 75025, 75,025, .5, 1.2e19, 10^19, 10**19, 10¹⁹, 7.5 x 10^18 (and with a real times sign, a
middle dot, * or \\times), 7.5 quintillion, -3, $1,628.89.
Not read: words for digits ("seven"), ordinals (25th), 5k or 3M (is it million or metre?), digits inside a name (F25,
0x1F), decimal commas (1.628,89), versions and addresses (1.2.3). `100,200` without a space is one number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context, Decimal

MAX_DIGITS = 400  # longer runs of digits, and values beyond 1e400, are nobody's answer

_SCALES = {
    "thousand": 3,
    "million": 6,
    "billion": 9,
    "trillion": 12,
    "quadrillion": 15,
    "quintillion": 18,
    "sextillion": 21,
    "septillion": 24,
}
_SIGNS = {0x2212: "-", 0xD7: "*", 0xB7: "*", 0x22C5: "*"}  # minus, times, middle dot, dot operator
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_NOT_A_UNIT = {"st", "nd", "rd", "th", "k", "m", "mn", "b", "bn", "t", "tn"}
# No trap is set: an impossible result becomes NaN or infinity, which is then left out.
_EXACT = Context(prec=MAX_DIGITS + 50, Emax=10**6, Emin=-(10**6), traps=[])

_POWER = r"(?:\s?\^\s?[{(]?|\*\*\(?)(?P<%s>[-+]?[0-9]{1,4})(?![0-9])[})]?"
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)])-[$€£]?)?"
    r"(?<![A-Za-z0-9_.])(?P<plain>[0-9](?:[0-9.,_\u00a0\u2009\u202f]*[0-9])?|\.[0-9]+)"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,4})(?![0-9]))?"
    r"(?:\s{0,2}(?:[xX*]|\\times|\\cdot)\s{0,2}10" + _POWER % "ten" + "|" + _POWER % "power" + ")?"
    r"(?P<scale>(?:[\s-](?:" + "|".join(_SCALES) + r")\b){0,3})"
    r"(?P<glued>[A-Za-z][A-Za-z0-9_]*)?"
)
_PLAIN = re.compile(r"[0-9]*\.?[0-9]+")
_GROUPED = re.compile(r"[0-9]{1,3}(?P<sep>[,_\u00a0\u2009\u202f])[0-9]{3}(?:(?P=sep)[0-9]{3})*(?:\.[0-9]+)?")
_SEPARATORS = re.compile(r"[,_\u00a0\u2009\u202f]")


def find_numbers(text: str) -> list[Decimal]:
    """Every number in a text, in its order. Linear in the text's length."""
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda run: "^" + run.group().translate(_SUPERSCRIPTS), text)
    text = text.translate(_SIGNS).replace("{,}", ",").replace("\\,", ",")
    return [number for match in _NUMBER.finditer(text) for number in _values(match)]


def exact(value: float) -> Decimal:
    """A number of a suite as it was written: 1628.89 is 1628.89, not the nearest binary fraction."""
    return Decimal(repr(value))


def is_close(seen: Decimal, wanted: float, tolerance: float, rel_tolerance: float) -> bool:
    """Whether `seen` is at most the larger of both tolerances away; `rel_tolerance` is a share of `wanted`."""
    target = exact(wanted)
    room = max(exact(tolerance), _EXACT.multiply(exact(rel_tolerance), _EXACT.abs(target)))
    return _EXACT.abs(_EXACT.subtract(seen, target)) <= room


def _values(match: re.Match[str]) -> Iterator[Decimal]:
    glued = (match["glued"] or "").lower()
    if glued in _NOT_A_UNIT or any(c.isdigit() for c in glued) or len(match["plain"]) > MAX_DIGITS:
        return
    plain = list(_plain_values(match["plain"]))
    if len(plain) != 1:
        yield from plain
        return
    value = _with_exponents(plain[0], match)
    if match["sign"]:
        value = _EXACT.minus(value)
    if value.is_finite() and abs(value.adjusted()) <= MAX_DIGITS:
        yield value


def _plain_values(token: str) -> Iterator[Decimal]:
    """A run of digits and separators: one number, several (1,2,3), or none that English would write."""
    if _PLAIN.fullmatch(token):
        yield Decimal(token)
    elif _GROUPED.fullmatch(token):
        yield Decimal(_SEPARATORS.sub("", token))
    elif "." not in token:
        yield from (Decimal(part) for part in _SEPARATORS.split(token) if part)


def _with_exponents(value: Decimal, match: re.Match[str]) -> Decimal:
    if match["power"]:
        value = _EXACT.power(value, int(match["power"]))
    shift = sum(_SCALES[word] for word in re.findall("[a-z]+", match["scale"]))
    shift += int(match["e"] or "0") + int(match["ten"] or "0")
    return _EXACT.scaleb(value, shift)
