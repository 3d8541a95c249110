"""How a run says that it ended, held against its steps, its ledger and its clock."""

from __future__ import annotations

from collections.abc import Iterator

from agent.budget import MIN_COMPLETION_TOKENS, Prices
from agent.guards.reflection import MAX_REPLANS
from agent.llm.bounds import grown_bound
from agent.prompts.budget_line import BudgetLeft
from agent.prompts.react import observation_message
from agent.state import AgentState, Message
from agent.strategies.base import NO_REPLY
from agent.strategies.react import React
from evals.rebuilt import history_of, rebuild
from evals.verify_ledger import DEADLINE_SLACK


def ending_faults(state: AgentState) -> Iterator[str]:
    """The status is the one that the steps, the ledger and the clock lead to."""
    last = state.steps[-1] if state.steps else None
    answer = last.answer if last is not None and last.turn == state.turn else None
    if state.status == "completed":
        if answer is None or state.answer != answer or state.answer_is_partial:
            yield "status: completed, and the last step gave no such answer"
    elif answer is not None and state.status != "cancelled":  # which may fall between the two
        yield f"status: {state.status}, and the last step gave an answer"
    elif state.answer is not None and not state.answer_is_partial:
        yield f"answer: is not marked as partial, and the run is {state.status}"
    # A person's stop may fall while another end was being written down.
    if (state.status == "error") != (state.error is not None) and state.status != "cancelled":
        yield f"status: {state.status}, and error is {'set' if state.error else 'not set'}"
    if state.ended_by == "batch" and state.batch_limits is None:
        yield "ended_by: the batch, and there is none"
    yield from _ENDINGS.get(state.status, _no_more)(state)


def _no_more(state: AgentState) -> Iterator[str]:  # noqa: ARG001  the same shape as the others in _ENDINGS
    yield from ()


def _running(state: AgentState) -> Iterator[str]:  # noqa: ARG001  the same shape as the others in _ENDINGS
    yield "status: running, and a trace is written when its run has ended"


def _exhausted(state: AgentState) -> Iterator[str]:
    """A run that says its calls or money are spent has spent them, unless it was the batch's cap that refused."""
    if state.ended_by == "batch":
        return
    cap, limits = state.status_reason.partition(":")[0], state.limits
    if cap == "calls":
        if limits.max_calls is None or state.calls_used < limits.max_calls:
            yield f"status: budget_exhausted, and {state.calls_used} of {limits.max_calls} calls are used"
    elif cap == "cost":
        if limits.max_cost_microusd is None or _could_pay(state, limits.max_cost_microusd - state.cost_microusd):
            yield "status: budget_exhausted, and the money left pays for a further call"
    elif cap == "overshoot":
        if not state.ledger or state.ledger[-1].settled_as != "overshoot":
            yield "status: budget_exhausted by an overshoot, and the last call is none"
    elif cap == "context":
        if not _window_was_full(state):
            yield from _last_error_is(state, "context_overflow")
    else:
        yield "status: budget_exhausted, and status_reason does not name the cap that was reached"


def _last_error_is(state: AgentState, error_type: str) -> Iterator[str]:
    """The last call shows why the run ended. Where prompts are counted ahead, that may have failed: no call says so."""
    counts_ahead = not state.calls or any(entry.bound_kind == "exact" for entry in state.ledger)
    if counts_ahead and error_type != "prompt_truncated":  # which is found in the reply to a call
        return
    error = state.calls[-1].error if state.calls else None
    shown = error.error_type if error else "no error"
    if shown != error_type:
        yield f"status: {state.status} by {error_type}, and the last call shows {shown}"


def _failed(state: AgentState) -> Iterator[str]:
    if state.error is not None and state.error.fault == "server":
        yield from _last_error_is(state, state.error.error_type)


def _window_was_full(state: AgentState) -> bool:
    """Whether a server that counts ahead may have counted too much for its window: then nothing was sent."""
    if any(entry.bound_kind != "exact" for entry in state.ledger):
        return False
    money = state.limits.max_cost_microusd
    prompt = _next_prompt_bound(state, 0 if money is None else money - state.cost_microusd)
    room = min(MIN_COMPLETION_TOKENS, state.sampling.max_completion_tokens)
    return prompt is None or prompt > state.sampling.num_ctx - room


def _could_pay(state: AgentState, left: int) -> bool:
    """Whether `left` micro-dollars pay for the call that would have followed the last."""
    prompt = _next_prompt_bound(state, left)
    if prompt is None:
        return False
    prices = Prices.of(state.prices)
    payable = prices.completion_tokens_for(left, prompt)
    return payable is None or payable >= min(MIN_COMPLETION_TOKENS, state.sampling.max_completion_tokens)


def _next_prompt_bound(state: AgentState, left: int) -> int | None:
    """The bound of the prompt after the last: what the last step would have told the model is known.

    Where the server counts exactly the count is lower still, so whatever was refused by it is refused by this too.
    """
    calls = [call for call in rebuild(state) if not call.embeds()]
    step = state.steps[-1] if state.steps else None
    if not calls or step is None or len(step.actions) != len(step.results):
        return None
    if calls[-1].failed_at_server():  # what was refused was a retry, or the same question put as the last one
        return None
    if state.strategy != React.name:  # what another strategy would have sent next only the replay knows
        return None
    limits, last = state.limits, calls[-1]
    calls_left = None if limits.max_calls is None else limits.max_calls - state.calls_used
    budget = BudgetLeft(calls_left, limits.max_calls, max(0, left), limits.max_cost_microusd, limits.max_seconds)
    tail = Message(role="user", content=observation_message(step, budget, answer_only=True))
    reply = Message(role="assistant", content=last.reply or NO_REPLY)
    prompt = (*last.prompt, reply, tail)
    base = history_of(calls).base(prompt)
    grown = grown_bound(prompt, base.call, last.call.tools_hash) if base else None
    return grown.tokens if grown else None


def _looped(state: AgentState) -> Iterator[str]:
    last = state.steps[-1].guards if state.steps else []
    if state.replans <= MAX_REPLANS or not any(event.guard == "replan" for event in last):
        yield f"status: loop_detected, and there are only {state.replans} replans, or none in the last step"


def _unconfirmed(state: AgentState) -> Iterator[str]:
    last = state.steps[-1].approvals if state.steps else []
    if not any(approval.verdict == "unanswered" for approval in last):
        yield "status: confirmation_required, and no action of the last step waits for a person"


def _timed_out(state: AgentState) -> Iterator[str]:
    limit = state.limits.max_seconds
    if state.ended_by != "batch" and (limit is None or state.seconds + 2 * DEADLINE_SLACK < limit):
        yield f"status: timeout after {state.seconds:g} s, and limits.max_seconds is {limit}"


_ENDINGS = {
    "running": _running,
    "budget_exhausted": _exhausted,
    "error": _failed,
    "loop_detected": _looped,
    "timeout": _timed_out,
    "confirmation_required": _unconfirmed,
}
