"""The benchmarks' own judgement. What they measure is measured there, not here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.prompts.budget_line import BudgetLeft, budget_line
from agent.state import Message
from benchmarks.overhead import MAX_CPU_MS, MAX_GROWTH_KIB, Cost, Measured, measure, report
from benchmarks.prefix_cache import Case, Turn, case_line, rebuilt_head, verdict

LINE = budget_line(BudgetLeft(9, 10, 150_000, 200_000))
SEEN = Measured(1000, Cost(1.0, 2.0), 40_000, 40_100, 5_000, Cost(0.1, 0.5), Cost(0.1, 0.1))
GOOD = Turn(previous_prompt=1000, cached=980, prompt_seconds=0.1, rebuilt_seconds=1.0)


def test_the_budget_line_moves_from_the_tail_to_the_head() -> None:
    prompt = [Message(role="system", content="Rules."), Message(role="user", content=f"Task: x\n{LINE}")]
    head, tail = rebuilt_head(prompt)
    assert head.content == f"{LINE}\nRules."
    assert tail.content == "Task: x"


def test_a_prompt_without_a_budget_line_cannot_be_rebuilt() -> None:
    with pytest.raises(ValueError, match="budget line"):
        rebuilt_head([Message(role="system", content="Rules."), Message(role="user", content="Task: x")])


@pytest.mark.parametrize(
    ("turn", "met"),
    [
        (GOOD, True),
        (replace(GOOD, cached=949), False),
        (replace(GOOD, prompt_seconds=0.6), False),
    ],
)
def test_a_cache_that_loses_the_prompt_or_saves_no_time_fails(turn: Turn, met: bool) -> None:
    case = Case("case", 2, (turn,))
    assert verdict([case])[1] is met
    assert "case" in case_line(case)


def test_no_second_turn_proves_nothing() -> None:
    text, met = verdict([Case("case", 1, ())])
    assert not met
    assert "no run" in text


@pytest.mark.parametrize(
    ("seen", "met"),
    [
        (SEEN, True),
        (replace(SEEN, run=Cost(MAX_CPU_MS, 2.0)), False),
        (replace(SEEN, rss_end=SEEN.rss_warm + MAX_GROWTH_KIB + 1), False),
    ],
)
def test_a_run_that_costs_too_much_fails(seen: Measured, met: bool) -> None:
    text, all_met = report(seen)
    assert all_met is met
    assert ("FAIL" in text) is not met


def test_the_overhead_is_measured_on_runs_that_pass(tmp_path_factory: pytest.TempPathFactory) -> None:
    seen = measure(3, tmp_path_factory.mktemp("overhead"))
    assert seen.runs == 3
    assert seen.trace_bytes > 1000
