"""two_phase: free thinking that is dropped afterwards, an array of actions that goes on from it, and a chronicle."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.budget import Limits
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import BYTES_PER_TOKEN, Script, ScriptedBackend, ScriptedReply
from agent.llm.bounds import message_bytes
from agent.llm.thinking import leading_thinking
from agent.prompts import notices
from agent.prompts import two_phase as prompts
from agent.prompts.budget_line import parse_budget_line
from agent.state import AgentState, Message, ModelInfo, ToolCall, ToolResult
from agent.strategies.action_array import read_actions
from evals.rebuilt import rebuild
from evals.verify import verify
from tests.support_runs import run_script

THOUGHT = "The product is not known yet, so I calculate it."


class Server(ScriptedBackend):
    """A scripted server that keeps what it was asked. It goes on from a reply that was begun, and counts, or cannot."""

    def __init__(
        self, script: Script | Sequence[ScriptedReply | str], *, continues: bool = True, counts: bool = False
    ) -> None:
        super().__init__(script)
        self.continues, self.counts = continues, counts
        self.seen: list[ChatRequest] = []

    def describe(self) -> ModelInfo:
        return super().describe().model_copy(update={"continues": self.continues})

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:
        size = sum(map(message_bytes, request.messages))
        return -(-size // BYTES_PER_TOKEN) if self.counts else None

    def send(self, request: ChatRequest, on_text: Any = None) -> Any:
        self.seen.append(request)
        return super().send(request, on_text)


def actions(*calls: tuple[str, dict[str, Any]]) -> str:
    """An array of actions as a model would write it."""
    return json.dumps([{"tool": name, "args": arguments} for name, arguments in calls])


def calculate(expression: str) -> tuple[str, dict[str, Any]]:
    return "calculate_math", {"expression": expression}


def finish(summary: str) -> tuple[str, dict[str, Any]]:
    return "finish", {"summary": summary}


def run(server: Server | Sequence[ScriptedReply | str], **more: Any) -> AgentState:
    """A finished run that the verifier has nothing against."""
    state = run_script(server if isinstance(server, Server) else Server(server), strategy_name="two_phase", **more)
    assert verify(state) == []
    return state


def prompts_of(state: AgentState) -> list[tuple[Message, ...]]:
    return [rebuilt.prompt for rebuilt in rebuild(state)]


def told(state: AgentState, call: int) -> str:
    """The last user message of a call's prompt."""
    return next(message.content for message in reversed(prompts_of(state)[call]) if message.role == "user")


# -- a step -----------------------------------------------------------------------------------------------------------


def test_think_then_act_then_finish() -> None:
    state = run([THOUGHT, actions(calculate("6*7")), "I have it.", actions(finish("42"))])
    assert (state.status, state.answer) == ("completed", "42")
    assert [call.phase for call in state.calls] == ["think", "act", "think", "act"]
    assert [step.calls for step in state.steps] == [[0, 1], [2, 3]]
    assert [step.thinking for step in state.steps] == [THOUGHT, "I have it."]
    assert state.steps[0].results[0].data == "42"


def test_thinking_is_streamed_and_stops_at_its_end_mark_and_the_actions_go_on_from_it() -> None:
    server = Server([THOUGHT, actions(calculate("6*7")), "ok", actions(finish("42"))])
    run(server)
    think, act = server.seen[:2]
    assert (think.stream, think.stop, think.schema, think.continues) == (True, ("</think>",), None, False)
    assert (act.stream, act.stop, act.continues) == (False, (), True)
    assert act.messages[:-1] == think.messages
    assert act.messages[-1] == Message(role="assistant", content=f"<think>\n{THOUGHT}\n</think>\n")
    assert act.schema is not None
    assert act.schema["type"] == "array"


def test_a_server_that_cannot_go_on_from_a_reply_gets_the_thinking_as_a_turn() -> None:
    server = Server([THOUGHT, actions(calculate("6*7")), "ok", actions(finish("42"))], continues=False)
    state = run(server)
    act = server.seen[1]
    assert not act.continues
    assert act.messages[:-2] == server.seen[0].messages
    assert act.messages[-2] == Message(role="assistant", content=THOUGHT)
    assert act.messages[-1].content.startswith(prompts.ACT_NOW)
    assert state.answer == "42"


@pytest.mark.parametrize("continues", [True, False])
def test_the_conversation_only_grows_and_holds_neither_thinking_nor_json(continues: bool) -> None:
    script: list[ScriptedReply | str] = []
    for number in range(3):
        script += [f"{THOUGHT} {number}", actions(calculate(f"{number}+1"))]
    state = run(Server([*script, "done", actions(finish("3"))], continues=continues))
    sent = prompts_of(state)
    for before, after in pairwise(sent[::2]):
        assert after[: len(before)] == before
    for prompt in sent[::2]:
        roles = [message.role for message in prompt]
        assert roles == ["system", *["user", "assistant"] * (len(roles) // 2 - 1), "user"]
        assert all(THOUGHT not in message.content and '"tool":' not in message.content for message in prompt)
    assert [m.content for m in sent[-2] if m.role == "assistant"] == [f"I will calculate {n}+1." for n in range(3)]
    assert "You calculated 2+1: 3" in told(state, 6)


def test_every_prompt_after_the_first_is_bounded_by_an_earlier_count() -> None:
    state = run([THOUGHT, actions(calculate("6*7")), "I have it.", actions(finish("42"))])
    assert [entry.bound_kind for entry in state.ledger] == ["sent_bytes", "grown", "grown", "grown"]
    long = ScriptedReply(THOUGHT * 10)  # its tokens were counted: they are not bounded by their bytes again
    ledger = run([long, actions(calculate("6*7")), "ok", actions(finish("42"))]).ledger
    grown = ledger[1].prompt_tokens_bound - ledger[0].settled_microusd // 10
    assert grown < len(THOUGHT * 10)


# -- actions of one array ---------------------------------------------------------------------------------------------


def test_actions_of_one_array_run_in_order_and_stop_at_the_first_failure() -> None:
    state = run(["go", actions(calculate("1+1"), calculate("1/0"), calculate("2+2")), "ok", actions(finish("partly"))])
    assert [result.error_type for result in state.steps[0].results[::2]] == [None, "skipped"]
    assert not state.steps[0].results[1].success
    message = told(state, 2)
    assert "You calculated 1+1: 2" in message
    assert "You tried to calculate 1/0 and it failed: " in message
    assert "You did not get to calculate 2+2: an action before it failed." in message
    assert message.index("1+1") < message.index("1/0") < message.index("2+2")


def test_finish_may_follow_actions_of_the_same_array() -> None:
    state = run(["go", actions(calculate("6*7"), finish("It is 42."))])
    assert (state.status, state.answer, len(state.steps)) == ("completed", "It is 42.", 1)


def test_a_failure_makes_the_finish_after_it_void() -> None:
    state = run(["go", actions(calculate("1/0"), finish("0")), "again", actions(calculate("6*7"), finish("42"))])
    assert state.steps[0].answer is None
    assert prompts.FINISH_IS_VOID in told(state, 2)
    assert state.answer == "42"


def test_the_void_finish_is_told_once() -> None:
    script = ["go", actions(calculate("1/0"), finish("0")), "again", "no JSON", "more", actions(calculate("1+1"))]
    state = run([*script, "ok", actions(finish("2"))])
    assert [prompts.FINISH_IS_VOID in told(state, call) for call in (2, 4, 6)] == [True, False, False]


def test_finish_is_in_every_grammar_and_alone_in_the_last() -> None:
    server = Server(lambda _request, number: ScriptedReply(actions(calculate(f"{number}+1")) if number % 2 else "go"))
    state = run(server, limits=Limits(4, None))
    assert [call.phase for call in state.calls] == ["think", "act", "think", "answer"]
    act, last = server.seen[1].schema, server.seen[3].schema
    assert act is not None
    assert last is not None
    tools = [form["properties"]["tool"]["enum"][0] for form in act["items"]["anyOf"]]
    assert tools == [*state.tools, "finish"]
    assert (act["minItems"], act["maxItems"]) == (1, 4)
    assert (last["items"]["properties"]["tool"]["enum"], last["maxItems"]) == (["finish"], 1)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "an array of one to 4"),
        ([], "an array of one to 4"),
        ([{"tool": "calculate_math", "args": {"expression": "1"}}] * 5, "an array of one to 4"),
        (["calculate_math"], "action 1 must be an object"),
        ([{"tool": "a", "args": {}}, {"tool": "b"}], "action 2 must be an object"),
        ([{"tool": "a", "args": {}, "why": ""}], "action 1 must be an object"),
        ([{"tool": 1, "args": {}}], 'action 1: "tool" must be a name'),
        ([{"tool": "a", "args": []}], 'action 1: "tool" must be a name'),
        ([{"tool": "finish", "args": {"summary": "x"}}, {"tool": "a", "args": {}}], "action 1 is finish"),
        ([{"tool": "finish", "args": {}}], "finish takes exactly"),
        ([{"tool": "finish", "args": {"summary": " "}}], "finish takes exactly"),
        ([{"tool": "finish", "args": {"summary": "x", "more": 1}}], "finish takes exactly"),
        ([{"tool": "finish", "args": {"summary": 42}}], "finish takes exactly"),
    ],
)
def test_an_array_of_another_form_says_which_element_and_runs_nothing(value: Any, words: str) -> None:
    state = run(["go", json.dumps(value), "ok", actions(calculate("6*7"), finish("42"))])
    assert state.steps[0].actions == []
    assert state.steps[0].faults[0].startswith("schema_mismatch: ")
    if value != {}:  # which the reader of replies refuses before it is looked into
        assert words in state.steps[0].faults[0]
    assert "Your actions could not be used: schema_mismatch" in told(state, 2)
    assert state.answer == "42"


def test_no_field_is_dropped_while_reading() -> None:
    decision = read_actions([{"tool": "a", "args": {"x": 1}}, {"tool": "finish", "args": {"summary": "done"}}])
    assert (decision.actions, decision.answer) == ([ToolCall(name="a", arguments={"x": 1})], "done")
    assert decision.in_order


def test_an_unknown_tool_is_the_registrys_to_refuse() -> None:
    state = run(["go", actions(("calculate", {"expression": "6*7"})), "ok", actions(calculate("6*7"), finish("42"))])
    assert state.steps[0].results[0].error_type == "unknown_tool"
    assert state.tool_faults == {"wrong_name": 1}
    assert "You tried to use calculate with expression 6*7 and it failed: " in told(state, 2)


# -- thinking that is no plain text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        ScriptedReply(THOUGHT),
        ScriptedReply(f"<think>{THOUGHT}"),
        ScriptedReply(f"<think>\n{THOUGHT}\n</think>\nHere it is: []"),
        ScriptedReply(f"{THOUGHT}</think>[]"),
        ScriptedReply("", thinking=THOUGHT),
    ],
)
def test_thinking_is_found_wherever_the_model_or_the_server_put_it(reply: ScriptedReply) -> None:
    server = Server([reply, actions(calculate("6*7"), finish("42"))])
    state = run(server)
    assert state.steps[0].thinking == THOUGHT
    assert server.seen[1].messages[-1].content == f"<think>\n{THOUGHT}\n</think>\n"
    assert state.calls[0].error is None
    assert state.steps[0].guards == []


@given(st.lists(st.sampled_from(["<think>", "</think>", "[THINK]", "[/THINK]", "so ", "\n"]), max_size=12).map("".join))
def test_no_end_mark_is_left_in_thinking_and_none_of_its_words_is_lost(text: str) -> None:
    thinking = leading_thinking(text)
    assert "</think>" not in thinking
    assert thinking in text
    assert thinking.count("so") == re.split(r"</think>|\[/THINK\]", text)[0].count("so")


def test_thinking_that_was_cut_is_acted_upon_and_told() -> None:
    state = run([THOUGHT * 60, actions(calculate("6*7")), "ok", actions(finish("42"))])
    assert state.steps[0].thinking == (THOUGHT * 60)[: 512 * 4]
    assert state.steps[0].guards[0].message == prompts.THINKING_CUT
    assert prompts.THINKING_CUT in told(state, 2)
    assert state.answer == "42"


@pytest.mark.parametrize("continues", [True, False])
def test_without_any_thinking_the_actions_are_asked_for_all_the_same(continues: bool) -> None:
    state = run(Server(["", actions(calculate("6*7")), "ok", actions(finish("42"))], continues=continues))
    assert state.steps[0].guards[0].message == prompts.NO_THINKING
    assert state.answer == "42"


def test_markers_in_thinking_and_results_are_inert() -> None:
    server = Server(["<|im_end|> so", actions(("execute_code", {"code": "print('<|im_start|>user')"})), "ok"])
    run_script(server, strategy_name="two_phase")
    written = "\n".join(message.content for request in server.seen for message in request.messages)
    assert "<|im_" not in written
    assert "< |im_start|>user" in server.seen[2].messages[-1].content


# -- guards and turns -------------------------------------------------------------------------------------------------


def test_an_answer_without_evidence_is_rejected_once() -> None:
    state = run(["I know it.", actions(finish("42")), "ok", actions(calculate("6*7"), finish("42"))])
    assert notices.NO_EVIDENCE in told(state, 2)
    assert state.answer == "42"


def test_a_repeated_call_is_told_once() -> None:
    script = ["go", actions(calculate("6*7")), "again", actions(calculate("6*7")), "ok", actions(finish("42"))]
    state = run(script)
    assert told(state, 4).count("Not executed again") == 1
    assert notices.REPLAN_REPEATED in told(state, 4)


def test_a_further_turn_of_the_user_follows_the_chronicle() -> None:
    state = run(
        ["go", actions(calculate("6*7"), finish("It is 42.")), "more", actions(calculate("42*8"), finish("336"))],
        follow_ups=["Now multiply that by 8."],
    )
    assert state.answer == "336"
    message = told(state, 2)
    assert message.index("You calculated 6*7: 42") < message.index("Task: Now multiply that by 8.")
    assert prompts_of(state)[2][-2].content == "I will calculate 6*7.\nIt is 42."
    assert prompts_of(state)[2][: len(prompts_of(state)[0])] == prompts_of(state)[0]


def test_files_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    first = actions(("read_file", {"path": "a.txt"}), ("write_file", {"path": "b/c.txt", "content": "HELLO"}))
    state = run(
        ["go", first, "ok", actions(finish("done"))],
        tools_named="fs",
        workspace=tmp_path,
        approve={"write": "allow"},
    )
    assert (tmp_path / "b/c.txt").read_text() == "HELLO"
    assert 'You read a.txt: hello\nYou wrote "HELLO" to b/c.txt (overwrite): wrote 5 characters' in told(state, 2)


def test_a_write_that_nobody_can_allow_ends_the_run(tmp_path: Path) -> None:
    state = run(
        ["go", actions(("write_file", {"path": "b.txt", "content": "x"}))],
        tools_named="fs",
        workspace=tmp_path,
        approve={"write": "ask"},
    )
    assert state.status == "confirmation_required"
    assert not (tmp_path / "b.txt").exists()


# -- endings ----------------------------------------------------------------------------------------------------------


def steady(request: ChatRequest, number: int) -> ScriptedReply:
    """A model that goes on calculating, and finishes when it must."""
    if prompts.ANSWER_NOW in request.messages[-1].content:
        return ScriptedReply(actions(finish("as far as I came")))
    return ScriptedReply(actions(calculate(f"{number}+1")) if request.schema else THOUGHT)


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize(
    ("calls", "phases"),
    [
        (1, ["answer"]),
        (2, ["think", "answer"]),
        (3, ["think", "act", "answer"]),
        (4, ["think", "act", "think", "answer"]),
        (10, [*["think", "act"] * 4, "think", "answer"]),
    ],
)
def test_the_last_call_is_the_answer(calls: int, phases: list[str], continues: bool) -> None:
    state = run(Server(steady, continues=continues), limits=Limits(calls, None))
    assert [call.phase for call in state.calls] == phases
    assert (state.status, state.answer) == ("completed", "as far as I came")


def test_the_answer_rests_on_the_thinking_that_was_just_paid_for() -> None:
    server = Server(steady)
    state = run(server, limits=Limits(2, None))
    think, last = server.seen
    assert last.messages[: len(think.messages)] == think.messages
    assert last.messages[-2] == Message(role="assistant", content=THOUGHT)
    assert state.steps[0].thinking == THOUGHT


def test_after_a_last_answer_that_cannot_be_used_the_next_still_follows() -> None:
    """The money pays for a thought and two answers: the first cannot be used, and the thought is not kept."""

    def script(request: ChatRequest, number: int) -> ScriptedReply:
        return ScriptedReply("no JSON at all") if number < 2 else steady(request, number)

    state = run(Server(script, counts=True), limits=Limits(10, 21_000))
    assert [call.phase for call in state.calls] == ["think", "answer", "answer"]
    assert state.status == "completed"
    assert [message.role for message in prompts_of(state)[-1]] == ["system", "user", "assistant", "user"]
    assert prompts_of(state)[-1][2].content == prompts.NO_ACTIONS


@pytest.mark.parametrize("microusd", [0, 1, 5_000, 9_000, 12_000, 17_000, 23_000, 30_000, 45_000, 70_000])
def test_a_run_of_little_money_ends_within_it(microusd: int) -> None:
    for server in (Server(steady), Server(steady, counts=True), Server(steady, counts=True, continues=False)):
        state = run(server, limits=Limits(10, microusd))
        assert state.cost_microusd <= microusd
        assert state.status in ("completed", "budget_exhausted")


def test_no_action_is_carried_out_on_the_last_call() -> None:
    state = run([THOUGHT, actions(calculate("6*7"))], limits=Limits(2, None))
    assert state.steps[0].actions == []
    assert "finish alone" in state.steps[0].faults[0]
    assert state.status == "budget_exhausted"


@pytest.mark.parametrize("fails_at", [0, 1, 2, 3])
def test_a_server_that_fails_makes_the_run_invalid(fails_at: int) -> None:
    def script(request: ChatRequest, number: int) -> ScriptedReply:
        return steady(request, number) if number < fails_at else ScriptedReply(status=404, body='{"error": "gone"}')

    state = run(Server(script))
    assert state.status == "error"
    assert state.error is not None
    assert state.error.fault == "server"


def test_a_busy_server_is_tried_again_in_either_phase() -> None:
    busy = ScriptedReply(
        status=503, body='{"error": "server busy, please try again.  maximum pending requests exceeded"}'
    )
    state = run([busy, THOUGHT, busy, actions(calculate("6*7"), finish("42"))])
    assert [(call.phase, call.attempt) for call in state.calls] == [("think", 0), ("think", 1), ("act", 0), ("act", 1)]
    assert state.answer == "42"


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize(
    "reply",
    [
        ScriptedReply(""),
        ScriptedReply("", thinking="hm"),
        ScriptedReply("</think>" * 50),
        ScriptedReply("<think>" * 50),
        ScriptedReply("{" * 3000),
        ScriptedReply("[" * 3000),
        ScriptedReply("[]"),
        ScriptedReply("null"),
        ScriptedReply('[{"tool": "rm", "args": {"path": "/"}}]'),
        ScriptedReply('[{"tool": "read_file", "args": {"path": ["a"]}}]'),
        ScriptedReply('[{"tool": "\\ud800", "args": {"\\u0000": {"a": [1e400]}}}]'),
        ScriptedReply(actions(calculate("1/0"), finish("no"))),
        ScriptedReply(actions(calculate("1+1"))),
        ScriptedReply(actions(finish(" "))),
        ScriptedReply("word " * 5000),
        ScriptedReply(body='{"error": "error parsing tool call: raw=\'x\'"}', status=500),
        ScriptedReply("lost", prompt_tokens=-1, completion_tokens=-1),
    ],
)
def test_whatever_a_model_says_for_ever_the_run_ends_within_its_budget(reply: ScriptedReply, continues: bool) -> None:
    state = run(Server(lambda _request, _number: reply, continues=continues))
    assert state.calls_used <= 10
    assert state.status in ("budget_exhausted", "loop_detected", "completed")


# -- the chronicle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", {"path": "pyproject.toml"}, "You read pyproject.toml: ok"),
        ("write_file", {"path": "a", "content": "x", "mode": "append"}, 'You wrote "x" to a (append): ok'),
        ("list_directory", {}, "You listed the files of the workspace: ok"),
        ("list_directory", {"path": "docs", "recursive": True}, "You listed the files of docs: ok"),
        ("list_directory", {"path": None}, "You listed the files of the workspace: ok"),
        ("web_search", {"query": "grains"}, 'You searched the web for "grains": ok'),
        ("calculate_math", {"expression": "{0}"}, "You calculated {0}: ok"),
        ("execute_code", {"code": "print(1)"}, 'You ran the program "print(1)": ok'),
        ("clock", {"timezone": "Asia/Tokyo"}, "You looked up the time in Asia/Tokyo: ok"),
        ("read_file", {"file": "a"}, "You used read_file with file a: ok"),
        ("fetch", {"url": "u", "depth": 2}, "You used fetch with url u, depth 2: ok"),
        ("fetch", {}, "You used fetch: ok"),
    ],
)
def test_a_deed_in_plain_english(name: str, arguments: dict[str, Any], words: str) -> None:
    assert prompts.deed(ToolCall(name=name, arguments=arguments), ToolResult(success=True, data="ok")) == words


def test_a_deed_is_bounded_however_long_its_arguments_are() -> None:
    call = ToolCall(name="n" * 5000, arguments={"k" * 5000: "v" * 5000})
    assert len(prompts.deed(call, ToolResult(success=True, data="ok"))) < 500


def test_a_deed_without_a_result_says_so() -> None:
    call = ToolCall(name="execute_code", arguments={"code": "pass"})
    assert prompts.deed(call, ToolResult(success=True)) == 'You ran the program "pass": (nothing)'


def test_every_message_to_the_model_ends_with_the_budget() -> None:
    state = run(Server(steady, continues=False))
    for prompt in prompts_of(state):
        assert parse_budget_line(prompt[-1].content) is not None
