"""Genuine traces of every way a run can end, from real runs on scripted replies; and the means to falsify them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.budget import BudgetEnforcer, Limits, Prices
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import ScriptedReply
from agent.llm.bounds import PreviousCall, grown_bound, sent_bytes_bound
from agent.prompts.budget_line import BudgetLeft, budget_line
from agent.state import AgentState, AssertResult, LLMCall, Message, Verdict
from tests.support_runs import PRICES, CountingBackend, act, answer, run_script, turn

BUSY = ScriptedReply(body='{"error":"server busy, please try again.  maximum pending requests exceeded"}', status=503)
BROKEN = ScriptedReply(body='{"error":"something broke"}', status=500)


def _acts(count: int) -> list[str]:
    return [act(f"{number}+1") for number in range(count)]


def _interrupted(_request: ChatRequest, number: int) -> ScriptedReply:
    if number == 2:
        raise KeyboardInterrupt
    return ScriptedReply(act(f"{number}+1"))


def _in_folder(script: Sequence[str], **more: Any) -> AgentState:
    with tempfile.TemporaryDirectory() as folder:
        return run_script(script, workspace=Path(folder).resolve(), **more)


_RUNS: dict[str, Callable[[], AgentState]] = {
    "completed": lambda: run_script([act("6*7"), act("42+0"), act("40+2"), answer("42")]),
    "unreadable_replies": lambda: run_script(["no JSON", act("6*7"), "", answer("42")]),
    "rejected_answer": lambda: run_script([answer("41"), act("6*7"), answer("42")]),
    "calls_used_up": lambda: run_script(_acts(12), limits=Limits(4, 200_000)),
    "money_used_up": lambda: run_script(_acts(12), limits=Limits(10, 60_000)),
    "no_call_cap": lambda: run_script(_acts(16), limits=Limits(None, 100_000)),
    "no_caps": lambda: run_script([act("6*7"), answer("42")], limits=Limits()),
    "batch_used_up": lambda: run_script(_acts(12), parent=BudgetEnforcer(Limits(None, 40_000), PRICES, scope="batch")),
    "looped_late": lambda: run_script([act("1+1"), act("1+1"), act("2+1"), act("2+1"), act("3+1")] + [act("3+1")] * 7),
    "looped": lambda: run_script([act("1+1")] * 12),
    "overshot": lambda: run_script([act("1+1"), ScriptedReply(act("2+2"), completion_tokens=5000)]),
    "uncounted": lambda: run_script(
        [ScriptedReply(act("1+1"), prompt_tokens=-1), ScriptedReply(act("2+2"), completion_tokens=-1), answer("4")]
    ),
    "refused_connection": lambda: run_script([act("1+1"), ScriptedReply(not_sent=True)]),
    "retried": lambda: run_script([act("1+1"), BUSY, BUSY, act("2+2"), answer("4")]),
    "answer_after_failed_try": lambda: run_script([act("1+1"), BUSY, answer("2")], limits=Limits(3, 200_000)),
    "server_failed": lambda: run_script([act("1+1"), act("2+2"), BROKEN]),
    "interrupted": lambda: run_script(_interrupted),
    "window_full": lambda: run_script(CountingBackend([act(f"{n}+1") for n in range(9)]), num_ctx=900),
    "count_failed": lambda: run_script(CountingBackend([act("1+1"), act("2+1")], fails_at=2)),
    "two_turns": lambda: run_script(
        [act("6*7"), answer("42"), act("42*8"), answer("336")], follow_ups=["Now multiply that by 8."]
    ),
    "ended_in_its_second_turn": lambda: run_script(
        [act("6*7"), answer("42"), *_acts(9)], follow_ups=["Now multiply that by 8."], limits=Limits(4, 200_000)
    ),
    "unconfirmed": lambda: run_script([act("6*7")], approve={"calculate_math": "ask"}),
    "denied": lambda: run_script(
        [act("6*7"), answer("no")], approve={"read": "ask"}, approver=lambda _call: False, evidence=False
    ),
    "allowed": lambda: run_script([act("6*7"), answer("42")], approve={"read": "ask"}, approver=lambda _call: True),
    "forbidden": lambda: run_script([act("6*7"), answer("no")], approve={"read": "deny"}, evidence=False),
    "bled": lambda: run_script([act("The expression to evaluate"), act("6*7"), answer("42")]),
    "wrote": lambda: _in_folder(
        [turn(action={"tool": "write_file", "args": {"path": "notes.txt", "content": "hello"}}), answer("done")],
        tools_named="fs",
    ),
    "batch_around": lambda: run_script(
        [act("6*7"), answer("42")], parent=BudgetEnforcer(Limits(None, 150_000), PRICES, scope="batch")
    ),
    "cut_prompt": lambda: run_script(CountingBackend([act("1"), ScriptedReply(act("2"), prompt_tokens=100)])),
}
GENUINE = tuple(_RUNS)
_made: dict[str, AgentState] = {}


def genuine(kind: str) -> AgentState:
    """A fresh copy of a genuine trace, one of `GENUINE`."""
    if kind not in _made:
        _made[kind] = _RUNS[kind]()
    return _made[kind].model_copy(deep=True)


def judged(state: AgentState, *, case_id: str, batch_id: str | None = "batch-1", passed: bool = True) -> AgentState:
    """The trace as a suite leaves it."""
    state.run_id = f"{batch_id}-{case_id}-{state.strategy}"
    state.case_id, state.batch_id, state.suite = case_id, batch_id, "core"
    state.verdict = Verdict(
        outcome="pass" if passed else "fail",
        asserts=[AssertResult(type="equals", expected="42", passed=passed, message="" if passed else "got 41")],
    )
    return state


# -- falsifying -------------------------------------------------------------------------------------------------------


def only_calls(state: AgentState, places: Sequence[int]) -> AgentState:
    """The same trace with these calls alone, in this order, with their ledger entries and steps; nothing is mended."""
    steps = [next(step for step in state.steps if place in step.calls) for place in places]
    state.steps = [step.model_copy(deep=True) for step in steps]
    state.calls = [state.calls[place].model_copy(deep=True) for place in places]
    state.ledger = [state.ledger[place].model_copy(deep=True) for place in places]
    return state


def renumber(state: AgentState) -> AgentState:
    """Make every index and every sum of the trace fit again, one call to a step."""
    for place, (call, entry, step) in enumerate(zip(state.calls, state.ledger, state.steps, strict=True)):
        call.index = entry.index = call.step = step.index = place
        step.calls = [place]
    state.replans = sum(event.guard == "replan" for step in state.steps for event in step.guards)
    state.answer = state.steps[-1].answer if state.steps[-1].answer is not None else state.answer
    return state


def recompute(state: AgentState) -> AgentState:
    """On top of `renumber`: how much each call carries, what the model was told, bounds, reservations and charges."""
    renumber(state)
    prompts: list[list[Message]] = []
    spent = 0
    for place, call in enumerate(state.calls):
        before = prompts[-1] if prompts else []
        call.carried = min(len(before), call.carried) if call.attempt else len(before)
        _tell(call, _left(state, place, spent))
        prompts.append([*before[: call.carried], *call.appended])
        _reprice(state, place, prompts)
        spent += state.ledger[place].settled_microusd
    return state


def _left(state: AgentState, place: int, spent: int) -> BudgetLeft:
    calls, money = state.limits.max_calls, state.limits.max_cost_microusd
    return BudgetLeft(
        None if calls is None else calls - place,
        calls,
        None if money is None else max(0, money - spent),
        money,
        state.limits.max_seconds,
    )


def _tell(call: LLMCall, left: BudgetLeft) -> None:
    if call.appended:
        last = call.appended[-1]
        last.content = "\n".join([*last.content.split("\n")[:-1], budget_line(left)])


def _reprice(state: AgentState, place: int, prompts: list[list[Message]]) -> None:
    entry, usage = state.ledger[place], state.calls[place].usage
    prices = Prices.of(state.prices)
    bound = None
    if place and entry.bound_kind == "grown":
        counted = state.calls[place - 1].usage
        bound = grown_bound(
            prompts[place],
            PreviousCall(
                messages=tuple(prompts[place - 1]),
                reply=state.calls[place].appended[0].content if state.calls[place].appended else None,
                prompt_tokens=counted.prompt_tokens or state.ledger[place - 1].prompt_tokens_bound,
                completion_tokens=counted.completion_tokens,
            ),
        )
    if bound is None:
        bound = sent_bytes_bound(prompts[place])
    entry.prompt_tokens_bound, entry.bound_kind = bound.tokens, bound.kind
    entry.reserved_microusd = prices.cost_microusd(bound.tokens, entry.max_completion_tokens)
    if entry.settled_as == "counted":
        entry.settled_microusd = prices.cost_microusd(usage.prompt_tokens or 0, usage.completion_tokens or 0)
