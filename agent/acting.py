"""ACT and OBSERVE: a step's tool calls, each put before the guards and a person where it has to be, and then run.

Whatever becomes of a call, there is a ToolResult for the model to observe; only a call that nobody could be asked
about has none, and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from agent.errors import ShoestringError
from agent.guards.approvals import Policy
from agent.guards.loop_detector import LoopDetector, Repeat
from agent.guards.schema_guardrail import prompt_bleed
from agent.prompts import notices
from agent.reporter import Reporter
from agent.state import AgentState, Approval, GuardEvent, StepRecord, ToolCall, ToolFault, ToolResult
from agent.tools.base import ToolError
from agent.tools.registry import CheckedCall, Question, ToolRegistry

# Faults of the world that another try may not meet: the same call is no repeat then.
MAY_HEAL = frozenset({"changed", "network", "rate_limited", "timeout"})
MAX_CALLS_A_REPLY = 16  # far more than a task needs at once; a reply may hold thousands
MAX_HEARD_CHARS = 50_000  # of what was said so far, the latest
MAX_NOTE_CHARS = 600  # of one result in the scratchpad; the whole result stands in its step
_FAULTS: dict[str, ToolFault] = {"unknown_tool": "wrong_name", "bad_args": "bad_arguments"}

# Asks a person whether this very call may be made.
Approver = Callable[[Question], bool]


class ConfirmationRequiredError(ShoestringError):
    """A person has to be asked about a call, and there is nobody to ask. The call stands in the step."""


@dataclass
class Actions:
    """What stands between the calls that a model decided on and the tools of one run.

    `approver` is None where nobody can be asked (a batch).
    """

    tools: ToolRegistry
    reporter: Reporter
    policy: Policy = field(default_factory=Policy)
    approver: Approver | None = None
    detector: LoopDetector = field(default_factory=LoopDetector)

    def new_turn(self) -> None:
        """Forget the calls of the user's last turn: the same may be asked again."""
        self.detector = LoopDetector()

    def run(
        self,
        state: AgentState,
        step: StepRecord,
        *,
        answer_only: bool = False,
        in_order: bool = False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Make the step's calls in order, and say whether none failed. A call stands in the step as it was repaired.

        `is_over` is asked before each: whether the run's time is over, or a person has stopped it. A call that was
        made before is no failure: its result stands above.

        Raises:
            ConfirmationRequiredError: a person must be asked, and there is none.
            UsageError: what the person set up for a tool (a corpus folder) cannot be used.
        """
        for place in range(len(step.actions)):
            self.reporter.act(step.actions[place])
            if answer_only:
                result = _not_made("answer_only", notices.ANSWER_ONLY)
            elif in_order and _failed(step):
                result = _not_made("skipped", notices.not_run_after_failure())
            elif place >= MAX_CALLS_A_REPLY:
                result = _not_made("skipped", notices.too_many_calls(MAX_CALLS_A_REPLY))
            elif is_over():
                result = _not_made("out_of_time", notices.out_of_time())
            else:
                result = self._act(state, step, place)
            step.results.append(result)
            if result.success:
                state.scratchpad.append(f"{step.actions[place].name}: {result.data[:MAX_NOTE_CHARS]}")
            self.reporter.observe(step.actions[place], result)
        return not _failed(step)

    def _act(self, state: AgentState, step: StepRecord, place: int) -> ToolResult:
        asked = step.actions[place]
        query = self.tools.query_of(asked)
        repeat = self.detector.earlier(asked, query)
        if repeat is not None:
            return self._repeated(step, repeat)
        self.detector.remember(asked, step.index, query)
        try:
            checked = self.tools.validate(asked)
        except ToolError as error:
            if error.error_type in _FAULTS:
                step.tool_faults.append(_FAULTS[error.error_type])
            return ToolResult(success=False, error=str(error), error_type=error.error_type)
        for repair in checked.repairs:
            step.repairs.append(repair)
            self.reporter.notice(f"repaired: {repair} of {checked.call.name}")
        return self._checked(state, step, place, checked)

    def _checked(self, state: AgentState, step: StepRecord, place: int, checked: CheckedCall) -> ToolResult:
        """A call that fits its schema: is it the model's own words, was it made before, may it be made?"""
        asked = step.actions[place]
        checked, refused = self._without_bleed(state, step, checked)
        step.actions[place] = checked.call
        if refused is not None:
            return refused
        if checked.call != asked:
            self.detector.forget(asked)  # it is the call as repaired that counts; as asked it leads to the same
            query = self.tools.query_of(checked.call)
            repeat = self.detector.earlier(checked.call, query)
            if repeat is not None:
                return self._repeated(step, repeat)
            self.detector.remember(checked.call, step.index, query)
        if (denied := self._not_allowed(step, place, checked)) is not None:
            return denied
        result = self.tools.run(checked)
        self._learn(step, asked, checked, result)
        return result

    def _learn(self, step: StepRecord, asked: ToolCall, checked: CheckedCall, result: ToolResult) -> None:
        """What a result says of making calls again."""
        # A program that failed, or ran out of time, has run: it may have changed something all the same.
        may_have_acted = result.success or checked.tool.effect == "execute"
        if may_have_acted and checked.tool.changes_what_is_read(checked.params):
            self.detector = LoopDetector()
            self.detector.remember(checked.call, step.index)
        elif not result.success:  # a search that found nothing may be put in other words, but not in the same
            self.detector.forget(checked.call)
            self.detector.remember(checked.call, step.index)
        does_more = result.success and checked.tool.does_more_again(checked.params)
        if does_more or result.error_type in MAY_HEAL:
            self.detector.forget(asked, checked.call)

    def _repeated(self, step: StepRecord, repeat: Repeat) -> ToolResult:
        same = repeat.guard == "identical_call"
        message = notices.repeated_call(repeat.step) if same else notices.similar_call(repeat.step)
        event = GuardEvent(guard=repeat.guard, tier=0, message=message, measure=repeat.measure, score=repeat.score)
        self._guard(step, event)
        return ToolResult(success=False, error=message, error_type="repeated")

    def _without_bleed(
        self, state: AgentState, step: StepRecord, checked: CheckedCall
    ) -> tuple[CheckedCall, ToolResult | None]:
        """The call without words of the prompt in its arguments, or its refusal."""
        schema = self.tools.parameters(checked.call.name)
        bleed = prompt_bleed(checked.call, schema, state.turn_text, _heard(state)) if schema else None
        if bleed is None:
            return checked, None
        self._guard(step, GuardEvent(guard="schema_guardrail", tier=0, message=bleed.why))
        if bleed.replacement is not None:
            with suppress(ToolError):  # what the user said may be none that the tool takes
                return self.tools.validate(bleed.replacement), None
        step.tool_faults.append("bad_arguments")
        return checked, ToolResult(success=False, error=bleed.why, error_type="prompt_bleed")

    def _not_allowed(self, step: StepRecord, place: int, checked: CheckedCall) -> ToolResult | None:
        """The refusal of a call that policy or a person does not allow; None where it may be made."""
        call = checked.call
        permission = self.policy.permission(call.name, checked.tool.effect)
        if permission == "allow":
            return None
        if permission == "deny":
            message = notices.forbidden_call(call.name)
            self._guard(step, GuardEvent(guard="approval", tier=0, message=message))
            return ToolResult(success=False, error=message, error_type="forbidden")
        if self.approver is None:
            step.approvals.append(Approval(action=place, verdict="unanswered"))
            raise ConfirmationRequiredError(f"{call.name}: a person has to allow this call, and nobody can be asked")
        if self.approver(self.tools.question(checked)):
            step.approvals.append(Approval(action=place, verdict="allowed"))
            return None
        step.approvals.append(Approval(action=place, verdict="denied"))
        message = notices.denied_call(call.name)
        self._guard(step, GuardEvent(guard="approval", tier=0, message=message))
        return ToolResult(success=False, error=message, error_type="denied")

    def _guard(self, step: StepRecord, event: GuardEvent) -> None:
        step.guards.append(event)
        self.reporter.notice(f"{event.guard}: {event.message}")


def _failed(step: StepRecord) -> bool:
    """Whether an action of the step failed. One that was not made again for its result is known did not."""
    return any(not result.success and result.error_type != "repeated" for result in step.results)


def _not_made(error_type: str, message: str) -> ToolResult:
    return ToolResult(success=False, error=message, error_type=error_type)


def _heard(state: AgentState) -> str:
    """What the user and the tools have said in this run: whoever repeats that repeats no prompt."""
    results = (result.data for step in state.steps for result in step.results if result.success)
    return "\n".join([state.task, *state.follow_ups, *results])[-MAX_HEARD_CHARS:]
