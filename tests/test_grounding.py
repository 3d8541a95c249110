"""Numbers of an answer that nothing says are found; honest rounding and other ways of writing are not."""

from __future__ import annotations

import time

import pytest

from agent.guards.grounding import MAX_SHOWN, unfounded_numbers


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        ("It is 42.", "42"),
        ("It is 143,808.", "143808"),
        ("About 4.58 metres", "4.58257569495584"),
        ("Some 1.2 million people", "population: 1,234,567"),
        ("Around 75,000", "75025"),
        ("Roughly 100", "98"),
        ("It is 3 below zero.", "-3"),
        ("It was 5 January 2026.", "2026-01-05T09:30:00+00:00"),
        ("Build 25 of the 3rd", "F25 on 3rd"),
        ("1. first\n2. second\n- 3) third", "first, second, third"),
        ("There is none.", ""),
        ("It is 1.5e19.", "15000000000000000000"),
    ],
)
def test_what_a_source_says_is_founded(answer: str, source: str) -> None:
    assert unfounded_numbers(answer, [source]) == []


@pytest.mark.parametrize(
    ("answer", "source", "found"),
    [
        ("It is 43.", "42", ["43"]),
        ("It is 4.59.", "4.58257569495584", ["4.59"]),
        ("Some 1.3 million people", "1,234,567", ["1300000"]),
        ("It is 1.50.", "1.46", ["1.50"]),
        ("Roughly 100", "120", ["100"]),
        ("It is 12.", "10", ["12"]),
        ("7, again 7, and 8", "", ["7", "8"]),
        ("1. It is 9", "", ["9"]),
        ("0.5", "", ["0.5"]),
        ("1e300", "", ["1.000000e+300"]),
    ],
)
def test_what_none_says_is_found_once(answer: str, source: str, found: list[str]) -> None:
    assert unfounded_numbers(answer, [source]) == found


def test_any_source_will_do() -> None:
    assert unfounded_numbers("6 times 7 is 42", ["What is 6 times 7?", "42"]) == []


def test_only_the_first_are_shown() -> None:
    assert len(unfounded_numbers(" ".join(str(number) for number in range(100, 200)), [])) == MAX_SHOWN


@pytest.mark.parametrize("piece", ["9", "1 ", "1,", "9." * 5, "1e9 ", "1. ", "\n1. ", "1a"])
def test_long_texts_take_no_time(piece: str) -> None:
    text = piece * (500_000 // len(piece))
    started = time.monotonic()
    unfounded_numbers(text, [text, text[1:]])
    assert time.monotonic() - started < 2
