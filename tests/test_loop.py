"""One run from task to trace: how it ends, what it keeps, and what the model is told on the way."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from agent.budget import BudgetEnforcer, Limits
from agent.errors import BackendError
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import ScriptedReply
from agent.loop import run_task
from agent.prompts import notices
from agent.prompts.budget_line import BudgetLeft, parse_budget_line
from agent.state import AgentState
from evals.verify import verify
from tests.support_runs import PRICES, CountingBackend, act, answer, new_run, run_script, turn


def last_user_message(state: AgentState, call: int) -> str:
    return state.calls[call].appended[-1].content


def test_a_tool_then_an_answer() -> None:
    state = run_script([act("6*7"), answer("42")])
    assert (state.status, state.answer, state.answer_is_partial) == ("completed", "42", False)
    assert [step.calls for step in state.steps] == [[0], [1]]
    assert state.steps[0].results[0].data == "42"
    assert "Observation from calculate_math: 42" in last_user_message(state, 1)
    assert state.calls_used == 2
    assert state.cost_microusd == sum(e.settled_microusd for e in state.ledger)


def test_the_prompt_only_grows_at_its_end_and_its_head_never_changes() -> None:
    seen: list[ChatRequest] = []

    def script(request: ChatRequest, number: int) -> ScriptedReply:
        seen.append(request)
        return ScriptedReply(answer("6") if number == 4 else act(f"{number}+1"))

    state = run_script(script)
    for before, after in pairwise(seen):
        assert after.messages[: len(before.messages)] == before.messages
    assert [call.carried for call in state.calls] == [0, 2, 4, 6, 8]
    assert sum(len(call.appended) for call in state.calls) == len(seen[-1].messages)


def test_every_call_tells_what_is_left_as_the_ledger_has_it() -> None:
    state = run_script([act("1+1"), act("2+2"), answer("4")])
    spent = 0
    for place, entry in enumerate(state.ledger):
        said = parse_budget_line(last_user_message(state, place))
        assert said == BudgetLeft(10 - place, 10, 200_000 - spent, 200_000)
        spent += entry.settled_microusd


def test_an_answer_without_evidence_is_rejected_once() -> None:
    state = run_script([answer("42"), answer("42 it is")])
    assert [event.guard for event in state.steps[0].guards] == ["evidence"]
    assert state.steps[0].answer is None
    assert notices.NO_EVIDENCE in last_user_message(state, 1)
    assert state.answer == "42 it is"


def test_a_case_that_needs_no_evidence_takes_the_first_answer() -> None:
    assert run_script([answer("hello")], evidence=False).calls_used == 1


def test_after_a_rejected_answer_the_schema_offers_only_an_action() -> None:
    state = run_script([answer("42"), act("6*7"), answer("42")])
    first, forced, after = (call.schema_hash for call in state.calls)
    assert forced not in (first, after)
    assert first == after


def test_a_failed_tool_is_an_observation() -> None:
    state = run_script([act("1/0"), act("6*7"), answer("42")])
    assert not state.steps[0].results[0].success
    assert "FAILED" in last_user_message(state, 1)
    assert state.answer == "42"


def test_an_unknown_tool_is_an_observation_that_suggests_the_right_one() -> None:
    state = run_script([turn(action={"tool": "calculate_maths", "args": {"expression": "1"}}), act("1"), answer("1")])
    assert state.steps[0].results[0].error_type == "unknown_tool"
    assert "calculate_math" in last_user_message(state, 1)


@pytest.mark.parametrize(
    "reply", ["not JSON at all", '{"thought": "x"}', '{"action": null, "final_answer": null}', "[1]", '{"thought": "a']
)
def test_an_unusable_reply_is_paid_for_kept_and_told(reply: str) -> None:
    state = run_script([reply, act("6*7"), answer("42")])
    assert state.calls[0].usage.completion_tokens
    assert state.steps[0].faults
    assert "could not be used" in last_user_message(state, 1)
    assert state.calls[1].appended[0].content == reply
    assert state.status == "completed"


def test_an_empty_reply_still_leaves_a_growing_conversation() -> None:
    state = run_script(["", act("6*7"), answer("42")])
    assert [m.role for m in state.calls[1].appended] == ["assistant", "user"]
    assert state.calls[1].carried == 2


def test_the_same_call_is_not_made_twice_and_three_fruitless_replans_end_the_run() -> None:
    state = run_script([act("6*7")] * 10)
    assert state.status == "loop_detected"
    assert state.calls_used == 5
    assert [step.results[0].error_type for step in state.steps] == [None] + ["repeated"] * 4
    assert state.answer == "Partial answer, from what was found:\ncalculate_math: 42"
    assert state.answer_is_partial


def test_a_program_that_differs_in_its_indentation_is_another_call() -> None:
    first, second = "if True:\nprint(1)", "if True:\n print(1)"
    script = [turn(action={"tool": "execute_code", "args": {"code": code}}) for code in (first, second)]
    state = run_script([*script, answer("1")])
    assert [step.results[0].success for step in state.steps[:2]] == [False, True]


def test_a_replan_notice_is_followed_by_the_budget() -> None:
    state = run_script([act("6*7"), act("6*7"), answer("42")])
    lines = last_user_message(state, 2).split("\n")
    assert notices.REPLAN_REPEATED in lines
    assert lines[-1].startswith("Budget: 8 of 10 calls")
    assert state.replans == 1


def test_two_setbacks_in_a_row_and_a_model_that_says_it_is_stuck_make_it_replan() -> None:
    assert run_script([act("1/0"), act("2/0"), act("1"), answer("1")]).replans == 1
    stuck = turn(progress_check="stuck", action={"tool": "calculate_math", "args": {"expression": "1/0"}})
    assert run_script([stuck, act("1"), answer("1")]).replans == 1


def test_progress_clears_the_slate() -> None:
    script: list[str] = []
    for number in range(4):
        script += [act(f"{number}+1"), act(f"{number}+1")]
    state = run_script([*script, answer("4")])
    assert state.status == "completed"
    assert state.replans == 4


def test_on_the_last_call_only_an_answer_is_asked_for() -> None:
    state = run_script([act("1"), act("2"), answer("2")], limits=Limits(3, 200_000))
    assert notices.ANSWER_ONLY in last_user_message(state, 2)
    assert [entry.purpose for entry in state.ledger] == ["act", "act", "answer"]
    assert state.answer == "2"


def test_an_action_on_the_last_call_is_kept_but_not_run() -> None:
    state = run_script([act("1"), act("2")], limits=Limits(2, 200_000))
    assert (state.status, state.calls_used) == ("budget_exhausted", 2)
    assert state.steps[1].actions[0].arguments == {"expression": "2"}
    assert state.steps[1].results[0].error_type == "answer_only"
    assert state.answer == "Partial answer, from what was found:\ncalculate_math: 1"


def test_money_runs_out_before_the_calls_do() -> None:
    state = run_script([act(f"{n}") for n in range(10)], limits=Limits(10, 45_000))
    assert state.status == "budget_exhausted"
    assert state.calls_used < 10
    assert state.cost_microusd <= 45_000
    assert state.ledger[-1].purpose == "answer"


def test_a_run_that_cannot_pay_its_first_call_says_so_and_sends_nothing() -> None:
    state = run_script([answer("42")], limits=Limits(10, 1000))
    assert (state.status, state.calls, state.answer) == ("budget_exhausted", [], None)


def test_an_overshoot_ends_the_run() -> None:
    state = run_script([ScriptedReply(act("1"), completion_tokens=9999), answer("1")])
    assert (state.status, state.calls_used) == ("budget_exhausted", 1)
    assert state.ledger[0].settled_as == "overshoot"
    assert state.status_reason.startswith("overshoot")
    assert state.steps[0].calls == [0]


def test_a_refused_connection_is_given_back_and_makes_the_run_invalid_not_failed() -> None:
    state = run_script([ScriptedReply(not_sent=True)])
    assert (state.status, state.calls_used, state.cost_microusd) == ("error", 0, 0)
    assert state.error is not None
    assert (state.error.fault, state.error.error_type) == ("server", "unreachable")


def test_a_busy_server_is_tried_again_and_every_try_is_a_call() -> None:
    busy = ScriptedReply(
        status=503, body='{"error":"server busy, please try again.  maximum pending requests exceeded"}'
    )
    state = run_script([busy, busy, act("6*7"), answer("42")])
    assert state.status == "completed"
    assert state.calls_used == 4
    assert [call.attempt for call in state.calls] == [0, 1, 2, 0]
    assert [entry.settled_as for entry in state.ledger] == ["unknown", "unknown", "counted", "counted"]
    assert state.steps[0].calls == [0, 1, 2]


def test_a_fault_that_cannot_heal_is_not_tried_again() -> None:
    missing = ScriptedReply(status=404, body='{"error":"model \'m\' not found"}')
    state = run_script([missing, answer("42")])
    assert (state.status, state.calls_used) == ("error", 1)
    assert state.error is not None
    assert state.error.error_type == "model_not_found"


def test_a_full_window_is_a_limit_of_the_run_not_an_outage() -> None:
    full = ScriptedReply(
        status=400,
        body='{"error":"the prompt is longer than the context length currently available to the model; shorten"}',
    )
    state = run_script([act("6*7"), full])
    assert state.status == "budget_exhausted"
    assert state.status_reason.startswith("context")
    assert state.answer_is_partial


def test_ctrl_c_in_the_middle_of_a_call_keeps_what_was_done() -> None:
    def script(_request: ChatRequest, number: int) -> ScriptedReply:
        if number == 1:
            raise KeyboardInterrupt
        return ScriptedReply(act("6*7"))

    state = run_script(script)
    assert state.status == "cancelled"
    assert state.scratchpad == ["calculate_math: 42"]
    assert [entry.settled_as for entry in state.ledger] == ["counted", "unknown"]
    assert [step.calls for step in state.steps] == [[0], [1]]


def test_the_clock_ends_a_run() -> None:
    slow = ScriptedReply(act("6*8"), seconds=0.35)
    state = run_script([act("6*7"), slow, answer("42")], limits=Limits(10, 200_000, max_seconds=0.3))
    assert state.status == "timeout"
    assert state.answer_is_partial
    assert state.steps[1].results[0].error_type == "out_of_time", "no tool is started any more"
    assert verify(state) == []


def test_a_batch_without_money_stops_its_runs() -> None:
    batch = BudgetEnforcer(Limits(max_calls=1), PRICES, scope="batch")
    state = run_script([act("6*7"), answer("42")], parent=batch)
    assert (state.status, state.calls_used) == ("budget_exhausted", 1)


def test_arguments_of_another_type_are_repaired_and_the_repair_stands_on_the_step() -> None:
    run = new_run([turn(action={"tool": "calculate_math", "args": {"expression": 42}}), answer("42")])
    first = run_task(run).steps[0]
    assert first.actions[0].arguments == {"expression": "42"}
    assert first.repairs == ["coerced:expression"]


def test_a_call_is_not_lost_for_a_wrong_word_beside_it() -> None:
    state = run_script([turn(progress_check="done", action={"tool": "calculate_math", "args": {"expression": "1"}}),
                        turn(thought=None, final_answer="1")])  # fmt: skip
    assert [step.repairs for step in state.steps] == [["progress_check"], ["thought"]]
    assert (state.steps[0].progress_check, state.steps[0].results[0].data, state.answer) == (None, "1", "1")


def test_an_answer_that_is_json_itself_is_written_out() -> None:
    state = run_script([act("1"), turn(final_answer=[{"country": "X"}])])
    assert state.answer == '[{"country": "X"}]'
    assert state.steps[1].repairs == ["answer_as_json"]


def test_a_fault_that_may_heal_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection of a live search: the same query is no repeat."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # whatever the network is like, the search cannot work
    query = turn(action={"tool": "web_search", "args": {"query": "tides"}})
    state = run_script([query, query, answer("unknown"), answer("unknown")])
    assert [step.results[0].error_type for step in state.steps[:2]] == ["network", "network"]


def test_arguments_that_mean_the_same_once_typed_are_a_repeat() -> None:
    number, text = (turn(action={"tool": "calculate_math", "args": {"expression": e}}) for e in (5, "5"))
    state = run_script([text, number, answer("5")])
    assert [step.results[0].error_type for step in state.steps[:2]] == [None, "repeated"]


def test_the_runs_own_clock_within_a_call_is_a_timeout_and_not_the_servers_fault() -> None:
    def script(_request: ChatRequest, _number: int) -> ScriptedReply:
        time.sleep(0.05)
        raise BackendError("deadline", "gave no whole reply in time")

    state = run_script(script, limits=Limits(10, 200_000, max_seconds=0.04))
    assert (state.status, state.error) == ("timeout", None)
    assert state.ledger[0].settled_as == "unknown"


def test_a_server_that_counts_ahead_keeps_the_prompt_inside_the_window() -> None:
    state = run_script(CountingBackend([act(f"{n}+1") for n in range(9)]), num_ctx=900)
    assert state.status == "budget_exhausted"
    assert state.status_reason.startswith("context:")
    assert all(entry.bound_kind == "exact" for entry in state.ledger)


def test_a_server_that_read_less_than_it_had_counted_cut_the_prompt() -> None:
    state = run_script(CountingBackend([ScriptedReply(act("1"), prompt_tokens=100)]))
    assert state.error is not None
    assert state.error.error_type == "prompt_truncated"


def test_a_count_that_fails_is_the_servers_fault_and_no_call() -> None:
    state = run_script(CountingBackend([act("1")], fails_at=1))
    assert (state.status, state.calls_used) == ("error", 1)
    assert [call.attempt for call in state.calls] == [0]
