"""One run from task to AgentState: THINK -> ACT -> OBSERVE -> REFLECT until an answer, a cap, or a loop.

Nothing here opens a connection, reads a setting or prints; all of it was handed in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from agent.errors import BackendError, BudgetExceededError, CancelledRunError, ModelError, OnlyAnswerLeftError
from agent.guards.evidence import reject_unfounded
from agent.guards.loop_detector import LoopDetector
from agent.guards.reflection import Reflection
from agent.llm.client import LLMClient
from agent.llm.opening import call_error
from agent.prompts import notices
from agent.reporter import Reporter
from agent.state import AgentState, GuardEvent, Status, StepRecord, ToolCall, ToolResult
from agent.strategies.base import Decision, Strategy
from agent.tools.base import ToolError
from agent.tools.registry import ToolRegistry

# Faults of the world that another try may not meet: the same call is no repeat then.
MAY_HEAL = frozenset({"network", "rate_limited", "timeout"})
MAX_NOTE_CHARS = 600  # of one result in the scratchpad; the whole result stands in its step


@dataclass
class Run:
    """The parts of one run, each made for it alone."""

    state: AgentState
    llm: LLMClient
    tools: ToolRegistry
    strategy: Strategy
    reporter: Reporter
    detector: LoopDetector = field(default_factory=LoopDetector)
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
    except BackendError as error:
        _end_by_server(run, error)
    except (CancelledRunError, KeyboardInterrupt):
        _end_partial(state, "cancelled", "stopped by the person")
    state.seconds = round(time.monotonic() - started, 6)
    state.replans = sum(event.guard == "replan" for step in state.steps for event in step.guards)
    run.reporter.run_finished(state)
    return state


def _turns(run: Run) -> None:
    while run.state.status == "running":
        step = _turn(run)
        if step.answer is not None:
            run.state.answer = step.answer
            _end(run.state, "completed", "the model gave its answer")
        elif run.reflection.is_stuck:
            _end_partial(run.state, "loop_detected", "three replans brought no progress")


def _turn(run: Run) -> StepRecord:
    """One step: a decision, what came of it, and what the guards say to it. A step that made a call is never lost."""
    state = run.state
    step = StepRecord(index=len(state.steps))
    run.llm.step = step.index
    first_call = len(state.calls)
    try:
        decision, answer_only = _decide(run)
        _note(step, decision)
        for repair in decision.repairs:
            run.reporter.notice(f"repaired: {repair}")
        run.reporter.think(step)
        _carry_out(run, step, decision, answer_only=answer_only)
    except ModelError as error:
        step.faults.append(f"{error.error_type}: {error}")
        run.reporter.notice(f"unusable reply ({error.error_type}): {error}")
    finally:
        step.calls = list(range(first_call, len(state.calls)))
        if step.calls:
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


def _note(step: StepRecord, decision: Decision) -> None:
    step.progress_check = decision.progress_check
    step.thought, step.thinking = decision.thought, decision.thinking
    step.actions, step.repairs = decision.actions, decision.repairs


def _carry_out(run: Run, step: StepRecord, decision: Decision, *, answer_only: bool) -> None:
    if decision.answer is None:
        for place in range(len(step.actions)):
            step.results.append(_act(run, step, place, answer_only=answer_only))
        return
    rejection = None if answer_only else reject_unfounded(run.state)
    if rejection is None:
        step.answer = decision.answer
    else:
        _guard(run, step, rejection)


def _act(run: Run, step: StepRecord, place: int, *, answer_only: bool) -> ToolResult:
    """Execute one call, unless it may not be or was made before; either way there is a result to observe."""
    call = step.actions[place]
    run.reporter.act(call)
    if answer_only:
        result = ToolResult(success=False, error=notices.ANSWER_ONLY, error_type="answer_only")
    else:
        result = _repeated(run, step, call) or _execute(run, step, place)
    if result.success:
        run.state.scratchpad.append(f"{call.name}: {result.data[:MAX_NOTE_CHARS]}")
    run.reporter.observe(call, result)
    return result


def _repeated(run: Run, step: StepRecord, call: ToolCall) -> ToolResult | None:
    """The refusal of a call that was made before; None where it was not."""
    earlier = run.detector.earlier_step(call)
    if earlier is None:
        return None
    message = notices.repeated_call(earlier)
    _guard(run, step, GuardEvent(guard="identical_call", tier=0, message=message))
    return ToolResult(success=False, error=message, error_type="repeated")


def _execute(run: Run, step: StepRecord, place: int) -> ToolResult:
    """Check the call against its schema and run it. A repair is noted, and the call stands as repaired."""
    asked = step.actions[place]
    run.detector.remember(asked, step.index)
    try:
        checked = run.tools.validate(asked)
    except ToolError as error:
        return ToolResult(success=False, error=str(error), error_type=error.error_type)
    step.actions[place] = checked.call
    for repair in checked.repairs:
        step.repairs.append(repair)
        run.reporter.notice(f"repaired: {repair} of {checked.call.name}")
    if checked.call != asked:
        if refused := _repeated(run, step, checked.call):
            return refused
        run.detector.remember(checked.call, step.index)
    result = run.tools.run(checked)
    if result.error_type in MAY_HEAL:
        run.detector.forget(asked, checked.call)
    return result


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
