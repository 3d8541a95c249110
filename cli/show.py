"""A trace as a person reads it: one list of labelled entries, rendered on a terminal or as Markdown.

Everything a model wrote is shown whole, as inert text; in Markdown it stands in code, where nothing of it is markup.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from agent.prompts.budget_line import usd
from agent.state import AgentState, LLMCall, StepRecord
from cli.escape import inert
from cli.outcome import OK
from cli.terminal import describe_end, describe_run, make_console, meter, print_labelled, show_call, show_result
from evals.inert import code_block, code_span
from evals.traces import load

SPAN_CHARS = 200


@dataclass(frozen=True)
class Entry:
    """One labelled text, inert already."""

    label: str
    text: str


@dataclass(frozen=True)
class Section:
    """A titled part of a run. Titles are ours, never a model's."""

    title: str
    entries: list[Entry]


def show(args: Namespace) -> int:
    """main.py show TRACE.

    Raises:
        UsageError: the trace cannot be read.
    """
    state = load(Path(args.trace))
    if args.md:
        sys.stdout.write(render_markdown(state))
    else:
        render_terminal(state, make_console(sys.stdout, color=not args.no_color))
    return OK


def sections(state: AgentState) -> list[Section]:
    """The whole run: its head, each step, its end."""
    return [
        Section("Run", list(_head(state))),
        *(Section(f"Step {step.index + 1}", list(_step(state, step))) for step in state.steps),
        Section("End", list(_end(state))),
    ]


def render_terminal(state: AgentState, console: Console) -> None:
    """The run on a terminal, or as plain text in a pipe."""
    for place, section in enumerate(sections(state)):
        if place:
            console.print()
        console.print(Text(section.title, style="bold"), soft_wrap=True)
        for entry in section.entries:
            print_labelled(console, entry.label, entry.text)


def render_markdown(state: AgentState) -> str:
    """The run as Markdown. Short texts are code spans, others fenced blocks that the text cannot close."""
    parts = []
    for place, section in enumerate(sections(state)):
        parts.append(f"{'#' if place == 0 else '##'} {section.title}")
        parts.extend(_markdown_entry(entry) for entry in section.entries)
    return "\n\n".join(parts) + "\n"


def _head(state: AgentState) -> Iterator[Entry]:
    yield _entry("run", state.run_id)
    yield _entry("task", state.task)
    if state.case_id is not None:
        epoch = f", epoch {state.epoch}" if state.epoch else ""
        yield _entry("case", f"{state.case_id} of {state.suite or 'no suite'}{epoch}")
    yield _entry("driven", describe_run(state))
    sampling = state.sampling
    yield _entry(
        "sampling",
        f"temperature {sampling.temperature:g}, seed {sampling.seed}, window {sampling.num_ctx:,} tokens,"
        f" replies up to {sampling.max_completion_tokens:,} tokens",
    )
    if state.embedder is not None:
        yield _entry("embedder", f"{state.embedder.name} ({state.embedder.backend}) compares texts by meaning")
    yield _entry("tools", ", ".join(state.tools) or "none")
    yield _entry("began", state.started_at or "unknown")


def _step(state: AgentState, step: StepRecord) -> Iterator[Entry]:
    yield from _turn(state, step)
    for index in step.calls:
        if 0 <= index < len(state.calls):
            yield _entry("call", _describe_call(state, state.calls[index]))
    if step.progress_check:
        yield _entry("PROGRESS", step.progress_check)
    if step.thinking:
        yield _entry("THINKING", step.thinking)
    if step.thought:
        yield _entry("THINK", step.thought)
    yield from _actions(step)
    for fault in (*step.repairs, *step.faults):
        yield _entry("NOTICE", fault)
    for guard in step.guards:
        yield _entry("GUARD", f"{guard.guard} (tier {guard.tier}): {guard.message}")
    if step.answer is not None:
        yield _entry("ANSWER", step.answer)


def _turn(state: AgentState, step: StepRecord) -> Iterator[Entry]:
    """What the user said, above the first step that works on it; the task itself stands in the head."""
    before = state.steps[step.index - 1] if 0 < step.index <= len(state.steps) else None
    if before is not None and before.turn != step.turn and 0 < step.turn <= len(state.follow_ups):
        yield _entry("YOU", state.follow_ups[step.turn - 1])


def _actions(step: StepRecord) -> Iterator[Entry]:
    """Each call, what a person said to it where one was asked, and what came of it."""
    for place, action in enumerate(step.actions):
        yield _entry("ACT", show_call(action))
        for approval in step.approvals:
            if approval.action == place:
                yield _entry("ASKED", approval.verdict)
        if place < len(step.results):
            yield _entry("OBSERVE", show_result(step.results[place]))


def _describe_call(state: AgentState, call: LLMCall) -> str:
    """Tokens, money, time and fault of one request, in one line."""
    usage = call.usage
    parts = [f"{call.index + 1}: {_count(usage.prompt_tokens)} + {_count(usage.completion_tokens)} tokens"]
    if state.embeds(call.index):
        parts.append(f"{len(call.appended)} texts as vectors")
    if usage.cached_tokens is not None:
        parts.append(f"{usage.cached_tokens:,} cached")
    entry = next((entry for entry in state.ledger if entry.index == call.index), None)
    if entry is not None:
        parts.append(f"{usd(entry.settled_microusd)} of {usd(entry.reserved_microusd)} reserved ({entry.settled_as})")
    parts.append(f"{call.timing.total:.2f} s")
    if call.attempt:
        parts.append(f"try {call.attempt + 1}")
    if call.error is not None:
        parts.append(f"{call.error.error_type}: {call.error.message}")
    return ", ".join(parts)


def _end(state: AgentState) -> Iterator[Entry]:
    if state.chosen is not None:
        yield _entry("chosen", f"{state.chosen.strategy}: {state.chosen.reason}")
    yield _entry("status", describe_end(state))
    yield _entry("budget", meter(state))
    if state.error is not None:
        yield _entry("fault", f"{state.error.fault}: {state.error.error_type}: {state.error.message}")
    for note in state.scratchpad:
        yield _entry("found", note)
    if state.answer is not None:
        yield _entry("PARTIAL" if state.answer_is_partial else "ANSWER", state.answer)
    if state.verdict is not None:
        reason = f": {state.verdict.reason}" if state.verdict.reason else ""
        yield _entry("verdict", f"{state.verdict.outcome}{reason}")
        for line in state.verdict.asserts:
            yield _entry("held" if line.passed else "FAILED", f"{line.type}: {line.message or line.expected}")


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _entry(label: str, text: str) -> Entry:
    return Entry(label, inert(text).strip())


def _markdown_entry(entry: Entry) -> str:
    """A code span where it shows the text as it is, else a block."""
    is_short = "\n" not in entry.text and "|" not in entry.text and 0 < len(entry.text) <= SPAN_CHARS
    if is_short:
        return f"**{entry.label}** {code_span(entry.text, SPAN_CHARS)}"
    return f"**{entry.label}**\n\n{code_block(entry.text)}"
