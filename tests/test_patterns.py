"""A suite's pattern ends soon on any text, or is refused when the suite is read."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.patterns import MAX_TEXT, bounded_pattern, search


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(?:a|a)*b",
        "a*a*b",
        "(a?){20}b",
        "a?" * 20 + "b",
        ".*.*x",
        "(?:a{0,90}){9}",
        "(a",
        r"(a)\1",
        "(?x)a",
        "[",
    ],
)
def test_a_pattern_that_may_hang_or_does_not_compile_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"backtrack|regular expression|leave out"):
        bounded_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["a*b", "a*+b", "a{0,40}a{0,40}b", r"\d+\.\d{1,6}", "[]a]+x", "(?<=(a))b", "a{,}b{}", "(?i:A)+$", "a{9000}b"],
)
@pytest.mark.timeout(20)  # seconds; the refused ones never end
def test_an_admitted_pattern_ends_soon_on_the_worst_text(pattern: str) -> None:
    assert search(bounded_pattern(pattern), "a" * MAX_TEXT, case_sensitive=True) is (pattern == "(?i:A)+$")


@given(st.text(alphabet="ab()[]{}|*+?.,\\^$0123456789:=!<>P", max_size=25))
def test_judging_a_pattern_never_raises_anything_else(pattern: str) -> None:
    with contextlib.suppress(ValueError):
        assert bounded_pattern(pattern) == pattern
