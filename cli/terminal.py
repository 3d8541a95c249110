"""A run on a terminal: THINK, ACT and OBSERVE lines as they happen, a budget meter after each call, the answer.

Every text goes through `inert` and is printed as a rich Text, never as markup: what a model writes cannot colour,
move, link or forge anything. Where the output is no terminal, lines are neither wrapped nor coloured.
"""

from __future__ import annotations

import json
import os
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.prompts.budget_line import usd
from agent.reporter import SilentReporter
from agent.state import AgentState, LLMCall, StepRecord, ToolCall, ToolResult
from cli.escape import clip, inert

LABEL_WIDTH = 9
BAR_WIDTH = 10
LIVE_CHARS = 1200  # of one thought or observation; the trace and `show` have all of it
STYLES = {
    "THINK": "cyan",
    "ACT": "magenta",
    "OBSERVE": "blue",
    "NOTICE": "yellow",
    "ANSWER": "bold green",
    "PARTIAL": "bold yellow",
}


class QuietPipeConsole(Console):
    """A console that falls silent when its reader has gone: a run that was paid for goes on to its trace."""

    def on_broken_pipe(self) -> None:
        """Stop printing; rich's own way is to end the program."""
        self.quiet = True
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, self.file.fileno())  # or Python complains when it flushes the stream at exit
        os.close(devnull)


def make_console(stream: TextIO, *, color: bool = True) -> Console:
    """A console that interprets no markup, no emoji codes and no links, and colours only a terminal.

    NO_COLOR (read by rich) and `color=False` both mean: no escape sequence at all.
    """
    plain: dict[str, Any] = {"force_terminal": stream.isatty(), "markup": False, "emoji": False, "highlight": False}
    console = QuietPipeConsole(file=stream, **plain)
    if color and console.is_terminal and not console.no_color:
        return console
    return QuietPipeConsole(file=stream, color_system=None, no_color=True, **plain)


class TerminalReporter(SilentReporter):
    """Shows one run while it happens."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._in_text = False
        self._shown_text = ""  # what was streamed last, whole

    def run_started(self, state: AgentState) -> None:
        """The head: what will answer, driven how, within which caps."""
        self._line("run", describe_run(state), "dim")

    def text(self, piece: str) -> None:
        """A streamed piece, as it comes."""
        self._shown_text = self._shown_text + piece if self._in_text else piece
        self._in_text = True
        self.console.print(Text(inert(piece)), end="", soft_wrap=True)

    def call_finished(self, state: AgentState, call: LLMCall) -> None:
        """The meter; and what became of the call where that was not a plain reply."""
        if call.error is not None and call.error.fault != "model":  # which the loop tells
            self._line("NOTICE", f"call {call.index + 1}: {call.error.error_type}: {call.error.message}")
        for repair in call.repairs:
            self._line("NOTICE", f"reply repaired: {repair}")
        self._line("budget", meter(state), "dim")

    def think(self, step: StepRecord) -> None:
        """The model's own word on its progress, and its thought."""
        progress = f"({step.progress_check}) " if step.progress_check else ""
        if progress or step.thought:
            self._line("THINK", progress + step.thought)

    def act(self, call: ToolCall) -> None:
        """The tool call that is about to run."""
        self._line("ACT", show_call(call))

    def observe(self, call: ToolCall, result: ToolResult) -> None:
        """What the tool gave back."""
        self._line("OBSERVE", f"{call.name}: {show_result(result)}", None if result.success else "red")

    def notice(self, message: str) -> None:
        """Something besides the model acted."""
        self._line("NOTICE", message)

    def run_finished(self, state: AgentState) -> None:
        """The end: status, answer (or what was found so far)."""
        self.show_status(state)
        self.show_answer(state)

    def show_status(self, state: AgentState) -> None:
        """How the run ended, and what it used."""
        self._line("status", describe_end(state))

    def show_answer(self, state: AgentState) -> None:
        """What the run came to, where it came to anything; an answer that was streamed stands above."""
        if state.answer is None:
            return
        shown = "(as it came, above)" if self.was_shown(state.answer) else state.answer
        self._line("PARTIAL" if state.answer_is_partial else "ANSWER", shown, limit=None)

    def was_shown(self, answer: str) -> bool:
        """Whether this very text was the last that was streamed."""
        return bool(answer.strip()) and self._shown_text.strip() == answer.strip()

    def trace_written(self, path: str) -> None:
        """Where the whole run can be read."""
        self._line("trace", path, "dim")

    def _line(self, label: str, text: str, style: str | None = None, limit: int | None = LIVE_CHARS) -> None:
        if self._in_text:
            self._in_text = False
            self.console.print()
        shown = inert(text).strip()
        print_labelled(self.console, label, clip(shown, limit) if limit else shown, style)


def print_labelled(console: Console, label: str, text: str, style: str | None = None) -> None:
    """One entry under a label in the left margin. `text` must be inert already."""
    label_style = STYLES.get(label, "dim")
    if console.is_terminal:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(width=LABEL_WIDTH, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(label, style=label_style), Text(text, style=style or ""))
        console.print(grid)
        return
    margin = "\n" + " " * (LABEL_WIDTH + 1)
    console.print(Text(f"{label:<{LABEL_WIDTH}} " + text.replace("\n", margin)), soft_wrap=True)


def describe_run(state: AgentState) -> str:
    """Which model, driven how, within which caps, in one line."""
    model, limits = state.model, state.limits
    weights = f" {model.quantization}" if model.quantization else ""
    caps = [f"{limits.max_calls} calls"] if limits.max_calls is not None else []
    if limits.max_cost_microusd is not None:
        caps.append(usd(limits.max_cost_microusd))
    if limits.max_seconds is not None:
        caps.append(f"{limits.max_seconds:g} s")
    return f"{state.strategy} on {model.backend} {model.name}{weights}, at most {', '.join(caps) or 'no cap'}"


def describe_end(state: AgentState) -> str:
    """The status with its reason, and what the run used."""
    reason = f": {state.status_reason}" if state.status_reason else ""
    tokens = f"{state.prompt_tokens:,} + {state.completion_tokens:,} tokens"
    used = f"{state.calls_used} calls, {usd(state.cost_microusd)}, {tokens}, {state.seconds:.1f} s"
    return f"{state.status}{reason} ({used})"


def meter(state: AgentState) -> str:
    """Calls and dollars used of their caps, the calls as a bar."""
    used, cap = state.calls_used, state.limits.max_calls
    calls = f"{used} calls" if cap is None else f"{bar(used, cap)} {used}/{cap} calls"
    money_cap = state.limits.max_cost_microusd
    money = usd(state.cost_microusd) + (f" of {usd(money_cap)}" if money_cap is not None else "")
    return f"{calls}, {money}"


def bar(used: int, cap: int) -> str:
    """`used` of `cap` as ten cells; anything used shows at least one."""
    filled = min(BAR_WIDTH, -(-used * BAR_WIDTH // max(cap, 1)))
    return "#" * filled + "-" * (BAR_WIDTH - filled)


def show_call(call: ToolCall) -> str:
    """`name(argument=value, ...)`, values as JSON."""
    shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())
    return f"{call.name}({shown})"


def show_result(result: ToolResult) -> str:
    """The data, or the error with its type."""
    if result.success:
        return (result.data or "(nothing)") + (" (cut)" if result.truncated else "")
    return f"{result.error_type or 'error'}: {result.error or 'no reason given'}"
