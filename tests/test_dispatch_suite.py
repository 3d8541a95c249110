"""suites/dispatch.yaml: forty cases, and a competent model passes every one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import Settings
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import Script, ScriptedBackend, ScriptedReply
from agent.reporter import SilentReporter
from agent.state import AgentState
from evals.cases import Case, load_suite
from evals.plan import Plan, plan_suite
from evals.runner import Runner
from evals.store import TraceStore
from evals.verify import verify

SUITE = load_suite(Path(__file__).parent.parent / "suites" / "dispatch.yaml")
COMPETENT: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "fixtures" / "competent" / "dispatch.yaml").read_text("utf-8")
)


def competent(case: Case) -> Script:
    """The model of a case's plan: each call is answered by its form, for the turn that its last message is about."""
    texts = [case.first_turn, *case.follow_ups]

    def script(request: ChatRequest, _number: int) -> ScriptedReply:
        said = request.messages[-1].content
        turn = COMPETENT[case.id][max(number for number, text in enumerate(texts) if text in said)]
        action = turn.get("actions", [{"tool": "none"}])[0]
        if request.schema is None:
            return ScriptedReply(turn["answer"])
        is_probe = "tool" in request.schema["properties"]
        return ScriptedReply(json.dumps({"tool": action["tool"]} if is_probe else action["args"]))

    return script


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AgentState]:
    """A run of every case with the competent model's replies, as a batch makes them."""

    def backend_for(plan: Plan) -> ScriptedBackend:
        assert plan.case is not None
        return ScriptedBackend(competent(plan.case))

    plans = plan_suite(Settings(_env_file=None), SUITE)
    with TraceStore(tmp_path_factory.mktemp("suite") / "traces") as store:
        runner = Runner(store=store, backend_for=backend_for)
        finished = list(runner.run_all(plans, lambda _plan: SilentReporter()))
    return {str(run.state.case_id): run.state for run in finished}


@pytest.mark.parametrize("case_id", [case.id for case in SUITE.cases])
def test_a_competent_model_passes(runs: dict[str, AgentState], case_id: str) -> None:
    state = runs[case_id]
    assert state.verdict is not None
    assert state.verdict.outcome == "pass", [line for line in state.verdict.asserts if not line.passed]
    assert verify(state) == []


def test_there_are_forty_hermetic_cases_each_with_a_plan() -> None:
    assert len(SUITE.cases) == 40
    assert set(COMPETENT) == {case.id for case in SUITE.cases}
    for case in SUITE.cases:
        assert (case.strategy, case.toolset) == ("dispatch", "core,fs")
        assert case.corpus is not None, "a search must never leave the machine"
        assert len(COMPETENT[case.id]) == 1 + len(case.follow_ups)
