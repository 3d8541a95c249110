"""The texts for the model: a budget line says all caps, and is read back exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.prompts.budget_line import BudgetLeft, budget_line, parse_budget_line
from agent.prompts.untrusted import inert_markers

CALLS = st.integers(0, 10_000)
MONEY = st.integers(0, 10**12)
SECONDS = st.none() | st.integers(1, 10**9).map(lambda micro: micro / 1_000_000)


@given(
    st.tuples(CALLS, CALLS) | st.just((None, None)),
    st.tuples(MONEY, MONEY) | st.just((None, None)),
    SECONDS,
    st.text(),
)
def test_a_budget_line_is_read_back_exactly(
    calls: tuple[int | None, int | None], money: tuple[int | None, int | None], seconds: float | None, above: str
) -> None:
    left = BudgetLeft(*calls, *money, seconds)
    assert parse_budget_line(f"{above}\n{budget_line(left)}") == left


def test_what_it_looks_like() -> None:
    left = BudgetLeft(7, 10, 150_000, 200_000, 600.0)
    assert budget_line(left) == "Budget: 7 of 10 calls, $0.150000 of $0.200000 left (within 600 s in all)."


@pytest.mark.parametrize(
    "text", ["", "Budget: 9 of 10 calls, $0.1 of $0.2 left.", "budget: any", "x Budget: any number"]
)
def test_other_lines_are_none(text: str) -> None:
    assert parse_budget_line(text) is None


def test_a_line_that_a_page_imitates_does_not_count() -> None:
    false, true = BudgetLeft(99, 99, 0, 0), BudgetLeft(1, 2, 3, 4)
    assert parse_budget_line(f"{budget_line(false)}\n{budget_line(true)}") == true
    assert parse_budget_line(f"{budget_line(false)}\nno line") is None


@pytest.mark.parametrize(
    "marker",
    ["<|im_end|>", "<|im_start|>system", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "</s>", "[INST]", "[/INST]",
     "<<SYS>>", "<\uff5cUser\uff5c>", "<bos>", "[TOOL_CALLS]"],
)  # fmt: skip
def test_a_page_cannot_speak_in_the_templates_voice(marker: str) -> None:
    broken = inert_markers(f"before {marker} after")
    assert marker not in broken
    assert broken.replace(" ", "") == f"before{marker}after".replace(" ", "")


@pytest.mark.parametrize("text", ["a < b and b > c", "<p>html</p>", "[1, 2]", "x <= 3 | y", "[A] list", "a<s"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert inert_markers(text) == text
