"""A competent model behind a socket passes every case of a strategy's suite; and what the suites demand cannot be had
for less: a model that knows all answers and does not work fails, and one that calls tools for nothing fails too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.state import AgentState
from evals.cases import load_suite
from evals.replay import why_not
from evals.traces import load
from evals.verify import verify
from tests.support_cli import ROOT, Desk
from tests.support_competent import MODEL, competent
from tests.support_plans import Action, Plans, load_plans
from tests.support_wire import Seen


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def run_suite(
    desk: Desk, suite: str, strategy: str, plans: Plans, *, tools: bool
) -> tuple[list[AgentState], list[Seen]]:
    """The traces of `run_tests.py suites/SUITE.yaml --strategy STRATEGY`, and all that reached the server."""
    flags = ("--strategy", strategy, "--backend", "ollama", "--model", MODEL, "--jobs", "4")
    with competent(plans, tools=tools) as wire:
        outcome = desk.inside_suite(str(ROOT / "suites" / f"{suite}.yaml"), *flags, OLLAMA_HOST=wire.url)
    states = [load(path) for path in desk.traces()]
    assert outcome.code in (0, 1), outcome.err or outcome.out
    assert [state.case_id for state in states if outcome_of(state) == "invalid"] == []
    assert (outcome.code == 0) == all(outcome_of(state) == "pass" for state in states)
    return states, wire.seen


def outcome_of(state: AgentState) -> str:
    assert state.verdict is not None
    return state.verdict.outcome


def bodies(seen: list[Seen], path: str) -> list[dict[str, Any]]:
    return [request.json for request in seen if request.path == path and not request.json.get("_debug_render_only")]


# -- every case passes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suite", "strategy", "tools"),
    [
        ("core", "react", True),
        ("assistant", "native", True),
        ("assistant", "native", False),
        ("assistant", "pipeline", False),
        ("workspace", "two_phase", False),
        ("dispatch", "dispatch", False),
        ("assistant", "auto", True),
        ("assistant", "auto", False),
    ],
)
def test_a_competent_model_passes_every_case(desk: Desk, suite: str, strategy: str, *, tools: bool) -> None:
    states, _ = run_suite(desk, suite, strategy, load_plans(suite), tools=tools)
    cases = load_suite(ROOT / "suites" / f"{suite}.yaml").cases
    assert sorted(str(state.case_id) for state in states) == sorted(case.id for case in cases)
    for state in states:
        assert state.verdict is not None
        assert [line for line in state.verdict.asserts if not line.passed] == [], state.case_id
        assert verify(state) == []
        assert why_not(state) is None, "verified means replayed too"
        assert state.strategy == strategy
        assert state.calls_used <= 10


# -- in its own way ---------------------------------------------------------------------------------------------------


def test_native_leaves_the_calls_to_the_server(desk: Desk) -> None:
    states, seen = run_suite(desk, "assistant", "native", load_plans("assistant"), tools=True)
    chats = bodies(seen, "/api/chat")
    assert len(chats) == sum(len(state.calls) for state in states)
    assert all("format" not in chat and chat["stream"] for chat in chats)
    assert sum("tools" in chat for chat in chats) == len(chats), "no turn here takes five rounds"
    roles = Counter(message["role"] for chat in chats for message in chat["messages"])
    assert roles["tool"] > 0


def test_pipeline_asks_in_conversations_of_its_own_and_never_sends_tools(desk: Desk) -> None:
    states, seen = run_suite(desk, "assistant", "pipeline", load_plans("assistant"), tools=False)
    assert all("tools" not in chat for chat in bodies(seen, "/api/chat"))
    for state in states:
        phases = Counter(call.phase for call in state.calls)
        actions = sum(len(step.actions) for step in state.steps)
        assert phases["extract"] == actions, "each extraction gave its call at the first try"
        assert phases["answer"] == state.turn + 1
        assert phases["route"] == max(phases["route"], actions)


def test_two_phase_goes_on_from_its_thinking_without_the_template(desk: Desk) -> None:
    states, seen = run_suite(desk, "workspace", "two_phase", load_plans("workspace"), tools=False)
    thoughts, acts = bodies(seen, "/api/chat"), bodies(seen, "/api/generate")
    assert len(thoughts) == len(acts) == sum(len(state.steps) for state in states)
    assert all(chat["options"]["stop"] == ["</think>"] and chat["stream"] for chat in thoughts)
    assert all(act["raw"] and act["format"]["type"] == "array" for act in acts)
    assert all(act["prompt"].rstrip().endswith("</think>") for act in acts)


@pytest.mark.parametrize(("tools", "chosen"), [(True, "native"), (False, "pipeline")])
def test_auto_does_what_the_server_says_it_can(desk: Desk, *, tools: bool, chosen: str) -> None:
    states, _ = run_suite(desk, "assistant", "auto", load_plans("assistant"), tools=tools)
    assert {state.chosen.strategy for state in states if state.chosen} == {chosen}
    assert all(state.chosen and state.chosen.reason for state in states)


# -- what the suites are worth ----------------------------------------------------------------------------------------

# dispatch itself answers many a case without a model, whatever the model is worth.
SUITES = [("core", "react"), ("assistant", "native"), ("workspace", "two_phase"), ("dispatch", "native")]


@pytest.mark.parametrize(("suite", "strategy"), SUITES)
def test_right_answers_without_any_work_fail(desk: Desk, suite: str, strategy: str) -> None:
    plans = load_plans(suite)
    idle = Plans({name: tuple(replace(turn, actions=()) for turn in turns) for name, turns in plans.cases.items()})
    states, _ = run_suite(desk, suite, strategy, idle, tools=True)
    for state in states:
        works = any(turn.actions for turn in plans.cases[str(state.case_id)])
        assert outcome_of(state) == ("fail" if works else "pass"), state.case_id


@pytest.mark.parametrize(("suite", "strategy"), [("assistant", "native"), ("workspace", "two_phase")])
def test_a_tool_that_was_not_to_be_called_fails(desk: Desk, suite: str, strategy: str) -> None:
    needless = Action("write_file", {"path": "needless.txt", "content": "!"}, shows="characters to needless.txt")
    plans = {
        name: tuple(replace(turn, actions=(*turn.actions, (needless,))) for turn in turns)
        for name, turns in load_plans(suite).cases.items()
    }
    states, _ = run_suite(desk, suite, strategy, Plans(plans), tools=True)
    cases = {case.id: case for case in load_suite(ROOT / "suites" / f"{suite}.yaml").cases}
    for state in states:
        forbidden = any(spec.type == "tool_not_called" for spec in cases[str(state.case_id)].asserts)
        assert outcome_of(state) == ("fail" if forbidden else "pass"), state.case_id
