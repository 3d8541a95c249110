"""A trace run again without a model: the same replies, and by default the same tool results, through today's code.

The first step that comes out otherwise says what a change did. Durations are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.acting import Actions, Approver
from agent.budget import BudgetEnforcer, Limits, Prices
from agent.errors import ReplayMismatchError, UsageError
from agent.guards.approvals import Policy, check_rules, rules_of_run
from agent.journal import NoJournal
from agent.llm.backends.replay import ReplayBackend
from agent.loop import Run, run_task
from agent.reporter import Reporter, SilentReporter
from agent.state import AgentState, LLMCall, Permission, StepRecord, content_hash
from agent.strategies.registry import STRATEGIES, make_strategy
from agent.tools.base import ToolContext
from agent.tools.registry import AnyTool, ToolRegistry, toolset
from evals.code_version import code_version
from evals.recorded import (
    RecordedClient,
    RecordedPurse,
    RecordedTools,
    difference,
    files_differ,
    persons_answers,
    seeds,
)
from evals.workspaces import fresh_workspace


@dataclass(frozen=True)
class Replayed:
    """`difference` is None where the run came out the same; `state` is the run as it went this time."""

    state: AgentState
    difference: str | None


@dataclass(frozen=True)
class LiveTools:
    """What a person lends a replay whose tools really run.

    A trace may be anybody's, so nothing of this comes from it: neither the rules, nor what was answered, nor a folder.
    `context` holds no workspace: the replay makes one. `approver` is None where nobody can be asked.
    """

    context: ToolContext = field(default_factory=ToolContext)
    approve: Mapping[str, Permission] = field(default_factory=dict)
    approver: Approver | None = None


def replay(trace: AgentState, *, live: LiveTools | None = None, reporter: Reporter | None = None) -> Replayed:
    """Run a trace again. With `live` the tools really run, so that only the model is played back.

    They find the workspace as the trace holds it; a file whose text it does not hold is missing there.

    Raises:
        UsageError: live tools would need a person's own folder, of which a trace holds nothing, or a corpus that was
            not named again; or a rule is for no tool of the run.
    """
    reporter = reporter or SilentReporter()
    if live is None:
        return _played_in(trace, seeds(trace), reporter)
    _check_live(trace, live)
    before = trace.workspace.before if trace.workspace else []
    files = {file.path: file.text for file in before if file.text is not None}
    offered = _offered(trace)
    isolated = live.context.isolation.asked != "external"
    rules = rules_of_run(live.approve, offered, own_workspace=True, isolated=isolated)
    with fresh_workspace(files) as workspace:
        now = datetime.fromisoformat(trace.now) if trace.now else None
        with closing(ToolRegistry(offered, replace(live.context, now=now, workspace=workspace))) as tools:
            actions = Actions(tools, reporter, Policy(rules), live.approver)
            return _played(_unasked(trace), actions, reporter, asked_anew=True)


def _check_live(trace: AgentState, live: LiveTools) -> None:
    if trace.workspace is not None and trace.workspace.folder is not None:
        raise UsageError("the run worked in a person's folder, which its trace does not hold; leave out --live-tools")
    if trace.corpus is not None and live.context.corpus is None:
        raise UsageError(f"the run searched the corpus {trace.corpus!a:.200}; if it may be read, name it: --corpus DIR")
    if trace.embedder is not None:
        raise UsageError(
            f"the run compared texts by {trace.embedder.name!a:.80}, which is not done again; leave out --live-tools"
        )
    check_rules(live.approve, trace.tools)


def _unasked(state: AgentState) -> AgentState:
    """A run without what a person was asked in it."""
    return state.model_copy(update={"steps": [step.model_copy(update={"approvals": []}) for step in state.steps]})


def _played_in(trace: AgentState, files: Mapping[str, str] | None, reporter: Reporter) -> Replayed:
    """The run with its recorded results; where its first files are known, what it wrote is written again."""
    with fresh_workspace(files or {}) as workspace:
        tools = _recorded(trace, workspace=workspace, writes=files is not None)
        actions = Actions(tools, reporter, Policy(trace.approve), persons_answers(trace))
        played = _played(trace, actions, reporter)
        if played.difference is None and files is not None and not _ended_from_outside(trace):
            return replace(played, difference=files_differ(trace, workspace, tools))
        return played


def _played(trace: AgentState, actions: Actions, reporter: Reporter, *, asked_anew: bool = False) -> Replayed:
    strategy = make_strategy(trace.strategy, actions.tools, trace.sampling.max_completion_tokens)
    state = trace.model_copy(
        update={"steps": [], "calls": [], "ledger": [], "scratchpad": [], "replans": 0, "answer": None}
        | {"answer_is_partial": False, "status": "running", "status_reason": "", "error": None, "verdict": None}
        | {"follow_ups": [], "chosen": None, "tool_faults": {}}
    )
    limits = Limits(trace.limits.max_calls, trace.limits.max_cost_microusd, trace.limits.max_seconds)
    prices = Prices.of(trace.prices)
    backend = ReplayBackend(trace)
    purse = RecordedPurse(trace, state, prices) if trace.batch_limits is not None else None
    llm = RecordedClient(
        backend,
        BudgetEnforcer(limits, prices, parent=purse, clock=lambda: 0.0),  # only the recorded calls may end it
        state,
        journal=NoJournal(),
        reporter=reporter,
        embedding=backend if trace.embedder else None,
        sleep=lambda _seconds: None,
    ).of(trace)
    if isinstance(actions.tools, RecordedTools):
        actions.tools.embed_with(llm, backend)
    mismatch: str | None = None
    try:
        run_task(Run(state, llm, actions, strategy, reporter, iter(trace.follow_ups)))
    except ReplayMismatchError as error:
        mismatch = f"step {len(state.steps)}: {error}"
    compared = _unasked(state) if asked_anew else state
    if backend.is_finished and _ended_from_outside(trace):
        return Replayed(state, _cut_off(trace, compared))
    steps, calls = _steps_differ(trace.steps, compared.steps), _calls_differ(trace.calls, compared.calls)
    return Replayed(state, mismatch or steps or calls or _ends_differ(trace, compared))


def _offered(trace: AgentState) -> list[AnyTool]:
    return [tool for tool in toolset(trace.toolset) if tool.name in trace.tools]


def _context(trace: AgentState, workspace: Path | None) -> ToolContext:
    now = datetime.fromisoformat(trace.now) if trace.now else None
    return ToolContext(corpus=Path(trace.corpus) if trace.corpus else None, now=now, workspace=workspace)


def _recorded(trace: AgentState, *, workspace: Path | None = None, writes: bool = False) -> RecordedTools:
    tools = RecordedTools(_offered(trace), _context(trace, workspace))
    tools.play(trace, writes=writes)
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
    last = trace.steps[-1].results if trace.steps else []
    late = any(result.error_type == "out_of_time" for result in last)  # no clock runs here
    spare = 1 if trace.status == "cancelled" or late else 0
    steps, calls = max(0, len(trace.steps) - spare), max(0, len(trace.ledger) - spare)
    asked_again = [
        step.model_copy(update={"calls": [call for call in step.calls if call < len(trace.calls)]})
        for step in state.steps[:steps]
    ]
    if found := _steps_differ(trace.steps[:steps], asked_again):
        return found
    if trace.ledger[:calls] != state.ledger[:calls]:
        return f"the ledger differs: {difference(_entries(trace, calls), _entries(state, calls))}"
    return _calls_differ(trace.calls[:calls], state.calls[:calls])


def _entries(state: AgentState, count: int) -> list[dict[str, Any]]:
    return [entry.model_dump() for entry in state.ledger[:count]]


def why_not(trace: AgentState) -> str | None:
    """Why a trace cannot be held to today's code, or None where it has to replay to itself.

    Another version's prompts, tools or rules lead elsewhere, which is what a replay by hand is there to show.
    """
    if trace.code != code_version():
        return "another version of Shoestring made it"
    return cannot_be_played(trace)


def cannot_be_played(trace: AgentState) -> str | None:
    """Why a trace cannot be run again at all, or None where it can."""
    if trace.error is not None and trace.error.fault == "harness":
        return "a bug of Shoestring ended it"
    if [call.index for call in trace.calls] != list(range(len(trace.calls))) or len(trace.ledger) < len(trace.calls):
        return "calls: their indexes, or their entries in the ledger, do not belong together (main.py verify)"
    try:
        known = {tool.name for tool in toolset(trace.toolset)}
    except UsageError:
        known = set()
    if trace.strategy not in STRATEGIES or not known.issuperset(trace.tools):
        return "its strategy or tools are not at hand (--plugin FILE; --mcp-config FILE, but verify starts no server)"
    return None


def heads_differ(trace: AgentState) -> str | None:
    """How the prompts or tools that a trace of this very code says it had differ from those that this code has."""
    tools = _recorded(trace)
    strategy = make_strategy(trace.strategy, tools, trace.sampling.max_completion_tokens)
    if trace.system_prompt_hashes != [content_hash(text) for text in strategy.system_prompts]:
        return "system_prompt_hashes: are not those of its strategy and tools"
    return None if trace.tools_hash == tools.hash() else "tools_hash: is not that of its tools"


def _steps_differ(recorded: list[StepRecord], now: list[StepRecord]) -> str | None:
    for old, new in zip(recorded, now, strict=False):
        before, after = _comparable(old), _comparable(new)
        for name in before:
            if before[name] != after[name]:
                return f"step {old.index + 1}: {name} differs: {difference(before[name], after[name])}"
    if len(recorded) != len(now):
        return f"step {min(len(recorded), len(now)) + 1}: {len(recorded)} steps became {len(now)}"
    return None


_COMPARED_AT_THE_END = (
    *("ledger", "scratchpad", "replans", "follow_ups", "chosen"),
    *("tool_faults", "answer", "answer_is_partial", "status"),
)


def _calls_differ(recorded: list[LLMCall], now: list[LLMCall]) -> str | None:
    """What was asked and how it was read; how long it took is not compared."""
    for old, new in zip(recorded, now, strict=False):
        before, after = (call.model_dump(exclude={"timing"}) for call in (old, new))
        if before != after:
            return f"call {old.index + 1} differs: {difference(before, after)}"
    return None


def _ends_differ(trace: AgentState, state: AgentState) -> str | None:
    for name in _COMPARED_AT_THE_END:
        if getattr(trace, name) != getattr(state, name):
            return f"after the last step: {name} differs: {difference(getattr(trace, name), getattr(state, name))}"
    return None


def _comparable(step: StepRecord) -> dict[str, Any]:
    fields = step.model_dump()
    for result in fields["results"]:
        result.pop("seconds")
    return fields
