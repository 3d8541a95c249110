"""An answer before any tool has succeeded rests on nothing: it is rejected, once."""

from __future__ import annotations

from agent.prompts import notices
from agent.state import AgentState, GuardEvent, StepRecord


def has_evidence(state: AgentState, under_way: StepRecord | None = None) -> bool:
    """Whether any tool call of the run, or of the step that is under way, has succeeded."""
    steps = state.steps if under_way is None else [*state.steps, under_way]
    return any(result.success for step in steps for result in step.results)


def reject_unfounded(state: AgentState, under_way: StepRecord) -> GuardEvent | None:
    """The rejection of an answer given now; None where it may stand (evidence is there, or one was rejected before)."""
    rejected_before = any(event.guard == "evidence" for step in state.steps for event in step.guards)
    if not state.evidence or rejected_before or has_evidence(state, under_way):
        return None
    return GuardEvent(guard="evidence", tier=0, message=notices.NO_EVIDENCE)
