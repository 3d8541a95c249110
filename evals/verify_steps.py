"""A trace's steps and the user's turns, held against its calls, its approvals and each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from agent.state import AgentState, CallError, StepRecord
from evals.verify_history import ONE_CONVERSATION


def step_faults(state: AgentState) -> Iterator[str]:
    """Steps share out all calls in order; each action that was executed has its result; sums are those of the steps."""
    made = [call for step in state.steps for call in step.calls]
    if made != list(range(len(state.calls))) and not _last_step_is_missing(state, made):
        yield f"steps: their calls are {shortened(made)}, and the run has {len(state.calls)}"
    for place, step in enumerate(state.steps):
        yield from _step(state, place, step)
        yield from _approvals(state, place, step)
    yield from _turns(state)
    replans = sum(event.guard == "replan" for step in state.steps for event in step.guards)
    if state.replans != replans:
        yield f"replans: {state.replans}, and the guards of the steps show {replans}"
    faults = Counter(fault for step in state.steps for fault in step.tool_faults)
    if state.tool_faults != faults:
        yield f"tool_faults: {state.tool_faults}, and the steps show {dict(sorted(faults.items()))}"
    if not 0 <= state.seconds < math.inf:
        yield "seconds: is no duration"


def shortened(indexes: list[int]) -> str:
    """A list of numbers, cut where it is long."""
    return ", ".join(map(str, indexes[:20])) + (", ..." if len(indexes) > 20 else "")


def _last_step_is_missing(state: AgentState, made: list[int]) -> bool:
    """A person's stop may fall after a step's calls and before the step itself was noted."""
    left = state.calls[len(made) :]
    in_order = made == list(range(len(made)))
    return state.status == "cancelled" and in_order and all(call.step == len(state.steps) for call in left)


def _step(state: AgentState, place: int, step: StepRecord) -> Iterator[str]:
    is_last = place == len(state.steps) - 1
    if any(call < len(state.calls) and state.calls[call].step != place for call in step.calls if call >= 0):
        yield f"steps[{place}]: names a call that says it belongs to another step"
    if len(step.results) != len(step.actions) and not (is_last and _may_lack_results(state)):
        yield f"steps[{place}]: {len(step.actions)} actions and {len(step.results)} results"
    decided = step.answer is not None or step.actions
    if state.strategy in ONE_CONVERSATION and decided and _last_error(state, step) is not None:
        yield f"steps[{place}]: holds what the model decided, and its last call failed"


def _last_error(state: AgentState, step: StepRecord) -> CallError | None:
    asked = [call for call in step.calls if 0 <= call < len(state.calls) and not state.embeds(call)]
    return state.calls[asked[-1]].error if asked else None


def _may_lack_results(state: AgentState) -> bool:
    harness = state.error is not None and state.error.fault == "harness"
    in_a_tool = state.status == "error" and bool(state.calls) and state.embeds(state.calls[-1].index)
    return harness or in_a_tool or state.status in ("cancelled", "confirmation_required")


def _turns(state: AgentState) -> Iterator[str]:
    """Each of the user's turns but the last has its answer, in its last step, and nothing after it."""
    turns = [step.turn for step in state.steps]
    if turns != sorted(turns) or (turns and not 0 <= turns[0] <= turns[-1] <= state.turn):
        yield f"steps: their turns are {shortened(turns)}, and the user had {state.turn + 1}"
        return
    for place, step in enumerate(state.steps[:-1]):
        goes_on = state.steps[place + 1].turn == step.turn
        if goes_on and step.answer is not None:
            yield f"steps[{place}]: gave the answer, and the turn went on"
        elif not goes_on and step.answer is None:
            yield f"steps[{place}]: is the last of its turn, and gave no answer"
    answered = {step.turn for step in state.steps if step.answer is not None}
    if unanswered := sorted(set(range(state.turn)) - answered):
        yield f"steps: turn {unanswered[0]} has no answer, and the user went on"


def _approvals(state: AgentState, place: int, step: StepRecord) -> Iterator[str]:
    """What a person denied was not run, and where nobody could be asked the run ended."""
    is_last = place == len(state.steps) - 1
    for approval in step.approvals:
        if not 0 <= approval.action < len(step.actions):
            yield f"steps[{place}]: an approval of action {approval.action}, and there are {len(step.actions)}"
            continue
        result = step.results[approval.action] if approval.action < len(step.results) else None
        was_denied = result is not None and result.error_type == "denied"
        if (approval.verdict == "denied") != was_denied and state.status != "cancelled":
            yield f"steps[{place}]: action {approval.action} was {approval.verdict}, and its result says otherwise"
        if approval.verdict == "unanswered" and not (is_last and state.status == "confirmation_required"):
            yield f"steps[{place}]: action {approval.action} waits for a person, and the run went on"
