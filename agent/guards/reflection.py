"""Tiered reflection: from what a step did to what the model is told next, without asking a model.

Tier 0 looks at the step itself (a failure, an empty result, a repeated call). Tier 1 takes the model's own
`progress_check`. Tier 2 is a replan notice, which repeats the budget. Tier 3, on the last affordable call, leaves
only the final answer. Three replans in a row without progress end the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.prompts import notices
from agent.state import GuardEvent, StepRecord

MAX_REPLANS = 3
SETBACKS_BEFORE_REPLAN = 2


@dataclass
class Reflection:
    """The memory of one run's reflection: setbacks in a row, and replans since the last progress."""

    setbacks: int = 0
    replans_without_progress: int = 0

    def reflect(self, step: StepRecord) -> GuardEvent | None:
        """The replan notice that this step calls for, if any. Progress (a new successful result) clears the slate.

        Raises nothing; when `is_stuck` is true afterwards the run should end.
        """
        repeated = any(event.guard in ("identical_call", "similar_call") for event in step.guards)
        if made_progress(step):
            self.setbacks = self.replans_without_progress = 0
            return self._replan(notices.REPLAN_STUCK) if step.progress_check == "stuck" else None
        self.setbacks += 1
        if repeated:
            return self._replan(notices.REPLAN_REPEATED)
        if step.progress_check == "stuck":
            return self._replan(notices.REPLAN_STUCK)
        if self.setbacks >= SETBACKS_BEFORE_REPLAN:
            return self._replan(notices.REPLAN_SETBACKS)
        return None

    @property
    def is_stuck(self) -> bool:
        """True once a further replan was due after MAX_REPLANS of them brought no progress."""
        return self.replans_without_progress > MAX_REPLANS

    def _replan(self, message: str) -> GuardEvent:
        self.replans_without_progress += 1
        return GuardEvent(guard="replan", tier=2, message=message)


def made_progress(step: StepRecord) -> bool:
    """Whether the step brought a successful, non-empty result. A call that was made before brings none."""
    return any(result.success and result.data.strip() for result in step.results)
