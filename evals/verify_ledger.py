"""The money of a trace, worked out again: every reservation admitted, every charge as the rules say, no cap passed."""

from __future__ import annotations

from collections.abc import Iterator

from agent.budget import MIN_COMPLETION_TOKENS, BudgetEnforcer, Limits, Prices, Reservation
from agent.errors import BudgetExceededError
from agent.state import AgentState, LedgerEntry, LLMCall
from evals.rebuilt import Rebuilt, rebuild

_RESERVED = {
    "prompt_microusd_per_1k": "its price for prompts",
    "completion_microusd_per_1k": "its price for completions",
    "max_completion_tokens": "its completion cap",
    "shrunk_by": "what made its cap smaller",
    "reserved_microusd": "what was reserved",
}
SECONDS_SLACK = 2.0  # what closing a connection may take after its deadline
DEADLINE_SLACK = 0.5  # clocks are read at slightly different moments


def ledger_faults(state: AgentState) -> Iterator[str]:
    """One line for each rule of the budget that the trace contradicts."""
    yield from _caps(state)
    yield from _sent_caps(state)
    yield from _replayed(state)
    yield from _overshoots(state)
    yield from _seconds(state)


def _caps(state: AgentState) -> Iterator[str]:
    """The caps by plain sums over what is recorded, apart from the enforcer's own code."""
    limits, overshot = state.limits, any(entry.settled_as == "overshoot" for entry in state.ledger)
    if limits.max_calls is not None and state.calls_used > limits.max_calls:
        yield f"ledger: {state.calls_used} calls were made, and limits.max_calls is {limits.max_calls}"
    if limits.max_cost_microusd is None:
        return
    committed = 0
    for entry in state.ledger:
        if committed + entry.reserved_microusd > limits.max_cost_microusd:
            yield (
                f"ledger[{entry.index}]: {committed} micro-dollars were spent and {entry.reserved_microusd} more"
                f" reserved, and limits.max_cost_microusd is {limits.max_cost_microusd}"
            )
        committed += entry.reserved_microusd if entry.settled_as == "open" else entry.settled_microusd
    if committed > limits.max_cost_microusd and not overshot:
        yield f"ledger: {committed} micro-dollars were spent, and the cap is {limits.max_cost_microusd}"


def _sent_caps(state: AgentState) -> Iterator[str]:
    """The completion caps lie between the floor and the setting, and a counted prompt leaves them room."""
    wanted, window = state.sampling.max_completion_tokens, state.sampling.num_ctx
    for place, entry in enumerate(state.ledger):
        cap = entry.max_completion_tokens
        if entry.purpose == "embed":
            if cap:
                yield f"ledger[{entry.index}]: a completion cap of {cap} tokens, and vectors take none"
            continue
        if not min(MIN_COMPLETION_TOKENS, wanted) <= cap <= wanted:
            yield f"ledger[{entry.index}]: a completion cap of {cap} tokens, where {wanted} were asked for"
        yield from _exact_count(state, place)
        if entry.bound_kind == "exact" and entry.prompt_tokens_bound + cap > window:
            yield f"ledger[{entry.index}]: prompt and completion cap do not fit the window of {window} tokens"


def _exact_count(state: AgentState, place: int) -> Iterator[str]:
    """A server that counts ahead counts the same afterwards, unless it cut the prompt: then the call is its fault."""
    entry = state.ledger[place]
    if entry.bound_kind != "exact" or place >= len(state.calls):
        return
    call = state.calls[place]
    counted, is_at_fault = call.usage.prompt_tokens, call.error is not None and call.error.fault == "server"
    if counted not in (None, entry.prompt_tokens_bound) and not is_at_fault and entry.settled_as != "overshoot":
        yield f"ledger[{place}]: an exact bound of {entry.prompt_tokens_bound}, and {counted} were counted"


def _replayed(state: AgentState) -> Iterator[str]:
    """The ledger through a fresh budget: would each call have been admitted, and charged like this?"""
    prices = Prices.of(state.prices)
    budget = BudgetEnforcer(Limits(state.limits.max_calls, state.limits.max_cost_microusd), prices)
    rebuilt = rebuild(state)
    for place, entry in enumerate(state.ledger):
        if entry.prompt_tokens_bound < 0 or entry.max_completion_tokens < (0 if entry.purpose == "embed" else 1):
            yield f"ledger[{place}]: a bound below zero or an empty completion cap"
            return
        try:
            again = budget.reserve(
                entry.prompt_tokens_bound,
                _wanted(state, entry),
                purpose=entry.purpose,
                bound_kind=entry.bound_kind,
                answer_tokens_bound=entry.answer_tokens_bound,
            )
        except BudgetExceededError as error:
            yield f"ledger[{place}]: the budget refuses this call (purpose {entry.purpose}): {error}"
            return
        yield from _same_reservation(place, entry, again.entry)
        if entry.settled_as != "open" and place < len(rebuilt):  # verify.py says where one may be open
            yield from _settlement(rebuilt[place], budget, again)


def _wanted(state: AgentState, entry: LedgerEntry) -> int:
    """The completion cap that was asked for. What a batch's money left of it, the run's trace cannot know."""
    batch = state.batch_limits
    if entry.purpose == "embed":
        return 0
    if entry.shrunk_by == "batch" and batch is not None and batch.max_cost_microusd is not None:
        return entry.max_completion_tokens
    wanted = state.sampling.max_completion_tokens
    room = state.sampling.num_ctx - entry.prompt_tokens_bound if entry.bound_kind == "exact" else wanted
    return max(1, min(wanted, room))


def _same_reservation(place: int, entry: LedgerEntry, again: LedgerEntry) -> Iterator[str]:
    for name, what in _RESERVED.items():
        said, due = getattr(entry, name), getattr(again, name)
        if said != due and not (name == "shrunk_by" and said == "batch"):
            yield f"ledger[{place}]: {what} is {said}, and by the run's limits, prices and bound {due}"


def _settlement(rebuilt: Rebuilt, budget: BudgetEnforcer, again: Reservation) -> Iterator[str]:
    entry, place = rebuilt.entry, again.entry.index
    if entry.settled_as == "refunded":
        if not _was_never_sent(rebuilt.call):
            yield f"ledger[{place}]: given back, and calls[{place}] does not show that nothing was sent"
        due = budget.release(again)
    else:
        due = budget.settle(again, rebuilt.usage)
    if entry.settled_as != due.settled_as:
        yield f"ledger[{place}]: settled as {entry.settled_as}, and the usage of its call makes it {due.settled_as}"
    if entry.settled_microusd != due.settled_microusd:
        yield (
            f"ledger[{place}]: settled {entry.settled_microusd} micro-dollars, and the usage of its call costs"
            f" {due.settled_microusd}"
        )


def _was_never_sent(call: LLMCall) -> bool:
    unreachable = call.error is not None and call.error.error_type == "unreachable" and call.error.fault == "server"
    return unreachable and call.http_status is None and not call.raw


def _overshoots(state: AgentState) -> Iterator[str]:
    for place, entry in enumerate(state.ledger):
        if entry.settled_as != "overshoot":
            continue
        if place != len(state.ledger) - 1:
            yield f"ledger[{place}]: the server counted too much, and the run went on"
        if state.status not in ("budget_exhausted", "cancelled"):
            yield f"status: {state.status}, and an overshoot ends its run as budget_exhausted"


def _seconds(state: AgentState) -> Iterator[str]:
    """No call began after the deadline, and none outlived it, by the recorded times of calls and tools.

    The time of a call for vectors is part of its tool's.
    """
    limit = state.limits.max_seconds
    if limit is None:
        return
    in_tools = [sum(result.seconds for result in step.results) for step in state.steps]
    elapsed, tools_until = 0.0, 0
    for call in (call for call in state.calls if not state.embeds(call.index)):
        while tools_until < min(call.step, len(in_tools)):
            elapsed += in_tools[tools_until]
            tools_until += 1
        if elapsed > limit + DEADLINE_SLACK:
            yield f"calls[{call.index}]: began {elapsed:.1f} s into the run, and limits.max_seconds is {limit:g}"
            return
        elapsed += call.timing.total
        if elapsed > limit + SECONDS_SLACK:
            yield f"calls[{call.index}]: ended {elapsed:.1f} s into the run, and limits.max_seconds is {limit:g}"
            return
