"""One run from task to AgentState: THINK -> ACT -> OBSERVE -> REFLECT until an answer, a cap, or a loop.

Nothing here opens a connection, reads a setting or prints; all of it was handed in.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.acting import Actions, ConfirmationRequiredError
from agent.errors import (
    BackendError,
    BudgetExceededError,
    CancelledRunError,
    ModelError,
    OnlyAnswerLeftError,
    ToolCallError,
)
from agent.guards.evidence import reject_unfounded
from agent.guards.reflection import Reflection
from agent.llm.client import LLMClient
from agent.llm.opening import call_error
from agent.llm.tool_faults import fault_kind
from agent.reporter import Reporter
from agent.state import AgentState, GuardEvent, Status, StepRecord
from agent.strategies.base import Decision, Strategy


@dataclass
class Run:
    """The parts of one run, each made for it alone. `follow_ups` gives the user's further turns, one at a time."""

    state: AgentState
    llm: LLMClient
    actions: Actions
    strategy: Strategy
    reporter: Reporter
    follow_ups: Iterator[str] = field(default_factory=lambda: iter(()))
    reflection: Reflection = field(default_factory=Reflection)


def run_task(run: Run) -> AgentState:
    """Drive a run to its end. Whatever happens, the state says how it ended; only our own bugs are raised."""
    state, started = run.state, time.monotonic()
    run.reporter.run_started(state)
    try:
        _turns(run)
    except BudgetExceededError as error:
        state.ended_by = error.scope
        _end_partial(state, "timeout" if error.cap == "seconds" else "budget_exhausted", f"{error.cap}: {error}")
    except ConfirmationRequiredError as error:
        _end_partial(state, "confirmation_required", str(error))
    except BackendError as error:
        _end_by_server(run, error)
    except (CancelledRunError, KeyboardInterrupt):
        _end_partial(state, "cancelled", "stopped by the person")
    state.seconds = round(time.monotonic() - started, 6)
    state.replans = sum(event.guard == "replan" for step in state.steps for event in step.guards)
    state.tool_faults = dict(sorted(Counter(fault for step in state.steps for fault in step.tool_faults).items()))
    run.reporter.run_finished(state)
    return state


def _turns(run: Run) -> None:
    """The user's turns, each to its answer. What the guards remember is of one turn: the user may ask again."""
    while True:
        _one_turn(run)
        if run.state.status != "running":
            return
        follow_up = next(run.follow_ups, None)
        if follow_up is None:
            _end(run.state, "completed", "the model gave its answer")
            return
        run.state.follow_ups.append(follow_up)
        run.state.answer = None
        run.reflection = Reflection()
        run.actions.new_turn()


def _one_turn(run: Run) -> None:
    """Steps until the turn has its answer, or the run has ended."""
    while run.state.status == "running":
        run.llm.refuse_late()
        step = _step(run)
        if step.answer is not None:
            run.state.answer = step.answer
            run.reporter.answered(step.answer)
            return
        if run.reflection.is_stuck:
            _end_partial(run.state, "loop_detected", "three replans brought no progress")


def _step(run: Run) -> StepRecord:
    """One step: a decision, what came of it, and what the guards say to it. A step that did anything is never lost."""
    state = run.state
    step = StepRecord(index=len(state.steps), turn=state.turn)
    run.llm.step = step.index
    first_call = len(state.calls)
    try:
        decision, answer_only = _decide(run)
        _note(run, step, decision)
        run.reporter.think(step)
        _carry_out(run, step, decision, answer_only=answer_only)
    except ModelError as error:
        _fault(run, step, error)
    finally:
        step.calls = list(range(first_call, len(state.calls)))
        if step.calls or step.actions or step.faults or step.guards or step.answer is not None:
            state.steps.append(step)
    if step.answer is None:
        _reflect(run, step)
    return step


def _decide(run: Run) -> tuple[Decision, bool]:
    """The strategy's decision, and whether only an answer was asked for."""
    try:
        return run.strategy.decide(run.state, run.llm, answer_only=False), False
    except OnlyAnswerLeftError as error:
        run.reporter.notice(f"only a final answer may be asked for now: {error}")
        return run.strategy.decide(run.state, run.llm, answer_only=True), True


def _note(run: Run, step: StepRecord, decision: Decision) -> None:
    step.progress_check = decision.progress_check
    step.thought, step.thinking = decision.thought, decision.thinking
    step.actions, step.repairs = decision.actions, decision.repairs
    step.tool_faults = list(decision.tool_faults)
    if decision.chosen is not None:
        run.state.chosen = decision.chosen
        run.reporter.notice(f"auto: {decision.chosen.strategy}: {decision.chosen.reason}")
    for repair in decision.repairs:
        run.reporter.notice(f"repaired: {repair}")
    for event in decision.events:
        _guard(run, step, event)
    for refused in decision.refused:
        _fault(run, step, refused)


def _fault(run: Run, step: StepRecord, error: ModelError) -> None:
    """What of a reply cannot be used: told to the model with the next prompt, and counted where it is a tool call."""
    step.faults.append(f"{error.error_type}: {error}")
    last = run.state.last_chat
    tools_offered = last is not None and last.tools_hash is not None
    kind = fault_kind(
        error,
        tools_offered=tools_offered or isinstance(error, ToolCallError),
        completion_tokens=last.usage.completion_tokens if last else None,
        may_act=last is not None and run.state.ledger[last.index].purpose == "act",
    )
    if kind is not None:
        step.tool_faults.append(kind)
    run.reporter.notice(f"unusable reply ({error.error_type}): {error}")


def _carry_out(run: Run, step: StepRecord, decision: Decision, *, answer_only: bool) -> None:
    none_failed = run.actions.run(
        run.state, step, answer_only=answer_only, in_order=decision.in_order, is_over=run.llm.is_over
    )
    if decision.answer is None or not none_failed:
        return
    rejection = None if answer_only else reject_unfounded(run.state, step)
    if rejection is None:
        step.answer = decision.answer
    else:
        _guard(run, step, rejection)


def _reflect(run: Run, step: StepRecord) -> None:
    replan = run.reflection.reflect(step)
    if replan is not None:
        _guard(run, step, replan)


def _guard(run: Run, step: StepRecord, event: GuardEvent) -> None:
    step.guards.append(event)
    run.reporter.notice(f"{event.guard}: {event.message}")


def _end(state: AgentState, status: Status, reason: str) -> None:
    state.status, state.status_reason = status, reason


def _end_partial(state: AgentState, status: Status, reason: str) -> None:
    """End without the model's answer: what was found stands in for it, and says that it is partial.

    The status comes last, so that a stop that falls in between leaves a run that is not yet ended.
    """
    state.answer = None
    if state.scratchpad:
        state.answer_is_partial = True
        state.answer = "\n".join(["Partial answer, from what was found:", *state.scratchpad])
    _end(state, status, reason)


def _end_by_server(run: Run, error: BackendError) -> None:
    """A window that is full is a limit like any other; every other server fault makes the run invalid."""
    if error.error_type == "context_overflow":
        _end_partial(run.state, "budget_exhausted", f"context: {error}")
        return
    run.state.error = call_error(error)
    _end_partial(run.state, "error", f"{error.error_type}: {error}")
    run.reporter.notice(f"the run is invalid: {error.error_type}: {error}")
