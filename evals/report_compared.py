"""The part of a report that holds ways of driving a model beside each other, under the same budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

from agent.prompts.budget_line import usd
from agent.state import AgentState, ToolFault
from evals.inert import code_span
from evals.report_runs import name_of, outcome_of

Way = tuple[str, str]  # model and strategy
FAULT_WORDS: dict[ToolFault, str] = {
    "lost_by_server": "Lost by the server",
    "in_text": "In the text",
    "wrong_name": "Wrong name",
    "bad_arguments": "Bad arguments",
    "truncated": "Truncated",
    "thinking_ate_budget": "Thinking ate the budget",
}
_SHORT = {"pass": "pass", "fail": "**fail**", "invalid": "invalid"}
_HEAD = (
    *("Model", "Strategy", "Runs", "Passed", "Failed", "Invalid", "Pass rate", "Calls a run", "Cost a run"),
    *("Tokens a run", "Seconds a run", "Tool-call faults"),
)


def ways(runs: Iterable[AgentState]) -> dict[Way, list[AgentState]]:
    """The runs by model and strategy, in the order in which each way first ran."""
    groups: dict[Way, list[AgentState]] = {}
    for run in runs:
        groups.setdefault((run.model.name, run.strategy), []).append(run)
    return groups


def comparison(runs: Sequence[AgentState]) -> str:
    """One row a way, and one a case with its verdicts; nothing where there is but one way."""
    groups = ways(runs)
    if len(groups) < 2:
        return ""
    caps = {(run.limits.max_calls, run.limits.max_cost_microusd) for run in runs}
    note = "" if len(caps) == 1 else "\n\nNot all runs had the same caps: see each run."
    parts = ["## Comparison", table(_HEAD, [_compared(*group) for group in groups.items()]) + note, _by_case(groups)]
    return "\n\n".join(part for part in parts if part)


def _compared(way: Way, runs: Sequence[AgentState]) -> tuple[str, ...]:
    """One row. Invalid runs say nothing about a model and are not scored."""
    outcomes = Counter(outcome_of(run) for run in runs)
    scored = outcomes["pass"] + outcomes["fail"]
    rate = f"{100 * outcomes['pass'] / scored:.0f}%" if scored else "-"
    count = len(runs)
    counts = (str(outcomes[outcome]) for outcome in ("pass", "fail", "invalid"))
    prompt, completion = sum(run.prompt_tokens for run in runs), sum(run.completion_tokens for run in runs)
    each = (
        rate,
        f"{sum(run.calls_used for run in runs) / count:.1f}",
        usd(sum(run.cost_microusd for run in runs) // count),
        f"{prompt // count:,} + {completion // count:,}",
        f"{sum(run.seconds for run in runs) / count:,.1f}",
        str(sum(sum(run.tool_faults.values()) for run in runs)),
    )
    return (code_span(way[0]), code_span(way[1]), str(count), *counts, *each)


def _by_case(groups: dict[Way, list[AgentState]]) -> str:
    """Which way solved which case; of several epochs, how many."""
    names = list(dict.fromkeys(name_of(run, epoch=False) for runs in groups.values() for run in runs))
    several_models = len({model for model, _ in groups}) > 1
    heads = [code_span(f"{strategy}, {model}" if several_models else strategy) for model, strategy in groups]
    rows = [[name, *(_cell(name, runs) for runs in groups.values())] for name in names]
    return table(("Case", *heads), rows)


def _cell(name: str, runs: Iterable[AgentState]) -> str:
    outcomes = [outcome_of(run) for run in runs if name_of(run, epoch=False) == name]
    if len(outcomes) == 1:
        return _SHORT.get(outcomes[0], outcomes[0])
    return f"{outcomes.count('pass')} of {len(outcomes)}" if outcomes else "-"


def tool_call_faults(runs: Sequence[AgentState]) -> str:
    """How often tool calls went wrong, by kind, model and strategy; nothing where none did."""
    if not any(run.tool_faults for run in runs):
        return ""
    kinds: tuple[ToolFault, ...] = get_args(ToolFault)
    rows = []
    for (model, strategy), group in ways(runs).items():
        counts = Counter[ToolFault]()
        for run in group:
            counts.update(run.tool_faults)
        rows.append((code_span(model), code_span(strategy), *(str(counts[kind]) for kind in kinds)))
    head = ("Model", "Strategy", *(FAULT_WORDS[kind] for kind in kinds))
    return "## Tool-call faults\n\n" + table(head, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; its cells must be inert already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
