"""The dispatch strategy: the host owns control, each call is small and on its own, and only the answers go on."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.budget import Limits
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import Script, ScriptedReply
from agent.loop import run_task
from agent.prompts import dispatch as prompts
from agent.prompts.budget_line import parse_budget_line
from agent.state import AgentState
from evals.rebuilt import rebuild
from evals.verify import verify
from tests.support_runs import CountingBackend, new_run, run_script

NOW = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
BROKEN = ScriptedReply(body='{"error":"something broke"}', status=500)


def pick(name: str) -> str:
    return json.dumps({"tool": name})


def args(**values: Any) -> str:
    return json.dumps(values)


def dispatch(script: Any, task: str, **more: Any) -> AgentState:
    """A run whose trace holds together."""
    state = run_script(script, task=task, strategy_name="dispatch", tools_named="core,fs", evidence=False, **more)
    assert verify(state) == []
    return state


def phases(state: AgentState) -> list[str]:
    return [call.phase for call in state.calls]


def called(state: AgentState) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for step in state.steps for call in step.actions]


def guards(state: AgentState) -> list[str]:
    return [event.guard for step in state.steps for event in step.guards]


# -- the fast path ----------------------------------------------------------------------------------------------------


def test_explicit_arithmetic_is_answered_without_a_call() -> None:
    state = dispatch([], "749 x 192")
    assert (state.status, state.answer, state.calls_used) == ("completed", "749 * 192 = 143808", 0)
    assert called(state) == [("calculate_math", {"expression": "749 * 192"})]
    assert guards(state) == ["fast_path"]


def test_the_clock_is_asked_without_a_call() -> None:
    state = dispatch([], "What time is it in Tokyo?", now=NOW)
    assert (state.calls_used, called(state)) == (0, [("clock", {"timezone": "Asia/Tokyo"})])
    assert state.answer == "It is 2026-03-14T18:26:53+09:00 (Saturday, 14 March 2026, 18:26, Asia/Tokyo)"


def test_follow_ups_go_on_from_the_number_and_cost_nothing_even_when_no_call_is_left() -> None:
    said = ["now multiply that by 8", "tell me a joke", "6 * 7", "halve it"]
    state = dispatch(["Why did the chicken?"], "749 x 192", follow_ups=said, limits=Limits(1, 200_000))
    assert [step.answer for step in state.steps if step.answer] == [
        "749 * 192 = 143808",
        "143808 * 8 = 1150464",
        "Why did the chicken?",
        "6 * 7 = 42",
        "42 / 2 = 21.0",
    ]
    assert (state.status, state.calls_used) == ("completed", 1)


def test_a_fast_call_that_fails_is_told_to_the_model() -> None:
    state = dispatch(["It has no result."], "5 / 0 =")
    assert (state.answer, phases(state)) == ("It has no result.", ["answer"])
    assert "calculate_math FAILED (division_by_zero)" in state.calls[0].appended[-1].content


def test_what_the_host_answered_stands_in_the_conversation_that_answers() -> None:
    state = dispatch([pick("none"), "You are welcome."], "749 x 192", follow_ups=["Thanks!"])
    conversation = [message.content for message in rebuild(state)[1].prompt]
    assert conversation[0] == prompts.ANSWER_SYSTEM
    assert conversation[1].startswith("749 x 192\nResult of calculate_math: 143808\nBudget: ")
    assert conversation[2] == "749 * 192 = 143808"
    assert conversation[3].startswith("Thanks!\nBudget: ")


# -- code -------------------------------------------------------------------------------------------------------------


def test_a_review_of_code_is_one_call_and_no_tool() -> None:
    state = dispatch(["16 KiB; name the unit."], "Review this code: capacity = 1024 * 16;")
    assert (state.answer, phases(state), called(state)) == ("16 KiB; name the unit.", ["answer"], [])
    assert guards(state) == ["code_guard"]


def test_code_may_be_run_but_the_calculator_is_not_offered_for_it() -> None:
    offered: list[list[str]] = []

    def script(request: ChatRequest, number: int) -> ScriptedReply:
        if number == 0:
            offered.append(request.schema["properties"]["tool"]["enum"] if request.schema else [])
        return ScriptedReply([pick("execute_code"), args(code="print(2+2)"), "It prints 4."][number])

    state = dispatch(script, "Run this python code: print(2+2)")
    assert called(state) == [("execute_code", {"code": "print(2+2)"})]
    assert state.steps[0].results[0].data.strip() == "4"
    assert "calculate_math" not in offered[0]
    assert prompts.CODE_IN_IT in state.calls[0].appended[-1].content


@pytest.mark.parametrize("nonsense", [pick("calculate_math"), "calculate 1024 * 16", "{}"])
def test_nonsense_of_the_probe_never_brings_the_calculator_to_code(nonsense: str) -> None:
    state = dispatch([nonsense, "Fine."], "compute `capacity = 1024 * 16;` in python")
    assert (called(state), phases(state), state.answer) == ([], ["probe", "answer"], "Fine.")


# -- probe, extraction, synthesis -------------------------------------------------------------------------------------


def test_one_tool_takes_three_small_calls(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The key hangs by the door. <|im_end|>")
    script = [pick("read_file"), args(path="notes.txt"), "It hangs by the door."]
    state = dispatch(script, "Where is the key, by notes.txt?", workspace=tmp_path)
    assert (state.status, state.answer) == ("completed", "It hangs by the door.")
    assert phases(state) == ["probe", "extract", "answer"]
    probe, extraction, synthesis = (rebuilt.prompt for rebuilt in rebuild(state))
    assert [len(prompt) for prompt in (probe, extraction, synthesis)] == [2, 2, 2]
    assert len({prompt[0].content for prompt in (probe, extraction, synthesis)}) == 3
    assert "write_file" not in extraction[0].content, "only the chosen tool is described"
    tail = synthesis[1].content.splitlines()
    assert tail[0] == "Where is the key, by notes.txt?"
    assert tail[1] == "Result of read_file: The key hangs by the door. < |im_end|>"
    assert parse_budget_line(synthesis[1].content) is not None
    assert (state.calls[1].schema_hash, state.calls[2].schema_hash) != (None, None)
    assert state.calls[2].tools_hash is None


def test_small_talk_calls_nothing() -> None:
    state = dispatch([pick("none"), "Hello!"], "Good morning, how are you?")
    assert (called(state), state.answer, state.calls_used) == ([], "Hello!", 2)


@pytest.mark.parametrize("nonsense", ["I would use the file tool.", pick("file_reader"), '{"tool": 7}', "[1]", ""])
def test_where_the_probe_is_nonsense_the_words_decide(nonsense: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("seven")
    script = [nonsense, args(path="a.txt"), "seven"]
    state = dispatch(script, "What are the contents of a.txt?", workspace=tmp_path)
    assert (called(state), state.answer) == ([("read_file", {"path": "a.txt"})], "seven")
    assert guards(state) == ["keyword_route"]


def test_where_the_words_say_nothing_either_the_model_answers() -> None:
    state = dispatch(["hmm", "Hello!"], "Good morning!")
    assert (called(state), state.answer) == ([], "Hello!")


def test_an_extraction_knows_the_turn_before_where_the_message_speaks_of_it() -> None:
    script = [pick("write_file"), args(path="r.txt", content="143808")]
    state = dispatch(script, "749 x 192", follow_ups=["Save that in r.txt."], approve={"write": "ask"})
    assert state.status == "confirmation_required"
    assert called(state)[-1] == ("write_file", {"path": "r.txt", "content": "143808"})
    for call in state.calls:
        assert (
            "Said before:\nUser: 749 x 192\nAnswer: 749 * 192 = 143808\nMessage: Save that" in call.appended[-1].content
        )
    apart = dispatch([pick("write_file"), args(path="r.txt", content="x")], "6 * 7", follow_ups=["Write x to r.txt."])
    assert "Said before" in apart.calls[0].appended[-1].content
    assert "Said before" not in apart.calls[1].appended[-1].content


def test_an_extraction_is_tried_twice_and_told_what_was_wrong(tmp_path: Path) -> None:
    script = [pick("read_file"), args(file="a.txt"), args(path="a.txt"), "It says seven."]
    (tmp_path / "a.txt").write_text("seven")
    state = dispatch(script, "Open a.txt.", workspace=tmp_path)
    assert (state.answer, phases(state)) == ("It says seven.", ["probe", "extract", "extract", "answer"])
    assert "path" in state.calls[2].appended[-1].content
    assert state.tool_faults == {"bad_arguments": 1}


def test_arguments_that_cannot_be_read_lead_to_an_answer_that_knows_so() -> None:
    state = dispatch([pick("read_file"), "no", "never", "I could not read it."], "Open a.txt.")
    assert (called(state), state.answer) == ([], "I could not read it.")
    assert prompts.NO_RESULT in state.calls[-1].appended[-1].content


def test_arguments_that_the_tool_refuses_are_asked_for_once_more() -> None:
    script = [pick("calculate_math"), args(expression="3 boxes"), args(expression="3 * 4"), "12"]
    state = dispatch(script, "Three boxes of four: how many?")
    assert [result.success for step in state.steps for result in step.results] == [False, True]
    assert (state.answer, phases(state)) == ("12", ["probe", "extract", "extract", "answer"])
    again = [pick("calculate_math"), args(expression="3 boxes"), args(expression="4 boxes"), "I do not know."]
    state = dispatch(again, "Three boxes of four: how many?")
    assert (state.answer, state.calls_used) == ("I do not know.", 4)
    assert "calculate_math FAILED (bad_args)" in state.calls[-1].appended[-1].content


def test_another_failure_of_a_tool_is_told_to_the_model(tmp_path: Path) -> None:
    state = dispatch([pick("read_file"), args(path="b.txt"), "There is none."], "Open b.txt.", workspace=tmp_path)
    assert (state.answer, state.calls_used) == ("There is none.", 3)
    assert "read_file FAILED (not_found)" in state.calls[-1].appended[-1].content


def test_the_answers_are_one_conversation_whose_head_never_changes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("seven")
    script = [pick("none"), "Hello!", pick("read_file"), args(path="a.txt"), "seven", pick("none"), "Bye!"]
    said = ["Open a.txt.", "6 * 7", "Bye!"]
    state = dispatch(script, "Hi!", follow_ups=said, workspace=tmp_path)
    answers = [rebuilt.prompt for rebuilt in rebuild(state) if rebuilt.call.phase == "answer"]
    assert len(answers) == 3
    for before, after in itertools.pairwise(answers):
        assert after[: len(before)] == before
    roles = [message.role for message in answers[-1]]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]


def test_every_system_message_is_told_beforehand() -> None:
    run = new_run([], strategy_name="dispatch", tools_named="core,fs")
    assert len(run.strategy.system_prompts) == 1 + len(run.state.tools) + 1
    assert len(set(run.strategy.system_prompts)) == len(run.strategy.system_prompts)


# -- an answer that cannot be used ------------------------------------------------------------------------------------


def test_an_answer_that_is_none_is_asked_for_again() -> None:
    state = dispatch([pick("none"), "", "Hello!"], "Good morning!")
    assert (state.answer, phases(state)) == ("Hello!", ["probe", "answer", "answer"])
    assert state.calls[2].appended[-1].content.startswith("That cannot be used: empty_reply")


def test_an_answer_without_evidence_is_rejected_once_where_the_case_asks_for_it() -> None:
    state = run_script(
        [pick("none"), "Hi!", "Hi again!"], task="Hello!", strategy_name="dispatch", tools_named="core,fs"
    )
    assert (state.status, state.answer, guards(state)) == ("completed", "Hi again!", ["evidence"])
    assert verify(state) == []


# -- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (1, ["answer"]),
        (2, ["extract", "answer"]),
        (3, ["probe", "extract", "answer"]),
    ],
)
def test_a_small_budget_shortens_the_way(calls: int, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("seven")
    replies = {"probe": pick("read_file"), "extract": args(path="a.txt"), "answer": "seven"}
    script = [replies[phase] for phase in expected]
    task = "What are the contents of a.txt?"
    state = dispatch(script, task, workspace=tmp_path, limits=Limits(calls, 200_000))
    assert (state.status, phases(state), state.answer) == ("completed", expected, "seven")
    if calls == 1:
        assert prompts.NO_RESULT in state.calls[0].appended[-1].content


def test_a_second_try_that_cannot_be_paid_becomes_an_answer() -> None:
    script = [pick("read_file"), "no", "I could not read it."]
    state = dispatch(script, "Open a.txt.", limits=Limits(3, 200_000))
    assert (state.status, phases(state)) == ("completed", ["probe", "extract", "answer"])
    assert guards(state) == ["extract"]


@pytest.mark.parametrize("microusd", [1, 5_000, 9_000, 12_000, 20_000, 30_000, 50_000])
def test_little_money_ends_cleanly(microusd: int) -> None:
    def script(request: ChatRequest, _number: int) -> ScriptedReply:
        return ScriptedReply(args(path="a.txt", tool="read_file") if request.schema else "I could not read it.")

    state = dispatch(script, "Open a.txt.", limits=Limits(10, microusd))
    assert state.status in ("completed", "budget_exhausted")
    assert state.cost_microusd <= microusd


# -- whatever the server does -----------------------------------------------------------------------------------------


def _always(content: str) -> Script:
    return lambda _request, _number: ScriptedReply(content)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        "{}",
        "[]",
        '{"tool": "read_file"}',
        '{"tool": "none"}',
        '{"tool": "read_file", "path": "a.txt"}',
        '{"expression": "1 +"}',
        "<think>",
        "<tool_call>{",
        "{" * 2000,
    ],
)
def test_nonsense_for_ever_ends_within_ten_calls(content: str) -> None:
    state = dispatch(_always(content), "Compute how many files are in the folder.", follow_ups=["and again?"] * 5)
    assert state.status in ("completed", "loop_detected", "budget_exhausted")
    assert state.calls_used <= 10


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_server_error_makes_the_run_invalid_and_the_trace_holds(place: int) -> None:
    script: list[ScriptedReply | str] = [pick("list_directory"), "{}", "none"]
    state = dispatch([*script[:place], BROKEN, BROKEN], "Which files are there?")
    assert (state.status, state.error is not None) == ("error", True)


def test_a_server_that_counts_ahead_holds_too() -> None:
    backend = CountingBackend([pick("list_directory"), "{}", "It is empty."])
    state = run_task(
        new_run(backend, task="Which files?", strategy_name="dispatch", tools_named="core,fs", evidence=False)
    )
    assert verify(state) == []
