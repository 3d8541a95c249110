"""main.py chat: a conversation at the terminal. It is one run: each message is a turn of it, its caps hold for all."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from agent.errors import UsageError
from agent.guards.approvals import parse_rules
from agent.prompts.budget_line import usd
from agent.sandbox.leftovers import sweep
from agent.state import AgentState, LimitsRecord
from cli.compose import backends, settings_of
from cli.embeddings import embeddings
from cli.escape import inert
from cli.intake import MAX_TASK_BYTES, check_task, read_task, too_long
from cli.log import keep_log
from cli.mcp_servers import offer_mcp
from cli.outcome import OK
from cli.person import Person, is_at_terminal
from cli.plugins import load_plugins
from cli.task import ended, make_runner, tell_end
from cli.terminal import TerminalReporter, make_console
from evals.plan import plan_task
from evals.store import TraceStore

PROMPT = "you> "
MAX_LINE_BYTES = MAX_TASK_BYTES + 2  # and its end
HELP = (
    "/quit or Ctrl-D ends the chat, /help shows this; Ctrl-C stops an answer that is under way, and the chat with it."
    " Anything else is said to the model."
)
COMMANDS = ("/quit", "/help")
RAISE_CAPS = "the budget of this chat is used up; the next may have more: --max-calls N, --max-cost USD"

# One line of the person's, without its end; None where the input has ended.
ReadLine = Callable[[], str | None]


class ChatReporter(TerminalReporter):
    """Shows a run of several turns: each answer when it is given, and at the end only how it ended."""

    def __init__(self, console: Console, limits: LimitsRecord) -> None:
        super().__init__(console)
        self._limits = limits
        self._state: AgentState | None = None

    @property
    def is_budget_left(self) -> bool:
        """Whether another call may be made."""
        calls, microusd = self._left()
        return calls != 0 and (microusd is None or microusd > 0)

    def budget_left(self) -> str:
        """What may still be spent, in a few words."""
        calls, microusd = self._left()
        parts = [] if calls is None else [f"{calls} of {self._limits.max_calls} calls"]
        parts += [] if microusd is None else [usd(microusd)]
        return f"{', '.join(parts) or 'any amount'} left"

    def run_started(self, state: AgentState) -> None:
        """The head, once for the whole chat."""
        self._state = state
        super().run_started(state)

    def answered(self, answer: str) -> None:
        """The answer to the person's last message, where it was not streamed."""
        if not self.was_shown(answer):
            self._line("ANSWER", answer, limit=None)

    def run_finished(self, state: AgentState) -> None:
        """How the chat ended; what was found where its last turn has no answer."""
        self.show_status(state)
        if state.answer_is_partial:
            self.show_answer(state)

    def _left(self) -> tuple[int | None, int | None]:
        calls, microusd = self._limits.max_calls, self._limits.max_cost_microusd
        if self._state is not None:
            calls = None if calls is None else max(0, calls - self._state.calls_used)
            microusd = None if microusd is None else max(0, microusd - self._state.cost_microusd)
        return calls, microusd


def chat(args: Namespace) -> int:
    """Talk until the person has had enough or the budget has; where nothing was said, nothing is run.

    Raises:
        UsageError, BackendError, StoreError: nothing was run, or what was run cannot be kept.
    """
    opening = None if args.message is None else read_task(args.message, sys.stdin.buffer)
    settings, _ = settings_of(args)
    load_plugins(args.plugin)
    offer_mcp(settings)
    # Small talk needs no evidence.
    plan = replace(plan_task(settings, "", parse_rules(args.approve or ())), evidence=False)
    reporter = ChatReporter(make_console(sys.stdout, color=not args.no_color), plan.limits.record())
    person = Person(reporter.console)
    keep_log(settings.traces_dir, settings.secret_values())
    sweep()
    with (
        TraceStore(settings.traces_dir, settings.secret_values()) as store,
        backends(settings, [plan], reporter.notice) as backend_for,
        embeddings(settings, [plan]) as embedding,
    ):
        turns = _turns(opening, _line_reader(reporter.console), person, reporter)
        first = next(turns, None)
        if first is None:
            return OK
        runner = make_runner(settings, store, backend_for, person, embedding=embedding, can_ask=is_at_terminal())
        finished = runner.run(replace(plan, task=first), reporter, follow_ups=turns)
    tell_end(finished, reporter)
    used_up = finished.state.status == "completed" and not reporter.is_budget_left
    if used_up or finished.state.status == "budget_exhausted":
        reporter.notice(RAISE_CAPS)
    return ended(finished.state, shown=sys.stdout.isatty())


def _turns(opening: str | None, read_line: ReadLine, person: Person, reporter: ChatReporter) -> Iterator[str]:
    """What the person says, one message at a time, until they have had enough or nothing can be paid any more."""
    if opening is not None:
        reporter.console.print(Text(f"{PROMPT}{inert(opening)}"), soft_wrap=True)
        yield opening
    while reporter.is_budget_left:
        try:
            reporter.console.print(Text(reporter.budget_left(), style="dim"), soft_wrap=True)
            with person.waited_for():
                message = _message(read_line, reporter)
        except KeyboardInterrupt:  # nothing is under way that it could stop: it ends the chat as Ctrl-D does
            message = None
        if message is None:
            return
        yield message


def _message(read_line: ReadLine, reporter: ChatReporter) -> str | None:
    """The next line that is a message; commands are carried out on the way to it. None ends the chat."""
    while True:
        try:
            line = read_line()
            if line is None or line.strip() == "/quit":
                return None
            if line.strip() == "/help":
                reporter.notice(HELP)
            elif _is_command(line.strip()):
                raise UsageError(f"there is no {line.strip()[:40]}; there are {', '.join(COMMANDS)}")
            elif line.strip():
                return check_task(line.strip())
        except UsageError as error:
            reporter.notice(str(error))


def _is_command(line: str) -> bool:
    """Whether a line looks like a command: one word behind one stroke, which no path and no sentence is."""
    return line.startswith("/") and line[1:].isalpha()


# -- reading a line ---------------------------------------------------------------------------------------------------


def _line_reader(console: Console) -> ReadLine:
    if not is_at_terminal():
        return lambda: _read_from_pipe(console)
    with suppress(ImportError):  # Python may have been built without it
        import readline  # noqa: F401, PLC0415  # gives input() its line editing
    return lambda: _read_at_terminal(console)


def _read_at_terminal(console: Console) -> str | None:
    """One line with line editing.

    Raises:
        UsageError: what was typed is not in the terminal's encoding.
    """
    try:
        return input(PROMPT)
    except EOFError:
        console.print()
        return None
    except KeyboardInterrupt:
        console.print()
        raise
    except UnicodeDecodeError:
        raise UsageError("that line is not UTF-8 text; set the terminal to UTF-8") from None


def _read_from_pipe(console: Console) -> str | None:
    """One line of a pipe, shown as if it had been typed; of one that is too long, all is read and nothing kept.

    Raises:
        UsageError: it is too long, or not UTF-8 text.
    """
    data = piece = sys.stdin.buffer.readline(MAX_LINE_BYTES)
    while len(piece) == MAX_LINE_BYTES and not piece.endswith(b"\n"):
        piece = sys.stdin.buffer.readline(MAX_LINE_BYTES)
    if piece is not data:
        raise too_long()
    if not data:
        return None
    try:
        line = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UsageError(f"a line of the input is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    if line.strip():
        console.print(Text(f"{PROMPT}{inert(line)}"), soft_wrap=True)
    return line
