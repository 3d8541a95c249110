"""native: the server's own tool calls, one decision a call; every kind of ending leaves a valid trace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from agent.budget import Limits
from agent.llm.backends.base import Backend
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.backends.scripted import ScriptedReply
from agent.loop import run_task
from agent.prompts.native import NO_MORE_TOOLS
from agent.reporter import SilentReporter
from agent.state import AgentState
from agent.strategies.native import FALLBACK, MAX_ROUNDS
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
from tests.support_runs import new_run
from tests.support_wire import Seen, http_reply, serving


def played(server: Backend, *, evidence: bool = False, **more: Any) -> AgentState:
    """A finished run whose trace keeps every promise, its roles in an order that strict templates take."""
    state = run_task(new_run(server, strategy_name="native", evidence=evidence, **more))
    assert verify(state) == []
    assert all(roles_are_in_order(prompt) for prompt in prompts(state))
    return state


def run(replies: Sequence[Said], *, tools: bool | None = True, **more: Any) -> AgentState:
    return played(ToolServer(replies, tools=tools), **more)


# -- rounds -----------------------------------------------------------------------------------------------------------


def test_a_call_its_result_and_the_answer() -> None:
    server = ToolServer([math("6*7", content="I will calculate."), "It is 42."])
    state = played(server)
    assert (state.status, state.answer, state.tool_faults) == ("completed", "It is 42.", {})
    assert state.steps[0].thought == "I will calculate."
    assistant, result = prompts(state)[1][-2:]
    assert assistant.content == "I will calculate."
    assert assistant.tool_calls == state.steps[0].actions
    assert (result.role, result.tool_name, result.tool_call_id) == ("tool", "calculate_math", "call_0")
    assert result.content.startswith("42\nBudget: 9 of 10 calls")
    assert all(request.stream for request in server.requests)


def test_what_is_said_beside_a_call_is_a_thought_and_inline_thinking_is_none() -> None:
    state = run([math("6*7", content="<think>Six sevens.</think>Let me see."), "42."])
    assert (state.steps[0].thinking, state.steps[0].thought) == ("Six sevens.", "Let me see.")


def test_the_tools_go_with_every_call_and_are_the_same_object() -> None:
    server = ToolServer([math("6*7"), math("1+1"), "It is 42."])
    played(server)
    first = server.requests[0].tools
    assert first is not None
    assert all(request.tools is first for request in server.requests)


def test_all_calls_of_a_reply_are_made_and_none_waits_for_another() -> None:
    state = run([calls(("calculate_math", {"expression": "1/0"}), ("calculate_math", {"expression": "2+2"})), "4."])
    assert [result.success for result in state.steps[0].results] == [False, True]
    first, second = prompts(state)[1][-2:]
    assert first.content.startswith("FAILED (")
    assert "Budget:" not in first.content
    assert second.content.startswith("4\nBudget:")
    assert [first.tool_call_id, second.tool_call_id] == ["call_0", "call_1"]


def test_after_five_rounds_an_answer_is_forced_and_no_tools_are_sent() -> None:
    server = ToolServer([*(math(f"{n}+1") for n in range(MAX_ROUNDS)), "Enough."])
    state = played(server)
    assert (state.status, state.answer) == ("completed", "Enough.")
    assert [request.tools is None for request in server.requests] == [False] * MAX_ROUNDS + [True]
    assert state.ledger[-1].purpose == "answer"
    assert NO_MORE_TOOLS in prompts(state)[-1][-1].content


def test_a_call_in_the_forced_answer_is_not_made() -> None:
    state = run([math(f"{n}+1") for n in range(MAX_ROUNDS + 1)])
    made = [action for step in state.steps for action in step.actions]
    assert len(made) == MAX_ROUNDS
    assert "none can be made any more" in state.steps[MAX_ROUNDS].faults[0]
    assert (state.status, state.answer_is_partial) == ("loop_detected", True)


def test_the_rounds_are_counted_anew_in_each_turn() -> None:
    one_turn: list[Said] = [*(math(f"{n}+1") for n in range(3)), "Done."]
    server = ToolServer([*one_turn, *(math(f"{n}+2") for n in range(3)), "Done again."])
    state = played(server, follow_ups=["And again?"])
    assert (state.status, state.answer) == ("completed", "Done again.")
    assert all(request.tools for request in server.requests)


def test_a_further_turn_goes_on_in_the_same_conversation() -> None:
    state = run([math("6*7"), "42.", math("42*8"), "336."], follow_ups=["Now multiply that by 8."])
    assert [step.answer for step in state.steps] == [None, "42.", None, "336."]
    last = prompts(state)[-1]
    assert [message.role for message in last] == ["system", *["user", "assistant", "tool", "assistant"] * 2][:-1]
    assert last[5].content.startswith("Now multiply that by 8.\nBudget:")
    for earlier, later in zip(prompts(state), prompts(state)[1:], strict=False):
        assert later[: len(earlier)] == earlier


# -- what a model does wrong ------------------------------------------------------------------------------------------


def test_a_call_in_the_text_is_made_counted_and_put_back_as_a_call() -> None:
    state = run([in_text("calculate_math", expression="6*7"), "42."])
    assert state.steps[0].results[0].data == "42"
    assert state.tool_faults == {"in_text": 1}
    assistant, result = prompts(state)[1][-2:]
    assert (assistant.content, assistant.tool_calls) == ("", state.steps[0].actions)
    assert result.role == "tool"


def test_the_calls_of_a_reply_that_cannot_be_made_are_told_behind_the_results() -> None:
    good, wrong = ("calculate_math", {"expression": "6*7"}), ("calculate_maths", {"expression": "1"})
    state = run([calls(good, wrong, ("web_search", {})), "42."])
    assert len(state.steps[0].actions) == 1
    assert state.tool_faults == {"bad_arguments": 1, "wrong_name": 1}
    assistant, result = prompts(state)[1][-2:]
    assert assistant.tool_calls == state.steps[0].actions
    value, unknown, missing, budget = result.content.split("\n")
    assert value == "42"
    assert unknown.startswith("A call was not made: unknown_tool: ")
    assert missing.startswith("A call was not made: missing_arguments: ")
    assert budget.startswith("Budget: ")


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (LOST, "lost_by_server"),
        (calls(("nothing_like_it", {})), "wrong_name"),
        (calls(("calculate_math", {})), "bad_arguments"),
        ('<tool_call>{"name": "calculate_math", "arguments": {"expression": "6', "bad_arguments"),
        (ScriptedReply(thinking="Hm."), "thinking_ate_budget"),
        (ScriptedReply("", body='{"error": "error parsing tool call: raw=x"}', status=500), "bad_arguments"),
        ("x" * 3000, "truncated"),
        (ScriptedReply("", completion_tokens=1), None),
    ],
)
def test_a_reply_of_no_use_is_told_to_the_model_and_for_ever_ends_as_a_loop(reply: Said, fault: str | None) -> None:
    state = run([reply], limits=Limits(10, None))
    assert state.status == "loop_detected"
    assert len(state.calls) < 10
    assert state.tool_faults == ({fault: len(state.steps)} if fault else {})
    told = prompts(state)[1][-1]
    assert told.role == "user"
    assert told.content.startswith("Your reply could not be used: ")
    mended = run([reply, math("6*7"), "42."])
    assert (mended.status, mended.answer) == ("completed", "42.")


def test_what_guards_say_reaches_the_model() -> None:
    state = run([math("6*7"), math("6*7"), "42."])
    events = state.steps[1].guards
    assert [event.guard for event in events] == ["identical_call", "replan"]
    last = prompts(state)[-1][-1]
    assert last.role == "tool"
    assert all(last.content.count(event.message) == 1 for event in events)


def test_a_rejected_answer_is_followed_by_the_reason() -> None:
    state = run(["It is 42.", math("6*7"), "42."], evidence=True)
    rejected = prompts(state)[1][-2:]
    assert [message.role for message in rejected] == ["assistant", "user"]
    assert state.steps[0].guards[0].message in rejected[1].content
    assert state.status == "completed"


# -- a model that cannot call tools -----------------------------------------------------------------------------------


def test_where_the_server_has_no_tools_they_stand_in_the_prompt_and_the_run_says_so() -> None:
    server = ToolServer([in_text("calculate_math", expression="6*7"), "42."], tools=False)
    state = played(server)
    assert (state.status, state.answer, state.tool_faults) == ("completed", "42.", {})
    assert not any(request.tools for request in server.requests)
    system, _, assistant, result = prompts(state)[1]
    assert '"name": "calculate_math"' in system.content
    assert assistant.content == in_text("calculate_math", expression="6*7")
    assert (result.role, result.content.split("\n")[0]) == ("user", "Result of calculate_math: 42")
    events = [event for step in state.steps for event in step.guards]
    assert [(event.guard, event.tier) for event in events] == [(FALLBACK, 0)]
    assert not any(events[0].message in message.content for prompt in prompts(state) for message in prompt)


def test_the_fallback_is_told_though_the_first_reply_is_of_no_use() -> None:
    state = run([ScriptedReply(""), "42."], tools=False)
    assert [event.guard for event in state.steps[0].guards] == [FALLBACK]
    assert state.status == "completed"


def test_results_cannot_speak_in_the_voice_of_the_template() -> None:
    state = run([calls(("execute_code", {"code": "print('<|im_end|>')"})), "Done."])
    assert "<|im_end|>" in state.steps[0].results[0].data
    assert "<|im_end|>" not in prompts(state)[1][-1].content


def test_a_server_that_refuses_the_tools_makes_the_run_invalid_and_says_what_to_do() -> None:
    state = run([REFUSES_TOOLS], tools=None)
    assert state.status == "error"
    assert state.error is not None
    assert state.error.error_type == "tools_unsupported"
    assert "--strategy auto" in state.status_reason


# -- endings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_calls", [1, 2, 3])
@pytest.mark.parametrize("tools", [True, False])
def test_a_small_budget_of_calls_ends_in_an_answer(max_calls: int, tools: bool) -> None:
    made = [math(sum_) if tools else in_text("calculate_math", expression=sum_) for sum_ in ("6*7", "1+1")]
    state = run([*made[: max_calls - 1], "42."], tools=tools, limits=Limits(max_calls, 200_000))
    assert (state.status, state.answer, len(state.calls)) == ("completed", "42.", max_calls)
    assert state.ledger[-1].purpose == "answer"
    assert state.calls[-1].tools_hash is None


@pytest.mark.parametrize("microusd", [1, 20_000, 30_000, 40_000, 60_000, 90_000])
def test_a_small_purse_is_kept(microusd: int) -> None:
    state = run([math("6*7"), math("1+1"), "42."], limits=Limits(10, microusd))
    assert state.status in ("completed", "budget_exhausted")
    assert state.cost_microusd <= microusd


def test_a_last_call_that_is_a_call_again_ends_with_what_was_found() -> None:
    state = run([math("6*7"), math("1+1"), math("2+2")], limits=Limits(3, 200_000))
    assert (state.status, state.answer_is_partial) == ("budget_exhausted", True)
    assert state.answer is not None
    assert "42" in state.answer


def test_a_server_that_fails_makes_the_run_invalid() -> None:
    state = run([math("6*7"), ScriptedReply(status=500, body='{"error": "out of memory"}')])
    assert state.status == "error"
    assert state.error is not None
    assert state.error.fault == "server"


def test_small_talk_calls_nothing() -> None:
    state = run(["Hello."], tools=None, task="Hello!")
    assert (state.status, state.answer, len(state.calls)) == ("completed", "Hello.", 1)


# -- on the wire ------------------------------------------------------------------------------------------------------


class Heard(SilentReporter):
    def __init__(self) -> None:
        self.pieces: list[str] = []

    def text(self, piece: str) -> None:
        self.pieces.append(piece)


CALL = {"name": "calculate_math", "arguments": {"expression": "6*7"}}
LOOK_UPS = {
    "/api/version": {"version": "0.32.1"},
    "/api/tags": {"models": [{"name": "m:latest", "model": "m:latest", "digest": "d", "details": {}}]},
    "/api/show": {"capabilities": ["completion", "tools"], "details": {}, "model_info": {}},
    "/v1/models": {"object": "list", "data": [{"id": "m"}]},
}


def ollama(seen: Seen) -> Iterable[bytes]:
    """A model that calls a tool, and answers in pieces once it has the result."""
    if seen.path in LOOK_UPS:
        yield http_reply(json.dumps(LOOK_UPS[seen.path]))
        return
    if seen.json.get("_debug_render_only"):
        prompt = json.dumps(seen.json["messages"]) + json.dumps(seen.json["tools"])
        yield http_reply(json.dumps({"_debug_info": {"rendered_template": prompt}}))
        return
    has_result = seen.json["messages"][-1]["role"] == "tool"
    said: list[dict[str, Any]] = [{"content": "It "}, {"content": "is 42."}] if has_result else [{"content": ""}]
    if not has_result:
        said[0]["tool_calls"] = [{"id": "call_a", "function": {"index": 0, **CALL}}]
    lines = [{"message": {"role": "assistant", **piece}, "done": False} for piece in said]
    counts = {"prompt_eval_count": 300 + len(seen.body) // 4, "eval_count": 9}
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts}
    yield http_reply("\n".join(map(json.dumps, [*lines, last])), content_type="application/x-ndjson")


def v1(seen: Seen) -> Iterable[bytes]:
    """The same model behind /v1."""
    if seen.path in LOOK_UPS:
        yield http_reply(json.dumps(LOOK_UPS[seen.path]))
        return
    has_result = seen.json["messages"][-1]["role"] == "tool"
    function = {"name": CALL["name"], "arguments": json.dumps(CALL["arguments"])}
    called = {"tool_calls": [{"index": 0, "id": "call_a", "type": "function", "function": function}]}
    deltas: list[dict[str, Any]] = [{"content": "It "}, {"content": "is 42."}] if has_result else [called]
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop" if has_result else "tool_calls"}]})
    usage = {"prompt_tokens": 300 + len(seen.body) // 4, "completion_tokens": 9}
    chunks.append({"choices": [], "usage": usage})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    yield http_reply("".join([*lines, "data: [DONE]\n\n"]), content_type="text/event-stream")


def over_the_wire(backend: Backend) -> tuple[AgentState, list[str]]:
    """A run over a socket, and what was streamed to the person."""
    heard = Heard()
    run = new_run(backend, strategy_name="native", tools_named="core,fs,code", evidence=False, reporter=heard)
    state = run_task(run)
    assert verify(state) == []
    assert (state.status, state.answer, state.tool_faults) == ("completed", "It is 42.", {})
    return state, heard.pieces


def test_ollama_is_sent_its_roles_and_the_answer_is_streamed() -> None:
    with serving(ollama) as wire:
        state, pieces = over_the_wire(OllamaBackend(wire.url, "m"))
    assert [entry.bound_kind for entry in state.ledger] == ["rendered", "grown"]
    assert pieces == ["It ", "is 42."]
    chats = [seen.json for seen in wire.seen if seen.path == "/api/chat"]
    rendered, first, second = chats
    assert rendered["_debug_render_only"] is True, "the first prompt is bounded by what the server makes of it"
    assert first["tools"] == second["tools"] == rendered["tools"]
    assistant, result = second["messages"][-2:]
    assert assistant == {"role": "assistant", "content": "", "tool_calls": [{"id": "call_a", "function": CALL}]}
    assert {key: result[key] for key in ("role", "tool_name", "tool_call_id")} == {
        "role": "tool",
        "tool_name": "calculate_math",
        "tool_call_id": "call_a",
    }


def test_v1_is_sent_its_roles_and_the_answer_is_streamed() -> None:
    with serving(v1) as wire:
        _, pieces = over_the_wire(OpenAIBackend(wire.url, "m"))
    assert pieces == ["It ", "is 42."]
    second = [seen.json for seen in wire.seen if seen.path == "/v1/chat/completions"][1]
    assistant, result = second["messages"][-2:]
    (made,) = assistant["tool_calls"]
    assert (made["id"], json.loads(made["function"]["arguments"])) == ("call_a", CALL["arguments"])
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_a")
