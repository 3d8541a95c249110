"""A person at a pseudo-terminal: types when a text has appeared, and reads all that a command writes there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support_cli import Desk

SECONDS = 20.0
# What rich and readline style a line and read a paste with.
STYLING = re.compile(r"\x1b\[\??[0-9;]*[a-zA-Z]")


class Terminal:
    """One command on a terminal of its own. What was shown is kept plain in `shown`."""

    def __init__(self, process: subprocess.Popen[bytes], handle: int) -> None:
        self._process, self._handle = process, handle
        self._raw = b""
        self.is_closed = False
        self._read = 0  # how much of what was shown has been waited for

    @property
    def shown(self) -> str:
        """All so far, without styles and with plain line ends."""
        return STYLING.sub("", self._raw.decode("utf-8", "replace")).replace("\r\n", "\n")

    def wait_for(self, text: str) -> None:
        """Read until `text` appears after what was waited for before."""
        deadline = time.monotonic() + SECONDS
        while (place := self.shown.find(text, self._read)) < 0:
            assert self._take(deadline), f"{text!r} never came: {self.shown[self._read :]!r}"
        self._read = place + len(text)

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._handle, text.encode("utf-8"))

    def interrupt(self) -> None:
        """Press Ctrl-C until something comes of it: readline misses a signal that falls between two of its waits."""
        self.type("\x03")
        while not select.select([self._handle], [], [], 0.5)[0]:
            self.type("\x03")

    def wait(self, seconds: float) -> None:
        """Do nothing for so long; nothing may appear meanwhile."""
        ready, _, _ = select.select([self._handle], [], [], seconds)
        assert not ready, self.shown[-500:]

    def close(self) -> int:
        """Close the window while the command runs; the exit code."""
        os.close(self._handle)
        self.is_closed = True
        return self._process.wait(SECONDS)

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._take(deadline):
            pass
        return self._process.wait(SECONDS)

    def _take(self, deadline: float) -> bool:
        """Whether there was more to read."""
        ready, _, _ = select.select([self._handle], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing more came: {self.shown[-500:]!r}"
        try:
            piece = os.read(self._handle, 65536)
        except OSError:  # Linux says so when the other side is gone
            piece = b""
        self._raw += piece
        return bool(piece)


def _own_terminal() -> None:
    """The keys of the terminal on stdin reach this process: Ctrl-C is a signal to it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def at_terminal(desk: Desk, *args: str, signals: bool = True, **settings: str) -> Iterator[Terminal]:
    """Start `main.py ...` on a terminal whose keys are the test's; it is killed if it has not ended by itself.

    Without `signals` neither Ctrl-C nor the closing of the terminal reach it as one.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        desk.command("main.py", *args),
        cwd=desk.folder,
        env=desk.environment(TERM="xterm-256color", COLUMNS="100", **settings),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_own_terminal if signals else None,  # noqa: PLW1509  # one system call, which takes no lock
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait(SECONDS)
        if not terminal.is_closed:
            os.close(ours)
