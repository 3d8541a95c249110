"""A run's verdict against ground truth: the union of all asserts, and `judge`. Pure: no I/O, no clock.

An assert type is one class: its fields, and a check. A new one is added to `Assert` below and to docs/suites.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from agent.state import AgentState, AssertResult, LimitsRecord, ModelInfo, PricesRecord, Sampling, Status, Verdict
from evals.answer_asserts import (
    AnswerContains,
    AnswerEquals,
    AnswerJson,
    AnswerNotContains,
    AnswerNotRegex,
    AnswerNumber,
    AnswerRegex,
)
from evals.assert_base import AssertSpec, Finding, shorten
from evals.file_asserts import FileIs
from evals.run_asserts import (
    MaxCalls,
    MaxCostUsd,
    ScratchpadNotEmpty,
    StatusIs,
    ToolCalled,
    ToolNotCalled,
    ToolResultIs,
)


class AnyOf(AssertSpec):
    """At least one of these asserts holds."""

    type: Literal["any_of"]
    value: Annotated[list[Assert], Field(min_length=1)]

    def check(self, state: AgentState) -> Finding:
        parts = [(part.type, part.holds(state)) for part in self.value]
        failed = "; ".join(f"{name}: {shorten(found.seen, 80)}" for name, found in parts)
        return Finding(any(found.passed for _, found in parts), failed)


class AllOf(AssertSpec):
    """Every one of these asserts holds."""

    type: Literal["all_of"]
    value: Annotated[list[Assert], Field(min_length=1)]

    def check(self, state: AgentState) -> Finding:
        failed = [(part.type, found.seen) for part in self.value if not (found := part.holds(state)).passed]
        return Finding(not failed, "; ".join(f"{name}: {shorten(seen, 80)}" for name, seen in failed))


Assert = Annotated[
    AnswerEquals
    | AnswerContains
    | AnswerNotContains
    | AnswerRegex
    | AnswerNotRegex
    | AnswerNumber
    | AnswerJson
    | ToolCalled
    | ToolNotCalled
    | ToolResultIs
    | StatusIs
    | MaxCalls
    | MaxCostUsd
    | ScratchpadNotEmpty
    | FileIs
    | AnyOf
    | AllOf,
    Field(discriminator="type"),
]
AnyOf.model_rebuild()
AllOf.model_rebuild()

ASSERT_CLASSES: dict[str, type[AssertSpec]] = {
    get_args(spec.model_fields["type"].annotation)[0]: spec for spec in get_args(get_args(Assert)[0])
}

_ASSERT: TypeAdapter[AssertSpec] = TypeAdapter(Assert)

# How a run can end, and be scored, without a step or an answer: the caps were too small for its first call, or the
# guards stopped it. `completed` needs an answer, `confirmation_required` a call.
_EMPTY_ENDINGS: tuple[Status, ...] = ("budget_exhausted", "loop_detected", "timeout")


def judge(state: AgentState, asserts: Sequence[AssertSpec]) -> Verdict:
    """Judge a finished run. Invalid where the server, the machine or the harness is at fault, or it was cancelled.

    Raises:
        ValueError: there is nothing to judge by.
    """
    if not asserts:
        raise ValueError("a verdict needs at least one assert")
    if reason := _invalid_because(state):
        return Verdict(outcome="invalid", reason=reason)
    results = [_line(state, spec) for spec in asserts]
    failed = [line.type for line in results if not line.passed]
    return Verdict(
        outcome="fail" if failed else "pass", asserts=results, reason=f"failed: {', '.join(failed)}" if failed else ""
    )


def judged_again(state: AgentState, line: AssertResult) -> bool | None:
    """Whether an assert holds, worked out from its line in a verdict; None where the line states none of today's."""
    fields = line.expected if isinstance(line.expected, dict) else {"value": line.expected}
    try:
        spec = _ASSERT.validate_python({"type": line.type, **fields})
    except ValidationError:
        return None
    return bool(spec.holds(state).passed)


def passes_on_nothing(asserts: Sequence[AssertSpec]) -> bool:
    """Whether a run that did nothing at all (no step, no answer) could be called a pass."""
    return any(all(spec.holds(_empty_run(ending)).passed for spec in asserts) for ending in _EMPTY_ENDINGS)


def _line(state: AgentState, spec: AssertSpec) -> AssertResult:
    found = spec.holds(state)
    fields = spec.model_dump(mode="json", exclude_defaults=True, exclude={"type"})
    alone = fields.keys() == {"value"} and not isinstance(fields["value"], dict)
    expected = fields["value"] if alone else fields
    message = "" if found.passed else shorten(found.seen)
    return AssertResult(type=spec.type, expected=expected, passed=found.passed, message=message)


def _invalid_because(state: AgentState) -> str:
    if state.ended_by == "batch":
        return shorten(f"the batch's cap ended the run, not its own: {state.status_reason}")
    if state.status in ("running", "cancelled"):
        return "the run was cancelled" if state.status == "cancelled" else "the run never ended"
    if state.status != "error" or (state.error is not None and state.error.fault == "model"):
        return ""
    if state.error is None:
        return shorten(f"the harness failed: {state.status_reason or 'no reason was recorded'}")
    return shorten(f"{state.error.error_type}: {state.error.message}")


def _empty_run(status: Status) -> AgentState:
    return AgentState(
        run_id="empty",
        task="",
        strategy="none",
        model=ModelInfo(name="none", backend="none"),
        sampling=Sampling(temperature=0, seed=0, num_ctx=1, max_completion_tokens=1),
        limits=LimitsRecord(max_calls=None, max_cost_microusd=None, max_seconds=None),
        prices=PricesRecord(prompt_microusd_per_1k=0, completion_microusd_per_1k=0),
        status=status,
    )
