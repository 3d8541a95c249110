"""A trace run again without a model: the same replies, and by default the same tool results, through today's code.

The first step that comes out otherwise says what a change did. Durations are not compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.budget import BudgetEnforcer, Limits, Prices
from agent.errors import ReplayMismatchError
from agent.journal import NoJournal
from agent.llm.backends.replay import ReplayBackend
from agent.llm.client import LLMClient
from agent.loop import Run, run_task
from agent.reporter import Reporter, SilentReporter
from agent.state import AgentState, StepRecord, ToolResult
from agent.strategies.registry import make_strategy
from agent.tools.base import ToolContext
from agent.tools.registry import CheckedCall, ToolRegistry, toolset

SHOWN_CHARS = 160


@dataclass(frozen=True)
class Replayed:
    """`difference` is None where the run came out the same; `state` is the run as it went this time."""

    state: AgentState
    difference: str | None


class RecordedTools(ToolRegistry):
    """Tools that give back what a trace holds, in its order, and run nothing."""

    def play(self, trace: AgentState) -> None:
        """Take the results of all calls that were run."""
        pairs = [pair for step in trace.steps for pair in zip(step.actions, step.results, strict=True)]
        self._recorded = [(call, result) for call, result in pairs if result.error_type not in _NEVER_RUN]

    def run(self, checked: CheckedCall) -> ToolResult:
        """The next recorded result.

        Raises:
            ReplayMismatchError: another call was recorded here.
        """
        if not self._recorded:
            raise ReplayMismatchError(f"the trace holds no further tool call, and {checked.call.name} was called")
        call, result = self._recorded.pop(0)
        if (call.name, call.arguments) != (checked.call.name, checked.call.arguments):
            raise ReplayMismatchError(f"tool call differs: {_difference(call.model_dump(), checked.call.model_dump())}")
        return result.model_copy()


_NEVER_RUN = frozenset({"repeated", "answer_only", "unknown_tool", "bad_args"})


def replay(trace: AgentState, *, live_tools: bool = False, reporter: Reporter | None = None) -> Replayed:
    """Run a trace again. With `live_tools` the tools really run, so that only the model is played back."""
    reporter = reporter or SilentReporter()
    tools = _tools(trace, live=live_tools)
    strategy = make_strategy(trace.strategy, tools, trace.sampling.max_completion_tokens)
    state = trace.model_copy(
        update={"steps": [], "calls": [], "ledger": [], "scratchpad": [], "replans": 0, "answer": None}
        | {"answer_is_partial": False, "status": "running", "status_reason": "", "error": None, "verdict": None}
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
    try:
        run_task(Run(state, llm, tools, strategy, reporter))
    except ReplayMismatchError as error:
        so_far = state.steps[: len(trace.steps)]  # the step that asked for too much is not the trace's
        if backend.is_finished and _ended_from_outside(trace) and _steps_differ(trace.steps, so_far) is None:
            return Replayed(state, None)
        return Replayed(state, f"step {len(state.steps)}: {error}")
    return Replayed(state, _steps_differ(trace.steps, state.steps) or _ends_differ(trace, state))


def _tools(trace: AgentState, *, live: bool) -> ToolRegistry:
    chosen = [tool for tool in toolset(trace.toolset) if tool.name in trace.tools]
    context = ToolContext(corpus=Path(trace.corpus) if trace.corpus else None)
    if live:
        return ToolRegistry(chosen, context)
    tools = RecordedTools(chosen, context)
    tools.play(trace)
    return tools


def _ended_from_outside(trace: AgentState) -> bool:
    """Whether it was the clock, a person, or a batch's purse that ended the run: a replay has none of them."""
    return trace.status in ("timeout", "cancelled", "budget_exhausted")


def _steps_differ(recorded: list[StepRecord], now: list[StepRecord]) -> str | None:
    for old, new in zip(recorded, now, strict=False):
        before, after = _comparable(old), _comparable(new)
        for name in before:
            if before[name] != after[name]:
                return f"step {old.index + 1}: {name} differs: {_difference(before[name], after[name])}"
    if len(recorded) != len(now):
        return f"step {min(len(recorded), len(now)) + 1}: {len(recorded)} steps became {len(now)}"
    return None


def _ends_differ(trace: AgentState, state: AgentState) -> str | None:
    for name in ("ledger", "scratchpad", "replans", "answer", "answer_is_partial", "status"):
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
