"""One launcher of a rung, started, watched and ended: the clock, what its program prints, and what that takes.

The thread that starts it waits for it, so that it cannot end before it (bubblewrap's --die-with-parent means that very
thread). Nothing that a program prints is held beyond its limit.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.sandbox.base import Command, End, Finished, Limits, SandboxError
from agent.sandbox.holding import Holding
from agent.sandbox.sealed import sealed
from agent.sandbox.usage import children

LOOK_SECONDS = 0.1  # between two looks at what is taken
GRACE_SECONDS = 2.0  # for what a program has left running when it ended, while that holds its output
_END_SECONDS = 5.0
_CHUNK = 65_536
_MAX_STATUS_BYTES = 16
ASKS, _ANSWER = b"?", b"\n"  # a launcher whether somebody is there, before it starts its program

_BUSY = (
    "It was stopped: this machine ran short of memory or disk meanwhile, and that was not its doing. Try it once more."
)


@dataclass(frozen=True)
class Launch:
    """The launcher of a rung. It runs the program with both its outputs on stderr, and writes its exit code on stdout
    in a line; where it holds stderr itself, another line says when nobody else does. Its stdout is a socket: when it
    writes ASKS there first, it reads a line of answer, or the end where the harness has died.

    It ends only when it is ended: by SIGTERM where it `ends_when_told`, else by the death of its child, the first
    process of a namespace, with which the kernel ends all the others.

    `environment` is all that it gets of one. `kept` are the descriptors that it is handed beside the standard ones.
    `folders` are what the program can write in on the disk, `in_memory`, by their names inside, what of that is held in
    memory; how much is in them is watched.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    kept: tuple[int, ...]
    folders: tuple[Path, ...]
    ends_when_told: bool
    in_memory: tuple[str, ...] = ()


def watch(launch: Launch, command: Command) -> Finished:
    """Run a launcher until its program ends or a limit is broken. Nothing that it started is left.

    Raises:
        SandboxError: no_sandbox, the launcher cannot be started, or could not start the program; tool_crashed, the
            launcher was ended from outside; machine_busy, the machine ran short, and it was not the program.
        StoreError: there is no room for the input.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs, sealed(command.stdin) as stdin:
        try:
            process = subprocess.Popen(
                launch.argv,
                stdin=stdin,
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                cwd="/",
                env=dict(launch.environment),
                pass_fds=launch.kept,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxError("no_sandbox", f"{Path(launch.argv[0]).name} cannot be started: {error}") from error
        theirs.close()
        with process, _Launcher(process, launch.ends_when_told) as launcher:
            limits = command.limits
            holding = Holding(process.pid, launch.folders, launch.in_memory, limits.memory, limits.disk)
            return _Watch(launcher, ours, limits, holding).to_the_end()


class _Launcher:
    """A launcher that is under way, and handles of its children, which stay theirs when the number is used again."""

    def __init__(self, process: subprocess.Popen[bytes], ends_when_told: bool):
        self.process = process
        self._ends_when_told = ends_when_told
        self._children: list[int] = []

    def __enter__(self) -> _Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for handle in self._children:
            os.close(handle)

    def note_children(self) -> int | None:
        """Take hold of the first process of the sandbox, as soon as there is one. Its number, if that was now."""
        if not self._children and not self._ends_when_told:
            for child in children(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    self._children.append(os.pidfd_open(child))
                    return child
        return None

    def end(self) -> None:
        """End all that was started. It has ended when this returns."""
        if self.process.returncode is not None:
            return
        if self._ends_when_told:
            self.process.terminate()
        else:
            self.note_children()
            for handle in self._children:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not self._children:  # not begun yet: its child dies with it
                self.process.kill()
        self._wait()
        for handle in self._children:  # a launcher that was killed from within does not wait for them
            _await(handle, _END_SECONDS)

    def _wait(self) -> None:
        """Wait for the launcher itself, and kill one that does not end as it should."""
        try:
            if sys.platform == "linux" and self.process.returncode is None:  # wait(seconds) sleeps between looks
                handle = os.pidfd_open(self.process.pid)
                try:
                    _await(handle, _END_SECONDS)
                finally:
                    os.close(handle)
            self.process.wait(0 if sys.platform == "linux" else _END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class _Watch:
    launcher: _Launcher
    told: socket.socket
    limits: Limits
    holding: Holding
    started: float = field(default_factory=time.monotonic)
    output: bytearray = field(default_factory=bytearray)
    status: bytearray = field(default_factory=bytearray)
    doubtful: bool = False  # that it was this program which broke a limit

    def __post_init__(self) -> None:
        self._next_look = self.started + LOOK_SECONDS

    def to_the_end(self) -> Finished:
        process = self.launcher.process
        assert process.stderr is not None  # noqa: S101 a pipe; this tells mypy
        status, output = self.told.fileno(), process.stderr.fileno()
        for pipe in (status, output):
            os.set_blocking(pipe, False)
        ended = self._follow(status, output)
        self.launcher.end()
        if self.doubtful and not self.holding.gave_back():
            raise SandboxError("machine_busy", _BUSY)
        _read(status, self.status, _MAX_STATUS_BYTES)
        _read(output, self.output, self.limits.output)
        if ended == "exit" and len(self.output) > self.limits.output:
            ended = "output"
        shown = bytes(self.output[: self.limits.output])
        code = self._code(shown) if ended == "exit" else None
        return Finished(code, shown, ended, time.monotonic() - self.started)

    def _code(self, shown: bytes) -> int:
        """The exit code of a program that ended. Only a program can bring down its launcher by a signal; where that has
        any other end and tells no code, no program was started."""
        told = bytes(self.status).partition(b"\n")[0]
        if told.isdigit():
            return int(told)
        code = self.launcher.process.returncode
        if code == 0:
            raise SandboxError("tool_crashed", "It was ended from outside. Try it once more.")
        if 0 < code < 128:
            why = shown.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise SandboxError("no_sandbox", f"it could not start a program: {why[:200]}")
        return 128 - code if code < 0 else code

    def _follow(self, status: int, output: int) -> End:
        """Read until the program and all that holds its output have ended, or a limit is broken."""
        deadline = self.started + self.limits.seconds
        with selectors.DefaultSelector() as selector:
            for pipe in (status, output):
                selector.register(pipe, selectors.EVENT_READ)
            while (now := time.monotonic()) < deadline:
                if (first := self.launcher.note_children()) is not None:
                    self.holding.note_first(first)
                if (broken := self._look(now)) is not None:
                    return broken
                for key, _ in selector.select(max(0.0, min(deadline, self._next_look) - now)):
                    if key.fd == output:
                        if not _read(output, self.output, self.limits.output):
                            selector.unregister(output)
                    elif not self._hear(status):
                        return "exit"  # the launcher is gone
                    elif self.status:
                        deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
                if len(self.output) > self.limits.output:
                    return "output"
                if self.status.count(b"\n") > 1 or (self.status and output not in selector.get_map()):
                    return "exit"
        return "exit" if self.status else "timeout"

    def _hear(self, status: int) -> bool:
        """Read what the launcher says, and answer where it asks. False when it is gone."""
        is_there = _read(status, self.status, _MAX_STATUS_BYTES)
        if self.status.startswith(ASKS):
            del self.status[: len(ASKS)]
            with contextlib.suppress(OSError):  # gone since
                os.write(status, _ANSWER)
        return is_there

    def _look(self, now: float) -> End | None:
        """Whether all its processes together, or its files, take more than they may."""
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_SECONDS
        over = self.holding.over_memory() or self.holding.over_disk()
        if over is None:
            return None
        self.doubtful = not over.is_counted
        return over.limit


def _await(process: int, seconds: float) -> None:
    """Wait until the process of a handle has ended, and no longer than this."""
    ended = select.poll()
    ended.register(process, select.POLLIN)
    ended.poll(seconds * 1000)


def _read(pipe: int, into: bytearray, most: int) -> bool:
    """Read what is there, never waiting, until there is more than `most`. False at the end of the pipe."""
    try:
        while len(into) <= most:
            chunk = os.read(pipe, _CHUNK)
            if not chunk:
                return False
            into += chunk
    except BlockingIOError:
        return True
    except ConnectionResetError:  # it went before it read an answer
        return False
    return True
