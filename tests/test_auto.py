"""auto: what the server says is asked first, then the first call; the choice and its reason stand in the trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agent.budget import Limits
from agent.llm.backends.scripted import ScriptedReply
from agent.loop import run_task
from agent.state import AgentState
from evals.verify import verify
from tests.support_native import (
    LOST,
    REFUSES_TOOLS,
    Said,
    ToolServer,
    calls,
    in_text,
    math,
    prompts,
    roles_are_in_order,
)
from tests.support_runs import NoticeReporter, new_run

ROUTE = json.dumps({"tool": "calculate_math", "enough": True})
EXTRACT = json.dumps({"expression": "6*7"})
CASCADE = (ROUTE, EXTRACT, "It is 42.")
SUM = "Calculate 6 times 7."  # its words name calculate_math
TALK = "Good morning!"  # and these none


def played(server: ToolServer, **more: Any) -> AgentState:
    """A finished run whose trace keeps every promise, and on whose terminal the choice stands once."""
    heard = NoticeReporter()
    state = run_task(new_run(server, strategy_name="auto", evidence=False, reporter=heard, **more))
    assert verify(state) == []
    assert all(roles_are_in_order(prompt) for prompt in prompts(state))
    choices = [notice for notice in heard.notices if notice.startswith("auto: ")]
    assert choices == ([f"auto: {state.chosen.strategy}: {state.chosen.reason}"] if state.chosen else [])
    return state


def run(replies: Sequence[Said], *, tools: bool | None, **more: Any) -> AgentState:
    return played(ToolServer(replies, tools=tools), **{"task": SUM} | more)


def chosen(state: AgentState) -> tuple[str, str]:
    assert state.chosen is not None
    return state.chosen.strategy, state.chosen.reason


def test_a_server_that_says_yes_is_driven_natively() -> None:
    state = run([math("6*7"), "It is 42."], tools=True)
    assert chosen(state) == ("native", "the server says that this model can call tools")
    assert (state.status, state.answer, len(state.calls)) == ("completed", "It is 42.", 2)


def test_a_server_that_says_yes_needs_no_call_to_be_believed() -> None:
    state = run(["It is 42."], tools=True)
    assert chosen(state)[0] == "native"
    assert (state.status, state.answer, len(state.calls)) == ("completed", "It is 42.", 1)


def test_a_server_that_says_no_is_sent_no_tools() -> None:
    server = ToolServer(CASCADE, tools=False)
    state = played(server, task=SUM)
    assert chosen(state) == ("pipeline", "the server says that this model cannot call tools")
    assert (state.status, state.answer, len(state.calls)) == ("completed", "It is 42.", 3)
    assert not any(request.tools for request in server.requests)


def test_an_unknown_server_is_probed_by_the_first_call() -> None:
    state = run([math("6*7"), "It is 42."], tools=None)
    assert chosen(state) == ("native", "the probe was answered with a tool call")
    assert (state.status, len(state.calls)) == ("completed", 2)


def test_a_call_in_the_text_and_a_broken_one_are_answers_to_the_probe() -> None:
    state = run([in_text("calculate_math", expression="6*7"), "It is 42."], tools=None)
    assert chosen(state)[0] == "native"
    broken = run([calls(("calculate_math", {})), math("6*7"), "It is 42."], tools=None)
    assert chosen(broken)[0] == "native"
    assert (broken.status, broken.tool_faults) == ("completed", {"bad_arguments": 1})


@pytest.mark.parametrize("tools", [None, True])
def test_a_server_that_refuses_the_tools_was_asked_and_paid_and_the_run_goes_on(tools: bool | None) -> None:
    server = ToolServer([REFUSES_TOOLS, *CASCADE], tools=tools)
    state = played(server, task=SUM)
    assert chosen(state) == ("pipeline", "the server refused the tools")
    assert (state.status, state.answer, state.error) == ("completed", "It is 42.", None)
    assert [request.tools is None for request in server.requests] == [False, True, True, True]
    refused, entry = state.calls[0], state.ledger[0]
    assert refused.error is not None
    assert refused.error.error_type == "tools_unsupported"
    assert (entry.settled_as, entry.settled_microusd) == ("unknown", entry.reserved_microusd)
    assert state.steps[0].calls == [0, 1, 2]


@pytest.mark.parametrize("tools", [None, True])
def test_what_a_refused_call_is_charged_is_not_taken_for_the_price_of_a_call(tools: bool | None) -> None:
    state = run([REFUSES_TOOLS, *CASCADE], tools=tools)
    charged = state.ledger[0].settled_microusd
    assert (200_000 - charged) // charged <= 2, "at this price the budget would not pay for the cascade"
    assert [call.phase for call in state.calls] == ["turn", "route", "extract", "answer"]
    assert (state.status, state.answer) == ("completed", "It is 42.")
    assert [event.guard for step in state.steps for event in step.guards] == []


def test_tools_that_the_server_refuses_later_are_done_without_from_then_on() -> None:
    heard = NoticeReporter()
    server = ToolServer([math("6*7"), REFUSES_TOOLS, json.dumps({"tool": "none", "enough": True}), "It is 42."])
    state = run_task(new_run(server, strategy_name="auto", evidence=False, reporter=heard, task=SUM))
    assert verify(state) == []
    assert (state.status, state.answer, state.error) == ("completed", "It is 42.", None)
    assert chosen(state) == ("pipeline", "the server refused the tools, which it took before")
    assert [call.phase for call in state.calls] == ["turn", "turn", "route", "answer"]
    assert [call.name for step in state.steps for call in step.actions] == ["calculate_math"]
    assert "42" in server.requests[-1].messages[-1].content, "what native found is told"
    assert [notice.split(":")[1].strip() for notice in heard.notices if notice.startswith("auto: ")] == [
        "native",
        "pipeline",
    ]
    assert not any("--strategy" in notice for notice in heard.notices)


def test_no_call_in_the_probe_though_the_words_name_a_tool_leads_to_pipeline() -> None:
    state = run(["It must be about 40.", *CASCADE], tools=None)
    assert chosen(state) == (
        "pipeline",
        "no tool was called in the probe, and the words of the task name calculate_math",
    )
    assert (state.status, state.answer, len(state.calls)) == ("completed", "It is 42.", 4)


def test_a_call_that_the_server_lost_in_the_probe_is_counted() -> None:
    state = run([LOST, *CASCADE], tools=None)
    assert chosen(state)[0] == "pipeline"
    assert (state.status, state.tool_faults) == ("completed", {"lost_by_server": 1})


def test_where_the_words_name_no_tool_the_answer_of_the_probe_stands() -> None:
    state = run(["Good morning to you."], tools=None, task=TALK)
    assert chosen(state) == ("native", "no tool was called in the probe, and the words of the task name none")
    assert (state.status, state.answer, len(state.calls)) == ("completed", "Good morning to you.", 1)


def test_the_choice_holds_for_the_turns_that_follow() -> None:
    later = [json.dumps({"tool": "calculate_math", "enough": True}), json.dumps({"expression": "42*8"}), "It is 336."]
    state = run([REFUSES_TOOLS, *CASCADE, *later], tools=None, follow_ups=["Now calculate that times 8."])
    assert (state.status, state.answer) == ("completed", "It is 336.")
    assert chosen(state)[0] == "pipeline"
    talk = run(["Good morning.", "It is 42."], tools=None, task=TALK, follow_ups=[SUM])
    assert chosen(talk)[0] == "native"
    assert talk.answer == "It is 42."


@pytest.mark.parametrize("tools", [True, False, None])
@pytest.mark.parametrize("max_calls", [1, 2, 3])
def test_a_small_budget_of_calls_is_kept(max_calls: int, tools: bool | None) -> None:
    state = run([math("6*7"), "It is 42."], tools=tools, limits=Limits(max_calls, 200_000))
    assert state.status in ("completed", "budget_exhausted")
    assert len(state.calls) <= max_calls
    assert state.chosen is not None
    refused = run([REFUSES_TOOLS, *CASCADE], tools=None, limits=Limits(max_calls, 200_000))
    assert len(refused.calls) <= max_calls


def test_one_call_takes_no_tools_and_probes_nothing() -> None:
    server = ToolServer(["It is 42."], tools=None)
    state = played(server, task=SUM, limits=Limits(1, 200_000))
    assert chosen(state) == ("native", "only an answer can be paid for, and it takes no tools")
    assert server.requests[0].tools is None


@pytest.mark.parametrize("microusd", [1, 20_000, 40_000, 60_000, 90_000])
@pytest.mark.parametrize("tools", [True, False, None])
def test_a_small_purse_is_kept(microusd: int, tools: bool | None) -> None:
    state = run([REFUSES_TOOLS if tools is None else ROUTE, *CASCADE], tools=tools, limits=Limits(10, microusd))
    assert state.cost_microusd <= microusd
    assert state.status in ("completed", "budget_exhausted")


@pytest.mark.parametrize("tools", [True, False, None])
@pytest.mark.parametrize("reply", [LOST, "", "x" * 3000, ScriptedReply(thinking="Hm."), "{" * 500, "[TOOL_CALLS]{"])
def test_nonsense_for_ever_ends_within_ten_calls_with_the_choice_told(reply: Said, tools: bool | None) -> None:
    for task in (SUM, TALK):
        state = run([reply], tools=tools, task=task, limits=Limits(10, None))
        assert state.status in ("completed", "loop_detected", "budget_exhausted")
        assert len(state.calls) <= 10
        assert state.chosen is not None


def test_a_server_that_fails_makes_the_run_invalid_and_is_no_reason_to_choose() -> None:
    state = run([ScriptedReply(status=500, body='{"error": "out of memory"}')], tools=None)
    assert (state.status, state.chosen) == ("error", None)
