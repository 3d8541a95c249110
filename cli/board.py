"""The runs of a batch as they go: a live table on a terminal, one line a finished run elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agent.prompts.budget_line import usd
from agent.reporter import Reporter, SilentReporter
from agent.state import AgentState, LLMCall, StepRecord, ToolCall
from cli.escape import inert_line
from cli.terminal import show_call
from evals.plan import Plan
from evals.runner import Finished

OUTCOME_STYLES = {"pass": "green", "fail": "red", "invalid": "yellow", "running": "cyan", "": "dim"}
FRAME_LINES = 6  # the table's head and border, and the line below it
NOW_CHARS = 60


@dataclass
class Row:
    """One run's line of the table."""

    name: str
    outcome: str = ""
    calls: str = ""
    cost: str = ""
    seconds: str = ""
    now: str = ""


class Board:
    """Shows a batch. Safe to be told of several runs at a time."""

    def __init__(self, console: Console, plans: Sequence[Plan]) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._rows = {id(plan): Row(inert_line(plan.label, 60)) for plan in plans}
        self._is_live = console.is_terminal and console.color_system is not None

    def live(self) -> AbstractContextManager[object]:
        """While this is open, the table is kept up to date on a terminal."""
        if not self._is_live:
            return nullcontext()
        return Live(get_renderable=self._table, console=self._console, refresh_per_second=4)

    def reporter(self, plan: Plan) -> Reporter:
        """What the run of a plan reports to."""
        return _RowReporter(self._rows[id(plan)])

    def tell(self, message: str) -> None:
        """One line about the whole batch."""
        self._console.print(Text(inert_line(message), style="yellow"), soft_wrap=True)

    def finished(self, finished: Finished) -> None:
        """Show what a run came to."""
        row, verdict = self._rows[id(finished.plan)], finished.state.verdict
        with self._lock:
            row.outcome = verdict.outcome if verdict else "invalid"
            _measure(row, finished.state)
            row.now = inert_line(why(finished.state), NOW_CHARS if self._is_live else 200)
        if not self._is_live:
            line = f"{row.outcome:<8} {row.name:<28} {row.calls:>5} calls  {row.cost:>10}  {row.seconds:>7}  {row.now}"
            self._console.print(Text(line.rstrip()), soft_wrap=True)

    def _table(self) -> RenderableType:
        table = Table(expand=False)
        for head, width in (("run", 8), ("verdict", 7), ("calls", 5), ("cost", 9), ("time", 7), ("now, or why", 8)):
            table.add_column(head, no_wrap=True, min_width=width)
        with self._lock:
            for row in self._visible():
                verdict = Text(row.outcome or "waiting", style=OUTCOME_STYLES[row.outcome])
                table.add_row(
                    Text(row.name), verdict, Text(row.calls), Text(row.cost), Text(row.seconds), Text(row.now)
                )
        return table

    def _visible(self) -> list[Row]:
        """As many rows as fit the screen, from the first one that has not ended."""
        rows, room = list(self._rows.values()), max(1, self._console.height - FRAME_LINES)
        open_rows = (place for place, row in enumerate(rows) if row.outcome in ("", "running"))
        first = min(next(open_rows, 0), max(0, len(rows) - room))
        return rows[first : first + room]


class _RowReporter(SilentReporter):
    """Carries one run's events over to its row."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def run_started(self, state: AgentState) -> None:
        self._row.outcome = "running"
        _measure(self._row, state)

    def call_finished(self, state: AgentState, call: LLMCall) -> None:  # noqa: ARG002  # the protocol's signature
        _measure(self._row, state)

    def think(self, step: StepRecord) -> None:
        self._row.now = inert_line(step.thought, NOW_CHARS)

    def act(self, call: ToolCall) -> None:
        self._row.now = inert_line(show_call(call), NOW_CHARS)

    def notice(self, message: str) -> None:
        self._row.now = inert_line(message, NOW_CHARS)


def why(state: AgentState) -> str:
    """The first assert that failed, or the reason of an invalid run; the status where all is well."""
    verdict = state.verdict
    if verdict is None or verdict.outcome == "pass":
        return state.status
    failed = next((line for line in verdict.asserts if not line.passed), None)
    if verdict.outcome == "fail" and failed is not None:
        return f"{failed.type}: {failed.message}"
    return verdict.reason or state.status_reason


def _measure(row: Row, state: AgentState) -> None:
    used, cap = state.calls_used, state.limits.max_calls
    row.calls = str(used) if cap is None else f"{used}/{cap}"
    row.cost = usd(state.cost_microusd)
    row.seconds = f"{state.seconds:.1f} s" if state.status != "running" else ""
