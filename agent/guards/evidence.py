"""An answer before any tool has succeeded rests on nothing: it is rejected, once."""

from __future__ import annotations

from agent.prompts import notices
from agent.state import AgentState, GuardEvent


def has_evidence(state: AgentState) -> bool:
    """Whether any tool call of the run has succeeded."""
    return any(result.success for step in state.steps for result in step.results)


def reject_unfounded(state: AgentState) -> GuardEvent | None:
    """The rejection of an answer given now; None where it may stand (evidence is there, or one was rejected before)."""
    rejected_before = any(event.guard == "evidence" for step in state.steps for event in step.guards)
    if not state.evidence or rejected_before or has_evidence(state):
        return None
    return GuardEvent(guard="evidence", tier=0, message=notices.NO_EVIDENCE)
