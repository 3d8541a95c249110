"""Did a run keep its promises? Worked out again from its trace alone.

It shows consistency: a trace in which a call was dropped, doubled or reordered, or in which a usage, price, limit,
bound, reservation or charge was changed, contradicts itself, even where indexes and sums were made to fit. It cannot
know who wrote the file: whoever invents a whole run, or cuts off the end of one that says it was cancelled, is not
found out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.budget import MIN_COMPLETION_TOKENS, Prices
from agent.errors import UsageError
from agent.guards.reflection import MAX_REPLANS
from agent.llm.bounds import MESSAGE_ALLOWANCE
from agent.state import AgentState, CallError, StepRecord
from evals.traces import load, trace_paths
from evals.verify_history import history_faults
from evals.verify_ledger import DEADLINE_SLACK, ledger_faults

# More than the fixed words of one user message ever come to (labels, notices, the budget line).
WORDING_BYTES = 2000


@dataclass(frozen=True)
class Checked:
    """One trace file and what is wrong with it, a line each; nothing where it kept every promise."""

    path: Path
    faults: tuple[str, ...]


def verify(state: AgentState) -> list[str]:
    """The promises that a run broke, one line each; empty where it kept them all."""
    checks = (_shape, _steps, ledger_faults, history_faults, _ending, _verdict)
    return [line for check in checks for line in check(state)]


def verify_paths(paths: Iterable[Path]) -> list[Checked]:
    """Every trace under these folders or files, checked. One that cannot be read is a fault of its own.

    Raises:
        UsageError: a path does not exist, or there is no trace at all.
    """
    targets = list(paths)
    files = [file for target in targets for file in trace_paths(target)]
    if not files:
        raise UsageError(f"{', '.join(map(str, targets))}: no trace to verify (*.json); run a task first")
    seen: dict[str, Path] = {}
    return [Checked(file, tuple(_file_faults(file, seen))) for file in files]


def _file_faults(path: Path, seen: dict[str, Path]) -> Iterator[str]:
    try:
        state = load(path)
    except UsageError as error:
        yield str(error).removeprefix(f"{path}: ")
        return
    earlier = seen.setdefault(state.run_id, path)
    if earlier != path:
        yield f"run_id: the same run stands in {earlier.name}"
    yield from verify(state)


# -- shape ------------------------------------------------------------------------------------------------------------


def _shape(state: AgentState) -> Iterator[str]:
    """Indexes run from 0 without a gap, ledger and calls are one to one, every call has the run's settings."""
    for name, records in (("calls", state.calls), ("ledger", state.ledger), ("steps", state.steps)):
        indexes = [record.index for record in records]
        if indexes != list(range(len(indexes))):
            yield f"{name}: indexes are {_shortened(indexes)}, not 0 to {len(indexes) - 1}"
    if len(state.calls) != len(state.ledger) and not _was_cut_short(state):
        yield f"ledger: has {len(state.ledger)} entries for {len(state.calls)} calls"
    for place, entry in enumerate(state.ledger[: len(state.calls)]):
        if entry.settled_as == "open":
            yield f"ledger[{place}]: was never settled"
    sampling = state.sampling
    for place, call in enumerate(state.calls):
        if (call.temperature, call.seed, call.num_ctx) != (sampling.temperature, sampling.seed, sampling.num_ctx):
            yield f"calls[{place}]: temperature, seed or num_ctx are not the run's"
        times = (call.timing.total, call.timing.load, call.timing.prompt, call.timing.completion)
        if any(time is not None and not 0 <= time < math.inf for time in times):
            yield f"calls[{place}]: has a time that is no duration"


def _was_cut_short(state: AgentState) -> bool:
    """A stop, or a fault of ours, may fall between a reservation and the record of its call: once, at the end."""
    stopped = state.status == "cancelled" or (state.error is not None and state.error.fault == "harness")
    extra = state.ledger[len(state.calls) :]
    return stopped and len(extra) == 1 and extra[0].settled_as == "open"


def _shortened(indexes: list[int]) -> str:
    return ", ".join(map(str, indexes[:20])) + (", ..." if len(indexes) > 20 else "")


def _steps(state: AgentState) -> Iterator[str]:
    """Steps share out all calls in order; each action that was executed has its result; replans are those of guards."""
    made = [call for step in state.steps for call in step.calls]
    if made != list(range(len(state.calls))):
        yield f"steps: their calls are {_shortened(made)}, and the run has {len(state.calls)}"
    for place, step in enumerate(state.steps):
        yield from _step(state, place, step)
    replans = sum(event.guard == "replan" for step in state.steps for event in step.guards)
    if state.replans != replans:
        yield f"replans: {state.replans}, and the guards of the steps show {replans}"
    if not 0 <= state.seconds < math.inf:
        yield "seconds: is no duration"


def _step(state: AgentState, place: int, step: StepRecord) -> Iterator[str]:
    is_last = place == len(state.steps) - 1
    if any(call < len(state.calls) and state.calls[call].step != place for call in step.calls if call >= 0):
        yield f"steps[{place}]: names a call that says it belongs to another step"
    if len(step.results) != len(step.actions) and not (is_last and _may_lack_results(state)):
        yield f"steps[{place}]: {len(step.actions)} actions and {len(step.results)} results"
    if step.answer is not None and not is_last:
        yield f"steps[{place}]: gave the answer, and the run went on"


def _may_lack_results(state: AgentState) -> bool:
    return state.status in ("cancelled", "confirmation_required") or _is_harness(state.error)


def _is_harness(error: CallError | None) -> bool:
    return error is not None and error.fault == "harness"


# -- how it ended -----------------------------------------------------------------------------------------------------


def _ending(state: AgentState) -> Iterator[str]:
    """The status is the one that the steps, the ledger and the clock lead to."""
    answer = state.steps[-1].answer if state.steps else None
    if state.status == "completed":
        if answer is None or state.answer != answer or state.answer_is_partial:
            yield "status: completed, and the last step gave no such answer"
    elif answer is not None:
        yield f"status: {state.status}, and the last step gave an answer"
    elif state.answer is not None and not state.answer_is_partial:
        yield f"answer: is not marked as partial, and the run is {state.status}"
    if (state.status == "error") != (state.error is not None):
        yield f"status: {state.status}, and error is {'set' if state.error else 'not set'}"
    yield from _ENDINGS.get(state.status, _no_more)(state)


def _no_more(state: AgentState) -> Iterator[str]:  # noqa: ARG001  the same shape as the others in _ENDINGS
    yield from ()


def _running(state: AgentState) -> Iterator[str]:  # noqa: ARG001  the same shape as the others in _ENDINGS
    yield "status: running, and a trace is written when its run has ended"


def _exhausted(state: AgentState) -> Iterator[str]:
    """A run that says its calls or money are spent has spent them, unless it was the batch's cap that refused."""
    if "(batch)" in state.status_reason:
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
    elif cap != "context":
        yield "status: budget_exhausted, and status_reason does not name the cap that was reached"


def _could_pay(state: AgentState, left: int) -> bool:
    """Whether `left` micro-dollars pay for the call after the last, by a size of its prompt that it can't pass."""
    prices = Prices(state.prices.prompt_microusd_per_1k, state.prices.completion_microusd_per_1k)
    payable = prices.completion_tokens_for(left, _next_prompt_at_most(state))
    return payable is None or payable >= min(MIN_COMPLETION_TOKENS, state.sampling.max_completion_tokens)


def _next_prompt_at_most(state: AgentState) -> int:
    if not state.ledger or not state.calls or not state.steps:
        return len(state.task.encode("utf-8", "surrogatepass")) + 64 * WORDING_BYTES
    last, call, step = state.ledger[-1], state.calls[-1], state.steps[-1]
    texts = [call.raw, *step.faults, *(event.message for event in step.guards)]
    texts += [f"{result.data}{result.error}" for result in step.results]
    texts += [action.name for action in step.actions]
    grown = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    return last.prompt_tokens_bound + last.max_completion_tokens + grown + WORDING_BYTES + 2 * MESSAGE_ALLOWANCE


def _looped(state: AgentState) -> Iterator[str]:
    last = state.steps[-1].guards if state.steps else []
    if state.replans <= MAX_REPLANS or not any(event.guard == "replan" for event in last):
        yield f"status: loop_detected, and there are only {state.replans} replans, or none in the last step"


def _timed_out(state: AgentState) -> Iterator[str]:
    limit = state.limits.max_seconds
    if "(batch)" not in state.status_reason and (limit is None or state.seconds + 2 * DEADLINE_SLACK < limit):
        yield f"status: timeout after {state.seconds:g} s, and limits.max_seconds is {limit}"


_ENDINGS = {
    "running": _running,
    "budget_exhausted": _exhausted,
    "loop_detected": _looped,
    "timeout": _timed_out,
}


def _verdict(state: AgentState) -> Iterator[str]:
    verdict = state.verdict
    if verdict is not None and verdict.outcome == "pass" and not all(line.passed for line in verdict.asserts):
        yield "verdict: pass, and an assert did not hold"
