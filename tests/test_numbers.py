"""Numbers are read out of a text exactly, or not at all."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.guards.numbers import exact, find_numbers, is_close


def numbers(text: str) -> list[float]:
    return [float(number) for number in find_numbers(text)]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("75,025.", [75025]),
        ("It is **75025**!", [75025]),
        ("$1,628.89", [1628.89]),
        ("1628.89USD", [1628.89]),
        ("16288.9", [16288.9]),
        ("1.2e19 and 1E-3", [1.2e19, 0.001]),
        ("10^19, 10**19, 10\u00b9\u2079, 10^{19}", [1e19] * 4),
        ("7.5 x 10^18 = 7.5 \u00d7 10\u00b9\u2078 = 7.5*10**18", [7.5e18] * 3),
        ("7.5 \\times 10^{18}", [7.5e18]),
        ("7.5 quintillion, 2 million million", [7.5e18, 2e12]),
        ("7,500,000,000,000,000,000", [7.5e18]),
        ("-3, 5-3, \u22124, -$5, 2024-05-01", [-3, 5, 3, -4, -5, 2024, 5, 1]),
        ("75\u202f025 75_025", [75025, 75025]),
        ("1,2,3", [1, 2, 3]),
        (".5 or 2^10", [0.5, 1024]),
        ("F25, the 25th, 5k, 0x1F, 1.628,89, 1.2.3, v2", []),
        ("10^999 of them", []),
        ("9" * 500, []),
    ],
)
def test_numbers_are_read_as_english_writes_them(text: str, seen: list[float]) -> None:
    assert numbers(text) == seen


@given(st.integers(-(10**30), 10**30))
def test_an_integer_is_found_however_it_is_grouped(value: int) -> None:
    for text in (f"{value}", f"{value:,}", f"so {value:,}.", f"**{value:_}**"):
        assert find_numbers(text) == [Decimal(value)]


@given(st.decimals(-(10**12), 10**12, places=4), st.integers(-30, 30))
def test_a_decimal_is_found_with_its_power_of_ten(value: Decimal, power: int) -> None:
    for text in (f"{value:f}e{power}", f"{value:f} x 10^{power}", f"{value:f} \u00d7 10^{{{power}}}"):
        assert find_numbers(text) == [value.scaleb(power)]


@given(st.text(alphabet="0123456789.,-+eExX*^ \u00b9\u207b{}$()k", max_size=200))
def test_reading_numbers_never_raises(text: str) -> None:
    assert all(number.is_finite() for number in find_numbers(text))


@pytest.mark.timeout(20)  # seconds for a megabyte and a half; a quadratic reader needs hours
def test_reading_numbers_is_linear() -> None:
    for piece in ("1,", "1 ", "1.", "-", "1e", "10^", "1 x ", "1" * 50):
        assert find_numbers(piece * (200_000 // len(piece)) + " 42")[-1] == 42


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6))
def test_a_tolerance_is_exact_at_its_edge(cents: int, off: int) -> None:
    seen, wanted = Decimal(cents + off) / 100, cents / 100
    assert is_close(seen, wanted, off / 100, 0)
    assert not is_close(seen + Decimal("0.0001"), wanted, off / 100, 0)


def test_a_relative_tolerance_is_a_share_of_what_is_wanted() -> None:
    assert is_close(exact(105), 100, 0, 0.05)
    assert not is_close(exact(105.01), 100, 0, 0.05)
    assert is_close(exact(-95), -100, 0, 0.05)
