"""What the suites are worth: no wrong model passes a case, and a right one does, whatever words it chooses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.cases import Case
from evals.run_asserts import ToolNotCalled
from tests.support_wrong import Played, Stage, Talk, claims, competent, echoes, meddles, right_talks, wrong_talks

STAGES = [
    Stage("core", "react"),
    Stage("assistant", "native"),
    Stage("workspace", "two_phase"),
    # native, so that a model is asked in every case; dispatch itself, for those that reach one.
    Stage("dispatch", "native", left_out=("max_calls",)),
    Stage("dispatch", "dispatch"),
]
HOST_ANSWERED = {
    *("product", "parentheses", "percentage", "square-root", "power", "thousands", "date-meant-as-a-sum"),
    *("range-meant-as-a-sum", "time", "time-in-tokyo", "today", "the-same-sum-asked", "greeting-with-a-sum"),
    *("multiply-that", "a-chain-of-sums"),
}

staged = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: f"{stage.suite}-{stage.strategy}")


def reached(stage: Stage, talks: Iterator[tuple[str, str, Talk]]) -> Iterator[tuple[str, str, Talk]]:
    """Those of the cases in which a model is asked."""
    return (talk for talk in talks if stage.strategy != "dispatch" or talk[0] not in HOST_ANSWERED)


def passed(runs: Iterator[Played]) -> list[tuple[str, str]]:
    """Whoever got through."""
    return [(run.case.id, run.idea) for run in runs if not run.failed]


@staged
def test_a_competent_model_passes_every_case(stage: Stage, tmp_path: Path) -> None:
    talks = ((case_id, "competent", talk) for case_id, talk in competent(stage.suite).items())
    runs = list(stage.play(tmp_path, talks))
    assert {run.case.id: run.failed for run in runs if run.failed} == {}
    asked_nothing = {run.case.id for run in runs if not run.state.calls}
    assert asked_nothing == (HOST_ANSWERED if stage.strategy == "dispatch" else set())


@staged
def test_a_model_that_echoes_the_question_fails_every_case(stage: Stage, tmp_path: Path) -> None:
    talks = ((case_id, "echo", echoes(talk)) for case_id, talk in competent(stage.suite).items())
    assert passed(stage.play(tmp_path, reached(stage, talks))) == []


@staged
def test_a_model_that_claims_success_fails_every_case(stage: Stage, tmp_path: Path) -> None:
    talks = ((case_id, "claim", claims(talk)) for case_id, talk in competent(stage.suite).items())
    assert passed(stage.play(tmp_path, reached(stage, talks))) == []


@staged
def test_a_plausible_wrong_answer_fails(stage: Stage, tmp_path: Path) -> None:
    assert passed(stage.play(tmp_path, reached(stage, wrong_talks(stage.suite)))) == []


@pytest.mark.parametrize("stage", STAGES[1:4], ids=lambda stage: f"{stage.suite}-{stage.strategy}")
def test_a_right_answer_in_other_words_passes(stage: Stage, tmp_path: Path) -> None:
    runs = stage.play(tmp_path, right_talks(stage.suite))
    assert [(run.case.id, run.idea, run.failed) for run in runs if run.failed] == []


@pytest.mark.parametrize("stage", STAGES[1:4], ids=lambda stage: f"{stage.suite}-{stage.strategy}")
def test_a_tool_that_may_not_be_called_fails_the_case(stage: Stage, tmp_path: Path) -> None:
    right = competent(stage.suite)
    talks = (
        (case.id, tool, meddles(right[case.id], tool, spec.turn))
        for case in stage.cases.cases
        for spec in forbidding(case)
        for tool in spec.value
    )
    runs = list(stage.play(tmp_path, talks))
    assert runs
    for run in runs:
        assert "tool_not_called" in {line.type for line in run.failed}, (run.case.id, run.idea)


def forbidding(case: Case) -> list[ToolNotCalled]:
    return [spec for spec in case.asserts if isinstance(spec, ToolNotCalled)]


def test_every_case_in_which_nothing_may_be_called_says_so() -> None:
    """And every other demands a call."""
    for stage in STAGES[:4]:
        right = competent(stage.suite)
        for case in stage.cases.cases:
            works = any(turn.actions for turn in right[case.id])
            assert works or forbidding(case), case.id
