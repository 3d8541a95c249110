"""The runs of a report one by one, each folded away: task, steps, answer, asserts. Long texts are cut, and say so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from agent.prompts.budget_line import usd
from agent.state import AgentState, StepRecord, ToolCall, ToolResult
from evals.inert import clip, code_block, code_span, html_code
from evals.replies import reply_text

MAX_RUNS = 100  # code hosts stop rendering files of some hundred kilobytes
MAX_STEPS = 20
TASK_CHARS, THOUGHT_CHARS, ACTION_CHARS, RESULT_CHARS, ANSWER_CHARS, LINE_CHARS = 1000, 300, 400, 400, 2000, 300
LABEL_WIDTH = 9


def outcome_of(run: AgentState) -> str:
    """pass, fail or invalid; "not judged" for a single task, which has no ground truth."""
    return run.verdict.outcome if run.verdict else "not judged"


def name_of(run: AgentState, *, epoch: bool = True) -> str:
    """What a table calls a run: its case, or its task, as code; with its epoch where that is not the first."""
    return code_span(_title(run) if epoch else _case(run), 60)


def _title(run: AgentState) -> str:
    return f"{_case(run)} #{run.epoch + 1}" if run.epoch else _case(run)


def _case(run: AgentState) -> str:
    return run.case_id if run.case_id is not None else run.task


def details(runs: Sequence[AgentState]) -> str:
    """The runs, folded. Of very many, those that did not pass come before the others."""
    worst_first = sorted(range(len(runs)), key=lambda place: (outcome_of(runs[place]) == "pass", place))
    chosen = sorted(worst_first[:MAX_RUNS])
    several = len({(run.model.name, run.strategy) for run in runs}) > 1
    parts = ["## Runs", *(_run(runs[place], several=several) for place in chosen)]
    if len(chosen) < len(runs):
        parts.append(f"{len(runs) - len(chosen)} more runs are left out here; `python main.py show TRACE` shows each.")
    return "\n\n".join(parts)


def _run(run: AgentState, *, several: bool) -> str:
    how = f" ({html_code(run.model.name)}, {html_code(run.strategy)})" if several else ""
    summary = (
        f"<summary><b>{outcome_of(run)}</b> {html_code(_title(run))}{how}: {run.status}, {run.calls_used} calls,"
        f" {usd(run.cost_microusd)}</summary>"
    )
    ended = f"Ended as {run.status}" + (f": {code_span(run.status_reason, LINE_CHARS)}" if run.status_reason else "")
    parts = [f"<details>\n{summary}", code_block(clip(run.task, TASK_CHARS)), *_steps(run), ended]
    if run.answer is not None:
        parts += ["Partial answer:" if run.answer_is_partial else "Answer:", code_block(clip(run.answer, ANSWER_CHARS))]
    if run.verdict and run.verdict.asserts:
        parts += ["Asserts:", code_block("\n".join(_asserts(run)))]
    return "\n\n".join([*parts, "</details>"])


def _steps(run: AgentState) -> Iterator[str]:
    half = MAX_STEPS // 2
    turn = 0
    for place, step in enumerate(run.steps):
        if step.turn > turn and step.turn <= len(run.follow_ups):
            turn = step.turn
            yield f"Turn {turn + 1}"
            yield code_block(clip(run.follow_ups[turn - 1], TASK_CHARS))
        if half <= place < len(run.steps) - half:
            if place == half:
                yield f"({len(run.steps) - 2 * half} steps are left out.)"
            continue
        lines = list(_lines(run, step))
        yield f"Step {place + 1}{_cost(run, step)}"
        if lines:
            yield code_block("\n".join(lines))


def _cost(run: AgentState, step: StepRecord) -> str:
    """What the calls of a step came to, in tokens and dollars."""
    calls = [index for index in step.calls if 0 <= index < min(len(run.calls), len(run.ledger))]
    prompt = sum(run.calls[index].usage.prompt_tokens or 0 for index in calls)
    completion = sum(run.calls[index].usage.completion_tokens or 0 for index in calls)
    charged = sum(run.ledger[index].settled_microusd for index in calls)
    more = f", {len(calls)} calls" if len(calls) > 1 else ""
    return f" ({prompt:,} + {completion:,} tokens, {usd(charged)}{more})"


def _lines(run: AgentState, step: StepRecord) -> Iterator[str]:
    if step.progress_check:
        yield _line("PROGRESS", step.progress_check, LINE_CHARS)
    if step.thought or step.thinking:
        yield _line("THINK", step.thought or step.thinking, THOUGHT_CHARS)
    for place, action in enumerate(step.actions):
        yield _line("ACT", _call(action), ACTION_CHARS)
        if place < len(step.results):
            yield _line("OBSERVE", _result(step.results[place]), RESULT_CHARS)
    if step.faults:
        yield _line("REPLY", _reply(run, step), RESULT_CHARS)
    for fault in step.faults:
        yield _line("FAULT", fault, LINE_CHARS)
    for repair in step.repairs:
        yield _line("REPAIR", repair, LINE_CHARS)
    for event in step.guards:
        yield _line("GUARD", f"{event.guard}: {event.message}", LINE_CHARS)
    if step.answer is not None:
        yield _line("ANSWER", step.answer, THOUGHT_CHARS)


def _line(label: str, text: str, limit: int) -> str:
    """A labelled text; its further lines are indented, so that none of them passes for a label."""
    return f"{label:<{LABEL_WIDTH}}" + clip(text, limit).replace("\n", "\n" + " " * LABEL_WIDTH)


def _reply(run: AgentState, step: StepRecord) -> str:
    """What the model wrote that could not be used."""
    last = step.calls[-1] if step.calls else -1
    return (reply_text(run.calls[last]) if 0 <= last < len(run.calls) else None) or "(nothing)"


def _call(action: ToolCall) -> str:
    arguments = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in action.arguments.items())
    return f"{action.name}({arguments})"


def _result(result: ToolResult) -> str:
    if result.success:
        return result.data or "(nothing)"
    return f"failed, {result.error_type or 'error'}: {result.error or 'no reason given'}"


def _asserts(run: AgentState) -> Iterator[str]:
    for line in run.verdict.asserts if run.verdict else ():
        expected = json.dumps(line.expected, ensure_ascii=False)
        seen = "" if line.passed else f"; {line.message or 'it did not hold'}"
        yield _line("held" if line.passed else "FAILED", f"{line.type} {expected}{seen}", LINE_CHARS)
