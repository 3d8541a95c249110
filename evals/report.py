"""test_results.md: what the traces of a batch say, as Markdown. The same traces give the same bytes.

Nothing but the traces goes in: no clock, no path, no setting. What a model, a page or a person wrote stands in code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from agent.prompts.budget_line import usd
from agent.state import AgentState
from evals.inert import code_span
from evals.report_compared import comparison, table, tool_call_faults, ways
from evals.report_runs import details, name_of, outcome_of
from evals.traces import in_order

EMPTY = """\
# Test results

There is no trace to report on. `make suite` runs the five-task suite and leaves some.
"""
BAR_CELLS = 10
OUTCOMES = ("pass", "fail", "invalid", "not judged")


def render_report(states: Iterable[AgentState]) -> str:
    """The report on one batch: the newest among these traces. Single tasks are reported where there is no batch.

    To report on another batch, hand in its traces alone.
    """
    runs = newest_batch(states)
    if not runs:
        return EMPTY
    parts = [_title(runs), _receipt(runs), comparison(runs), _verdicts(runs), _meters(runs), _guards(runs)]
    parts += [tool_call_faults(runs), _faults(runs), details(runs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def newest_batch(states: Iterable[AgentState]) -> list[AgentState]:
    """The runs of the batch that began last, or all runs where none belongs to a batch, in the order they began."""
    runs = in_order(states)
    batches = [run.batch_id for run in runs if run.batch_id is not None]
    if not batches:
        return runs
    begun = {batch: place for place, batch in reversed(list(enumerate(batches)))}
    newest = max(begun, key=lambda batch: begun[batch])
    return [run for run in runs if run.batch_id == newest]


# -- the receipt ------------------------------------------------------------------------------------------------------


def _title(runs: Sequence[AgentState]) -> str:
    suites = _distinct(runs, lambda run: run.suite or "")
    return f"# Test results: {suites}" if any(run.suite for run in runs) else "# Results of single tasks"


def _receipt(runs: Sequence[AgentState]) -> str:
    outcomes = Counter(outcome_of(run) for run in runs)
    counted = ", ".join(f"**{outcomes[o]} {_past(o)}**" for o in OUTCOMES if outcomes[o] or o in ("pass", "fail"))
    rows = [
        ("Runs", f"{len(runs)}: {counted}"),
        ("LLM calls", f"{sum(run.calls_used for run in runs):,}"),
        ("Simulated cost", usd(sum(run.cost_microusd for run in runs))),
        ("Tokens", _tokens(runs)),
        ("Usable replies", _usable(runs)),
        ("Time", f"{sum(run.seconds for run in runs):,.1f} s"),
        ("Model", _distinct(runs, _model)),
        ("Embedding model", _distinct(runs, _embedder)),
        ("Strategy", _distinct(runs, lambda run: f"{run.strategy}, tools: {', '.join(run.tools) or 'none'}")),
        ("Sampling", _distinct(runs, _sampling)),
        ("Isolation", _distinct(runs, lambda run: run.sandbox or "")),
        ("Caps of a run", _distinct(runs, _caps)),
        ("Prices", _distinct(runs, _prices)),
        ("Batch", _distinct(runs, lambda run: run.batch_id or "")),
        ("Began", code_span(runs[0].started_at)),
        ("Commit", _distinct(runs, lambda run: run.git_commit or "")),
    ]
    return table(("Receipt", ""), [row for row in rows if row[1]])


def _past(outcome: str) -> str:
    return {"pass": "passed", "fail": "failed"}.get(outcome, outcome)


def _tokens(runs: Sequence[AgentState]) -> str:
    prompt, completion = sum(run.prompt_tokens for run in runs), sum(run.completion_tokens for run in runs)
    cached = [call.usage.cached_tokens for run in runs for call in run.calls if call.usage.cached_tokens is not None]
    unknown = sum(entry.settled_as == "unknown" for run in runs for entry in run.ledger)
    text = f"{prompt:,} prompt + {completion:,} completion"
    if cached:
        text += f"; {sum(cached):,} of the prompt tokens came from the server's cache"
    if unknown:
        text += (
            f"; {unknown} {'call was' if unknown == 1 else 'calls were'} not counted by the server, and charged in full"
        )
    return text


def _usable(runs: Sequence[AgentState]) -> str:
    """Replies that the strategy could act on, of those that the server gave."""
    replies = [
        call for run in runs for call in run.calls if call.http_status is not None and not run.embeds(call.index)
    ]
    given = sum(call.error is None or call.error.fault == "model" for call in replies)
    unusable = sum(bool(step.faults) for run in runs for step in run.steps)
    return f"{given - unusable:,} of {given:,} ({100 * (given - unusable) / given:.0f}%)" if given else ""


def _model(run: AgentState) -> str:
    model = run.model
    facts = [model.backend, model.backend_version, model.quantization, model.digest and model.digest[:19]]
    window = f"window {model.context_window:,}" if model.context_window else None
    return f"{model.name} ({', '.join(fact for fact in (*facts, window) if fact)})"


def _embedder(run: AgentState) -> str:
    model = run.embedder
    return "" if model is None else f"{model.name} ({model.backend})"


def _sampling(run: AgentState) -> str:
    s = run.sampling
    added = "".join(f", {name} {value:g}" for name, value in sorted(run.model.sampler.items()))
    return (
        f"temperature {s.temperature:g}, seed {s.seed}, window {s.num_ctx:,} tokens,"
        f" replies up to {s.max_completion_tokens:,} tokens{added}"
    )


def _caps(run: AgentState) -> str:
    limits = run.limits
    caps = [] if limits.max_calls is None else [f"{limits.max_calls} calls"]
    caps += [] if limits.max_cost_microusd is None else [usd(limits.max_cost_microusd)]
    caps += [] if limits.max_seconds is None else [f"{limits.max_seconds:g} s"]
    return ", ".join(caps) or "none"


def _prices(run: AgentState) -> str:
    prices = run.prices
    embedded = f", {usd(prices.embedding_microusd_per_1k)} for 1,000 embedded tokens" if run.embedder else ""
    return (
        f"{usd(prices.prompt_microusd_per_1k)} for 1,000 prompt tokens,"
        f" {usd(prices.completion_microusd_per_1k)} for 1,000 completion tokens{embedded}"
    )


def _distinct(runs: Sequence[AgentState], of: Callable[[AgentState], str]) -> str:
    """Every different value once, in the order of the runs; at most four of them."""
    values = [value for value in dict.fromkeys(of(run) for run in runs) if value]
    more = f" and {len(values) - 4} more" if len(values) > 4 else ""
    return ", ".join(code_span(value, 200) for value in values[:4]) + more


# -- the tables -------------------------------------------------------------------------------------------------------


def _verdicts(runs: Sequence[AgentState]) -> str:
    head = (*_run_head(runs), "Verdict", "Ended as", "What did not hold")
    several = len(ways(runs)) > 1
    rows = [(*_run_cells(run, several=several), f"**{outcome_of(run)}**", run.status, _not_held(run)) for run in runs]
    return "## Verdicts\n\n" + table(head, rows)


def _run_head(runs: Sequence[AgentState]) -> tuple[str, ...]:
    """The columns that name a run."""
    return ("Case", "Model", "Strategy") if len(ways(runs)) > 1 else ("Case",)


def _run_cells(run: AgentState, *, several: bool) -> tuple[str, ...]:
    how = (code_span(run.model.name), code_span(run.strategy)) if several else ()
    return (name_of(run), *how)


def _not_held(run: AgentState) -> str:
    verdict = run.verdict
    failed = [line for line in verdict.asserts if not line.passed] if verdict else []
    if failed:
        return "<br>".join(code_span(f"{line.type}: {line.message or line.expected}", 160) for line in failed)
    return code_span(verdict.reason, 200) if verdict and verdict.reason else ""


def _meters(runs: Sequence[AgentState]) -> str:
    several = len(ways(runs)) > 1
    rows = [
        (
            *_run_cells(run, several=several),
            _meter(run.calls_used, run.limits.max_calls, str),
            _meter(run.cost_microusd, run.limits.max_cost_microusd, usd),
            f"{run.prompt_tokens:,} + {run.completion_tokens:,}",
            f"{run.seconds:,.1f} s",
        )
        for run in runs
    ]
    return "## Budget\n\n" + table((*_run_head(runs), "Calls", "Dollars", "Tokens", "Time"), rows)


def _meter(used: int, cap: int | None, shown: Callable[[int], str]) -> str:
    """`used` of `cap` as a bar; anything used fills at least one cell."""
    if cap is None:
        return f"`{shown(used)}`"
    filled = max(0, min(BAR_CELLS, -(-used * BAR_CELLS // max(cap, 1))))
    return f"`{'█' * filled}{'░' * (BAR_CELLS - filled)} {shown(used)} of {shown(cap)}`"


def _guards(runs: Sequence[AgentState]) -> str:
    rows, several = [], len(ways(runs)) > 1
    for run in runs:
        fired = Counter(event.guard for step in run.steps for event in step.guards)
        if fired:
            rows.append((*_run_cells(run, several=several), str(run.replans), _counts(fired)))
    body = table((*_run_head(runs), "Replans", "Guards that fired"), rows) if rows else "No guard fired."
    return f"## Guards and replans\n\n{body}"


def _faults(runs: Sequence[AgentState]) -> str:
    """What went wrong in tool calls and replies, by kind, with the runs it happened in."""
    times: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], list[str]] = {}
    several = len(ways(runs)) > 1
    for run in runs:
        for fault in _faults_of(run):
            times[fault] += 1
            where.setdefault(fault, []).append(" ".join(_run_cells(run, several=several)))
    if not times:
        return "## Faults\n\nNo tool call failed, and every reply could be used."
    rows = [
        (kind, code_span(name), str(times[kind, name]), _some(where[kind, name]))
        for kind, name in sorted(times, key=lambda fault: (-times[fault], fault))
    ]
    return "## Faults\n\n" + table(("Of", "Kind", "Times", "Runs"), rows)


def _faults_of(run: AgentState) -> Iterable[tuple[str, str]]:
    for step in run.steps:
        for action, result in zip(step.actions, step.results, strict=False):
            if not result.success:
                yield "tool call", f"{result.error_type or 'error'} ({action.name})"
        for fault in step.faults:
            yield "reply", fault.partition(":")[0]
        for repair in step.repairs:
            yield "reply, repaired", repair
    for call in run.calls:
        if call.error is not None and call.error.fault != "model":
            yield call.error.fault, call.error.error_type


def _some(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:5]) + (f" and {len(distinct) - 5} more" if len(distinct) > 5 else "")


def _counts(counter: Counter[str]) -> str:
    return ", ".join(
        f"{code_span(name)} {times} times" if times > 1 else code_span(name) for name, times in sorted(counter.items())
    )
