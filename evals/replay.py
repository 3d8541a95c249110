"""A trace run again without a model: the same replies, and by default the same tool results, through today's code.

The first step that comes out otherwise says what a change did. Durations are not compared.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.acting import Actions, Approver
from agent.budget import BudgetEnforcer, Limits, Prices
from agent.errors import ReplayMismatchError, UsageError
from agent.guards.approvals import Policy
from agent.journal import NoJournal
from agent.llm.backends.replay import ReplayBackend
from agent.llm.client import LLMClient
from agent.loop import Run, run_task
from agent.reporter import Reporter, SilentReporter
from agent.state import AgentState, StepRecord, ToolCall, ToolResult, content_hash
from agent.strategies.registry import STRATEGIES, make_strategy
from agent.tools.base import ToolContext, ToolError
from agent.tools.registry import CheckedCall, ToolRegistry, toolset
from evals.workspaces import fresh_workspace

SHOWN_CHARS = 160


@dataclass(frozen=True)
class Replayed:
    """`difference` is None where the run came out the same; `state` is the run as it went this time."""

    state: AgentState
    difference: str | None


class RecordedTools(ToolRegistry):
    """Tools that give back what a trace holds, in its order, and run nothing."""

    def play(self, trace: AgentState) -> None:
        """Take the results of all calls that came before the tools. A run that was stopped may lack its last one."""
        pairs = [pair for step in trace.steps for pair in zip(step.actions, step.results, strict=False)]
        self._recorded = [(call, result) for call, result in pairs if result.error_type not in _NEVER_ASKED]

    def validate(self, call: ToolCall) -> CheckedCall:
        """As ever; a call that is refused here was refused the first time, and its result is used up."""
        try:
            return super().validate(call)
        except ToolError:
            if self._recorded and self._recorded[0][0] == call:
                self._next(call)
            raise

    def run(self, checked: CheckedCall) -> ToolResult:
        """The next recorded result.

        Raises:
            ReplayMismatchError: another call was recorded here.
        """
        return self._next(checked.call).model_copy()

    def _next(self, asked: ToolCall) -> ToolResult:
        if not self._recorded:
            raise ReplayMismatchError(f"the trace holds no further tool call, and {asked.name} was called")
        call, result = self._recorded.pop(0)
        if (call.name, call.arguments) != (asked.name, asked.arguments):
            raise ReplayMismatchError(f"tool call differs: {_difference(call.model_dump(), asked.model_dump())}")
        return result


# What the loop refused by itself: the tools were never asked.
_NEVER_ASKED = frozenset({"repeated", "answer_only", "skipped", "prompt_bleed", "forbidden", "denied"})


def _answers_of(trace: AgentState) -> Approver | None:
    """What the person said each time, in order; None where nobody could be asked."""
    said = [approval.verdict for step in trace.steps for approval in step.approvals]
    if "unanswered" in said or not said:
        return None
    answers = iter(said)
    return lambda _call: next(answers, "denied") == "allowed"


def replay(trace: AgentState, *, live_tools: bool = False, reporter: Reporter | None = None) -> Replayed:
    """Run a trace again. With `live_tools` the tools really run, so that only the model is played back.

    They find the workspace as the trace holds it; a file whose text it does not hold is missing there.

    Raises:
        UsageError: live tools would need a person's own folder, of which a trace holds nothing.
    """
    reporter = reporter or SilentReporter()
    if not live_tools:
        return _played(trace, _tools(trace, live=False), reporter)
    if trace.workspace is not None and trace.workspace.folder is not None:
        raise UsageError("the run worked in a person's folder, which its trace does not hold; leave out --live-tools")
    before = trace.workspace.before if trace.workspace else []
    files = {file.path: file.text for file in before if file.text is not None}
    with fresh_workspace(files) as workspace, closing(_tools(trace, live=True, workspace=workspace)) as tools:
        return _played(trace, tools, reporter)


def _played(trace: AgentState, tools: ToolRegistry, reporter: Reporter) -> Replayed:
    strategy = make_strategy(trace.strategy, tools, trace.sampling.max_completion_tokens)
    state = trace.model_copy(
        update={"steps": [], "calls": [], "ledger": [], "scratchpad": [], "replans": 0, "answer": None}
        | {"answer_is_partial": False, "status": "running", "status_reason": "", "error": None, "verdict": None}
        | {"follow_ups": [], "chosen": None, "tool_faults": {}}
    )
    limits = Limits(trace.limits.max_calls, trace.limits.max_cost_microusd, trace.limits.max_seconds)
    prices = Prices(trace.prices.prompt_microusd_per_1k, trace.prices.completion_microusd_per_1k)
    backend = ReplayBackend(trace)
    llm = LLMClient(
        backend,
        BudgetEnforcer(limits, prices, clock=lambda: 0.0),  # no clock runs: only the recorded calls may end it
        state,
        journal=NoJournal(),
        reporter=reporter,
        sleep=lambda _seconds: None,
    )
    outside = _ended_from_outside(trace)
    try:
        actions = Actions(tools, reporter, Policy(trace.approve), _answers_of(trace))
        run_task(Run(state, llm, actions, strategy, reporter, iter(trace.follow_ups)))
    except ReplayMismatchError as error:
        if backend.is_finished and outside:
            return Replayed(state, _cut_off(trace, state))
        return Replayed(state, f"step {len(state.steps)}: {error}")
    if backend.is_finished and outside:
        return Replayed(state, _cut_off(trace, state))
    return Replayed(state, _steps_differ(trace.steps, state.steps) or _ends_differ(trace, state))


def _tools(trace: AgentState, *, live: bool, workspace: Path | None = None) -> ToolRegistry:
    chosen = [tool for tool in toolset(trace.toolset) if tool.name in trace.tools]
    now = datetime.fromisoformat(trace.now) if trace.now else None
    context = ToolContext(corpus=Path(trace.corpus) if trace.corpus else None, now=now, workspace=workspace)
    if live:
        return ToolRegistry(chosen, context)
    tools = RecordedTools(chosen, context)
    tools.play(trace)
    return tools


def _ended_from_outside(trace: AgentState) -> bool:
    """Whether what ended the run is not in its replies: a clock, a person, a batch's purse, a count that failed.

    A prompt that was counted and found too long for the window left no mark either: it was never sent.
    """
    if trace.status == "budget_exhausted":
        return trace.ended_by == "batch" or trace.status_reason.startswith("context:")
    if trace.status == "error":  # a fault of a call is replayed; one before any call leaves no mark but the status
        fault = trace.calls[-1].error if trace.calls else None
        had_no_time = fault is not None and fault.retry and trace.limits.max_seconds is not None
        return fault is None or had_no_time
    return trace.status in ("timeout", "cancelled")


def _cut_off(trace: AgentState, state: AgentState) -> str | None:
    """The first difference of a run that ended from outside: what went on after that is not the trace's.

    A person's stop may fall anywhere within the last step and its call, so neither is compared then.
    """
    spare = 1 if trace.status == "cancelled" else 0
    steps, calls = max(0, len(trace.steps) - spare), max(0, len(trace.ledger) - spare)
    asked_again = [
        step.model_copy(update={"calls": [call for call in step.calls if call < len(trace.calls)]})
        for step in state.steps[:steps]
    ]
    if difference := _steps_differ(trace.steps[:steps], asked_again):
        return difference
    if trace.ledger[:calls] != state.ledger[:calls]:
        return f"the ledger differs: {_difference(_entries(trace, calls), _entries(state, calls))}"
    return None


def _entries(state: AgentState, count: int) -> list[dict[str, Any]]:
    return [entry.model_dump() for entry in state.ledger[:count]]


def why_not(trace: AgentState) -> str | None:
    """Why a trace cannot be replayed by this version, or None where it can.

    A run in which a batch's purse may have shortened a reply would need the batch; one that a bug of ours ended is no
    measure; and other prompts or tools than today's lead elsewhere, which is what a replay by hand is there to show.
    """
    batch, answered = trace.batch_limits, any(entry.purpose == "answer" for entry in trace.ledger)
    has_purse = batch is not None and batch.max_cost_microusd is not None
    if any(entry.shrunk_by == "batch" for entry in trace.ledger) or (has_purse and answered):
        return "its batch's money may have made a reply shorter"
    if trace.error is not None and trace.error.fault == "harness":
        return "a bug of Shoestring ended it"
    return None


def is_of_this_version(trace: AgentState) -> bool:
    """Whether today's prompts and tools are those of the trace, so that it has to replay to itself."""
    if trace.strategy not in STRATEGIES:
        return False
    try:
        tools = _tools(trace, live=False)
    except UsageError:  # a toolset that there is no more
        return False
    strategy = make_strategy(trace.strategy, tools, trace.sampling.max_completion_tokens)
    now = ([content_hash(text) for text in strategy.system_prompts], tools.hash())
    return now == (trace.system_prompt_hashes, trace.tools_hash)


def _steps_differ(recorded: list[StepRecord], now: list[StepRecord]) -> str | None:
    for old, new in zip(recorded, now, strict=False):
        before, after = _comparable(old), _comparable(new)
        for name in before:
            if before[name] != after[name]:
                return f"step {old.index + 1}: {name} differs: {_difference(before[name], after[name])}"
    if len(recorded) != len(now):
        return f"step {min(len(recorded), len(now)) + 1}: {len(recorded)} steps became {len(now)}"
    return None


_COMPARED_AT_THE_END = (
    *("ledger", "scratchpad", "replans", "follow_ups", "chosen"),
    *("tool_faults", "answer", "answer_is_partial", "status"),
)


def _ends_differ(trace: AgentState, state: AgentState) -> str | None:
    for name in _COMPARED_AT_THE_END:
        if getattr(trace, name) != getattr(state, name):
            return f"after the last step: {name} differs: {_difference(getattr(trace, name), getattr(state, name))}"
    return None


def _comparable(step: StepRecord) -> dict[str, Any]:
    fields = step.model_dump()
    for result in fields["results"]:
        result.pop("seconds")
    return fields


def _difference(old: object, new: object) -> str:
    before, after = json.dumps(old, default=repr), json.dumps(new, default=repr)
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    start = max(0, same - 30)
    return f"was {before[start : start + SHOWN_CHARS]}, is {after[start : start + SHOWN_CHARS]}"
