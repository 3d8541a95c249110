"""What stands between a model's tool calls and the tools: repeats, bleed, policy and persons, order; and the turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.acting import MAX_CALLS_A_REPLY
from agent.budget import Limits
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import ScriptedReply
from agent.loop import run_task
from agent.prompts import notices
from agent.state import AgentState, ToolCall
from agent.tools.base import ToolError
from agent.tools.registry import Question
from evals.verify import verify
from tests.support_runs import act, answer, new_run, run_script, turn


def use(tool: str, **args: Any) -> str:
    return turn(action={"tool": tool, "args": args})


def corpus(folder: Path) -> Path:
    (folder / "sand.md").write_text("# Sand\nAbout 7.5e18 grains of sand are on all beaches.\n")
    return folder


# -- repeats ----------------------------------------------------------------------------------------------------------


def test_a_search_in_other_words_is_a_repeat_and_replans(tmp_path: Path) -> None:
    searches = ["exact grains of sand count", "precise number sand grains", "precise count of sand grains"]
    state = run_script(
        [*(use("web_search", query=query) for query in searches), answer("many")], corpus=corpus(tmp_path)
    )
    first, second, third, _ = state.steps
    assert first.results[0].success
    assert [step.results[0].error_type for step in (second, third)] == ["repeated", "repeated"]
    event = second.guards[0]
    assert (event.guard, event.tier, event.measure) == ("similar_call", 0, "lexical")
    assert event.score is not None
    assert event.score >= 0.9
    assert any(event.guard == "replan" for event in second.guards), "the same way as an identical repeat"
    assert notices.similar_call(0) in state.calls[2].appended[-1].content
    assert verify(state) == []


WRITES_TWO = "open('made.txt', 'w').write('2')"
FAILS = f"{WRITES_TWO}; raise SystemExit(1)"
PRINTS = f"{WRITES_TWO}; print('done')"


@pytest.mark.parametrize("code", [WRITES_TWO, FAILS, PRINTS])
def test_what_was_read_may_be_read_again_after_a_program_that_ran(tmp_path: Path, code: str) -> None:
    (tmp_path / "made.txt").write_text("1")
    tmp_path.chmod(0o777)
    reads, runs = use("read_file", path="made.txt"), use("execute_code", code=code)
    state = run_script(
        [reads, reads, runs, reads, runs, answer("2")], tools_named="core,fs", workspace=tmp_path, evidence=False
    )
    results = [step.results[0] for step in state.steps[:-1]]
    if results[2].error_type == "no_sandbox":
        pytest.skip("nothing isolates programs here")
    assert ["1" in results[0].data, "2" in results[3].data] == [True, True]
    assert [result.error_type == "repeated" for result in results] == [False, True, False, False, True]
    assert verify(state) == []


def test_a_search_that_found_nothing_may_be_put_in_other_words(tmp_path: Path) -> None:
    searches = ["exact count of moon craters", "precise number of moon craters"]
    script = [
        *(use("web_search", query=query) for query in searches),
        use("web_search", query=searches[0]),
        answer("?"),
    ]
    state = run_script(script, corpus=corpus(tmp_path))
    found = [step.results[0].error_type for step in state.steps[:3]]
    assert found[0] == found[1] != "repeated"
    assert found[2] == "repeated", "but not in the very same words"


def test_a_program_that_was_corrected_is_no_repeat() -> None:
    state = run_script([use("execute_code", code="print(1/0)"), use("execute_code", code="print(1/2)"), answer("0.5")])
    assert [step.results[0].success for step in state.steps[:2]] == [False, True]


def test_what_was_read_may_be_read_again_once_something_was_written(tmp_path: Path) -> None:
    read = use("read_file", path="a.txt")
    write = use("write_file", path="a.txt", content="x", mode="append")
    script = [write, read, write, read, read, answer("xx")]
    state = run_script(script, tools_named="fs", workspace=tmp_path, evidence=False)
    assert [step.results[0].error_type for step in state.steps[:-1]] == [None, None, None, None, "repeated"]
    assert (tmp_path / "a.txt").read_text() == "xx"


def test_writing_the_same_file_over_again_is_a_repeat(tmp_path: Path) -> None:
    write, read = use("write_file", path="a.txt", content="x"), use("read_file", path="a.txt")
    state = run_script([write, read, write, answer("x")], tools_named="fs", workspace=tmp_path, evidence=False)
    assert [step.results[0].error_type for step in state.steps[:-1]] == [None, None, "repeated"]


# -- prompt bleed -----------------------------------------------------------------------------------------------------

BLEED = "Arithmetic only: numbers, parentheses"


def test_words_of_the_prompt_in_the_only_text_become_the_users_message() -> None:
    state = run_script([act(BLEED), answer("42")], task="6 * 7")
    (call,), (result,) = state.steps[0].actions, state.steps[0].results
    assert call.arguments == {"expression": "6 * 7"}
    assert result.data == "42"
    assert [event.guard for event in state.steps[0].guards] == ["schema_guardrail"]
    assert verify(state) == []


def test_the_same_bleed_again_is_a_repeat_of_what_it_became() -> None:
    state = run_script([act(BLEED), act(BLEED), answer("42")], task="6 * 7")
    assert state.steps[1].results[0].error_type == "repeated"


def test_words_of_the_prompt_elsewhere_are_an_observation(tmp_path: Path) -> None:
    bleed = use("write_file", path="The file, relative to the workspace, with its folders.", content="hello")
    state = run_script([bleed, answer("no")], tools_named="fs", workspace=tmp_path, evidence=False)
    assert state.steps[0].results[0].error_type == "prompt_bleed"
    assert state.tool_faults == {"bad_arguments": 1}
    assert list(tmp_path.iterdir()) == []
    assert verify(state) == []


# -- a person's say ---------------------------------------------------------------------------------------------------

WRITE = use("write_file", path="a.txt", content="hello")


def written(folder: Path, **more: Any) -> AgentState:
    return run_script([WRITE, answer("done")], tools_named="fs", workspace=folder, evidence=False, **more)


def test_where_nobody_can_be_asked_the_run_ends_with_the_whole_call(tmp_path: Path) -> None:
    state = written(tmp_path, approve={"write": "ask"})
    assert state.status == "confirmation_required"
    assert state.steps[-1].actions == [ToolCall(name="write_file", arguments={"path": "a.txt", "content": "hello"})], (
        "never an empty call"
    )
    assert state.steps[-1].results == []
    assert list(tmp_path.iterdir()) == []
    assert verify(state) == []


@pytest.mark.parametrize("allowed", [True, False])
def test_a_person_is_shown_the_very_call_and_decides(allowed: bool, tmp_path: Path) -> None:
    asked: list[Question] = []

    def approver(question: Question) -> bool:
        asked.append(question)
        return allowed

    state = written(tmp_path, approve={"write_file": "ask"}, approver=approver)
    assert asked == [Question(state.steps[0].actions[0], {"mode": "overwrite"})]
    assert [approval.verdict for approval in state.steps[0].approvals] == ["allowed" if allowed else "denied"]
    assert (tmp_path / "a.txt").exists() is allowed
    assert state.status == "completed"
    assert verify(state) == []


def test_a_denied_effect_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    state = written(tmp_path, approve={"write": "deny"})
    assert state.steps[0].results[0].error_type == "forbidden"
    assert notices.forbidden_call("write_file") in state.calls[1].appended[-1].content
    assert list(tmp_path.iterdir()) == []
    assert verify(state) == []


def test_a_call_that_cannot_be_made_is_not_put_before_a_person(tmp_path: Path) -> None:
    def approver(question: Question) -> bool:
        raise AssertionError(question)

    bad = use("write_file", path="a.txt")
    state = run_script(
        [bad, answer("no")],
        tools_named="fs",
        workspace=tmp_path,
        evidence=False,
        approve={"write": "ask"},
        approver=approver,
    )
    assert state.steps[0].results[0].error_type == "bad_args"


# -- turns ------------------------------------------------------------------------------------------------------------


def test_every_turn_has_its_steps_and_its_answer() -> None:
    state = run_script([act("6*7"), answer("42"), act("42*8"), answer("336")], follow_ups=["Now multiply that by 8."])
    assert [(step.turn, step.answer) for step in state.steps] == [(0, None), (0, "42"), (1, None), (1, "336")]
    assert (state.answer, state.status, state.follow_ups) == ("336", "completed", ["Now multiply that by 8."])
    assert state.calls[2].carried == len(state.calls[1].appended) + state.calls[1].carried, "one conversation"


def test_what_was_asked_before_may_be_asked_again_in_another_turn() -> None:
    state = run_script([act("6*7"), answer("42"), act("6*7"), answer("42")], follow_ups=["Once more?"])
    assert state.steps[2].results[0].success


def test_a_cap_in_a_later_turn_leaves_no_answer_of_an_earlier_one() -> None:
    script = [act("6*7"), answer("42"), *(act(f"{n}+1") for n in range(9))]
    state = run_script(script, follow_ups=["More."], limits=Limits(4, 200_000))
    assert state.status == "budget_exhausted"
    assert state.answer_is_partial


def test_no_further_turn_is_asked_for_once_the_run_has_ended() -> None:
    run = new_run([act("1+1")] * 12)
    run.follow_ups = iter(lambda: pytest.fail("asked for a further turn"), None)
    assert run_task(run).status == "loop_detected"


# -- time, and replies without measure --------------------------------------------------------------------------------


def native_calls(count: int) -> ScriptedReply:
    calls = [{"name": "calculate_math", "arguments": {"expression": f"{n}+1"}} for n in range(count)]
    return ScriptedReply(tool_calls=calls, completion_tokens=500)


def test_a_reply_of_thousands_of_calls_has_the_first_few_made_and_the_rest_told() -> None:
    state = run_script([native_calls(2000), "many"], strategy_name="native", evidence=False, limits=Limits(3, None))
    results = state.steps[0].results
    assert [result.success for result in results[:MAX_CALLS_A_REPLY]] == [True] * MAX_CALLS_A_REPLY
    assert {result.error_type for result in results[MAX_CALLS_A_REPLY:]} == {"skipped"}
    assert verify(state) == []


def test_a_result_that_is_known_does_not_stop_what_comes_after_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    read = {"tool": "read_file", "args": {"path": "a.txt"}}
    write = {"tool": "write_file", "args": {"path": "b.txt", "content": "x"}}
    finish = {"tool": "finish", "args": {"summary": "copied"}}
    script = ["think", [read], "think", [read, write, finish]]
    state = run_script(
        [reply if isinstance(reply, str) else json.dumps(reply) for reply in script],
        strategy_name="two_phase",
        tools_named="fs",
        workspace=tmp_path,
        evidence=False,
    )
    assert [result.error_type for result in state.steps[1].results] == ["repeated", None]
    assert (state.status, state.answer) == ("completed", "copied")
    assert verify(state) == []


def test_words_that_a_tool_or_an_earlier_turn_gave_are_no_bleed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The text exactly as it is to stand there.\n")
    copy = use("write_file", path="b.txt", content="The text exactly as it is to stand there.\n")
    state = run_script(
        [use("read_file", path="a.txt"), copy, answer("ok")], tools_named="fs", workspace=tmp_path, evidence=False
    )
    assert (tmp_path / "b.txt").exists()
    assert state.tool_faults == {}


@pytest.mark.parametrize("strategy", ["pipeline", "dispatch"])
@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>{"name": "calculate_math", "arguments": {"expression": "6*7"}}</tool_call>',
        ScriptedReply(tool_calls=[{"name": "calculate_math", "arguments": {"expression": "6*7"}}]),
    ],
)
def test_a_call_in_place_of_an_answer_is_no_answer_and_is_counted(strategy: str, call: str | ScriptedReply) -> None:
    def script(_request: ChatRequest, number: int) -> ScriptedReply:
        if number == 0:
            return ScriptedReply('{"tool": "none", "enough": true}')
        given = call if isinstance(call, ScriptedReply) else ScriptedReply(call)
        return given if number == 1 else ScriptedReply("It is a nice day.")

    state = run_script(script, task="Say something nice.", strategy_name=strategy, evidence=False)
    assert state.answer == "It is a nice day."
    assert state.tool_faults == {"in_text": 1}
    assert verify(state) == []


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ('<tool_call>{"name": "calculate_math", "arguments": {"expression": "6*7"}}</tool_call>', "in_text"),
        (ScriptedReply(tool_calls=[{"name": "calculate_math", "arguments": {"expression": "6*7"}}]), "in_text"),
        (turn(action={"tool": "calculate_math", "arguments": {"expression": "6*7"}}), "bad_arguments"),
        ("I can not do that.", None),
    ],
)
def test_a_call_in_another_form_than_the_contract_is_counted(reply: str | ScriptedReply, kind: str | None) -> None:
    state = run_script([reply, act("6*7"), answer("42")])
    assert state.tool_faults == ({kind: 1} if kind else {})
    assert verify(state) == []


def test_an_answer_that_is_cut_off_is_no_fault_of_a_tool_call() -> None:
    state = run_script(
        ['{"tool": "none"}', "word " * 4000, "A nice day."],
        task="Say something.",
        strategy_name="dispatch",
        evidence=False,
    )
    assert state.answer == "A nice day."
    assert state.tool_faults == {}


def test_no_tool_may_speak_in_the_loops_own_words() -> None:
    with pytest.raises(ValueError, match="the loop's own"):
        ToolError("denied", "x")
