"""The suites that come along: each loads, stays on this machine, and demands something of every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.tools.registry import toolset
from evals.assert_base import AssertSpec
from evals.asserts import AllOf, AnyOf, passes_on_nothing
from evals.cases import Case, load_suite
from evals.run_asserts import ToolCalled, ToolNotCalled, ToolResultIs

SUITES = sorted((Path(__file__).parent.parent / "suites").glob("*.yaml"))
SETTING = "core"  # the toolset where a case names none


@pytest.fixture(params=SUITES, ids=lambda path: path.stem)
def cases(request: pytest.FixtureRequest) -> Sequence[Case]:
    return load_suite(request.param).cases


def test_there_is_one_for_every_way_of_driving() -> None:
    assert {path.stem for path in SUITES} >= {"core", "dispatch", "workspace", "assistant"}


def test_nothing_leaves_the_machine_or_moves_with_its_clock(cases: Sequence[Case]) -> None:
    for case in cases:
        assert case.corpus is not None or "web_search" not in offered(case), case.id
        wants_clock = any("clock" in wanted(spec) for spec in flat(case.asserts))
        assert case.now is not None or not wants_clock, case.id


def test_a_run_that_did_nothing_passes_no_case(cases: Sequence[Case]) -> None:
    for case in cases:
        assert not passes_on_nothing(case.asserts), case.id


def test_what_may_not_be_called_must_be_called_in_a_twin(cases: Sequence[Case]) -> None:
    for case in cases:
        for spec in case.asserts:
            if not isinstance(spec, ToolNotCalled) or spec.args:
                continue
            forbidden = set(spec.value)
            assert len(forbidden) == 1 or forbidden == offered(case), f"{case.id}: forbid one tool, or all that it has"
            twins = [other for other in cases if other is not case and set(other.tags) & set(case.tags)]
            demanded = {tool for twin in twins for spec in flat(twin.asserts) for tool in wanted(spec)}
            assert forbidden & demanded, f"{case.id}: no case with one of its tags {case.tags} wants {forbidden}"


def offered(case: Case) -> set[str]:
    """The tools that a run of the case has."""
    return set(case.tools or (tool.name for tool in toolset(case.toolset or SETTING)))


def flat(asserts: Sequence[AssertSpec]) -> Iterator[AssertSpec]:
    """All asserts, also those inside others."""
    for spec in asserts:
        yield spec
        if isinstance(spec, AnyOf | AllOf):
            yield from flat(spec.value)


def wanted(spec: AssertSpec) -> list[str]:
    """The tools that an assert wants called."""
    if isinstance(spec, ToolCalled):
        return list(spec.value)
    return list(spec.tool) if isinstance(spec, ToolResultIs) else []
