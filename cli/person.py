"""The person at the terminal: asked whether a call may be made, while the run's clock stands still."""

from __future__ import annotations

import errno
import itertools
import json
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.text import Text

from agent.errors import CancelledRunError
from agent.state import AgentState, ToolCall
from agent.tools.registry import Question
from cli.escape import LINE_CHARS, clip, inert, inert_line
from cli.terminal import LABEL_WIDTH, print_labelled

QUESTION = "Allow this call? [y/N] "
_WHERE = ("path", "destination", "url")  # arguments that say where a call works
NAME_WIDTH = 24  # of an argument; a longer name goes on in the next line of its column
MIN_VALUE_WIDTH = 8  # in a terminal too narrow for more


def is_at_terminal() -> bool:
    """Whether somebody can be asked here and can read the question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Person:
    """Whoever started the command. The seconds that they take are not the run's."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._waited = 0.0

    def clock(self) -> float:
        """Seconds that only grow while nobody waits for the person."""
        return time.monotonic() - self._waited

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """While this is open, the run waits for the person and its clock stands still."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waited += time.monotonic() - began

    def allows(self, asked: Question) -> bool:
        """Show the call whole and wait for the person's word; whatever is not yes is no.

        Raises:
            CancelledRunError: the input has ended.
            KeyboardInterrupt: Ctrl-C.
        """
        with self.waited_for():
            print_whole_call(self._console, asked.call, asked.left_out)
            if asked.warning is not None:
                print_labelled(self._console, "NOTICE", inert_line(asked.warning))
            for part in _folded(_in_short(asked.call), self._console.width):
                self._console.print(Text(part, style="bold yellow"), soft_wrap=True)
            _forget_what_was_typed()
            self._console.print(Text(QUESTION, style="bold yellow"), end="", soft_wrap=True)
            try:
                line = _typed_line()
            except KeyboardInterrupt:
                self._console.print()
                raise
        if not line:
            self._console.print()
            raise CancelledRunError("the input ended where a call was to be allowed")
        return line.strip().lower() in ("y", "yes")


def waiting_call(state: AgentState) -> ToolCall | None:
    """The call that ended a run because nobody could be asked about it."""
    if state.status != "confirmation_required" or not state.steps:
        return None
    step = state.steps[-1]
    waiting = [approval.action for approval in step.approvals if approval.verdict == "unanswered"]
    return step.actions[waiting[-1]] if waiting else None


def how_to_allow(call: ToolCall) -> str:
    """What the person can do about a call that nobody could be asked about."""
    return f"allow it with --approve {call.name}=allow, or run this at a terminal, where you are asked"


def print_whole_call(console: Console, call: ToolCall, left_out: Mapping[str, object] | None = None) -> None:
    """A call with every argument whole, and those that it leaves out with the values they have then.

    A text stays in its own column, where each of its lines bears a mark: it cannot pass for another argument, nor the
    rest of a line that is folded for a line of its own.
    """
    arguments = {inert(name): _shown(value) for name, value in call.arguments.items()}
    for name, value in (left_out or {}).items():
        shown = _shown(value)
        arguments[inert(name)] = [*shown[:-1], f"{shown[-1]} (left out)"]
    print_labelled(console, "ASK", f"{inert(call.name)}, with" + (":" if arguments else " no arguments"))
    widest = max(map(len, arguments), default=0)
    if not console.is_terminal:  # nothing is folded
        for name, lines in arguments.items():
            _print_row(console, [name], lines, widest)
        return
    width = min(widest, NAME_WIDTH)
    room = max(MIN_VALUE_WIDTH, console.width - LABEL_WIDTH - 1 - width - 1)
    for name, lines in arguments.items():
        _print_row(
            console, [*_folded(name, width, "")], [part for line in lines for part in _folded(line, room)], width
        )


def _print_row(console: Console, name: list[str], value: list[str], width: int) -> None:
    for left, right in itertools.zip_longest(name, value, fillvalue=""):
        line = Text(" " * (LABEL_WIDTH + 1))
        line.append(f"{left:{width}} ", "magenta")
        line.append(right)
        console.print(line, soft_wrap=True)


def _folded(line: str, width: int, mark: str = "+ ") -> Iterator[str]:
    """A line in parts that no terminal folds again; all but the first begin with the mark. Not a blank is lost.

    Terminals differ in how wide they show what is not ASCII: it is counted as two cells, which is the most that any
    gives it.
    """
    part, cells = "", 0
    for character in line:
        wide = 1 if character.isascii() else 2
        if part and cells + wide > width:
            yield part
            part, cells = mark, len(mark)
        part += character
        cells += wide
    yield part


def _in_short(call: ToolCall) -> str:
    """The tool and where it works: above the question, as all else may have moved out of sight."""
    where = [f"{name} {_as_json(call.arguments[name])}" for name in _WHERE if isinstance(call.arguments.get(name), str)]
    return clip(", ".join([inert(call.name), *where]), LINE_CHARS)


def _shown(value: Any) -> list[str]:
    """A text of several lines as lines, each behind a bar; anything else as JSON. Inert."""
    if isinstance(value, str) and "\n" in value:
        return [f"| {inert(line)}".expandtabs() for line in value.split("\n")]
    return [_as_json(value)]


def _as_json(value: Any) -> str:
    return inert(json.dumps(value, ensure_ascii=False))


def _forget_what_was_typed() -> None:
    """A line that was typed or pasted before the question stood there is no answer to it."""
    with suppress(termios.error):  # the terminal was closed: reading from it will say so
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _typed_line() -> str:
    """What the person typed, with its end; nothing where the input has ended or the terminal was closed."""
    try:
        return sys.stdin.readline()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return ""
