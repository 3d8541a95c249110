"""One process of a rung, started, watched and ended: the clock, what it prints, and what it takes.

The thread that starts it waits for it, so that it cannot end before it (bubblewrap's --die-with-parent means that very
thread). Nothing that a program prints is held beyond its limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import StoreError
from agent.sandbox.base import End, Finished, Limits, SandboxError
from agent.sandbox.usage import children, disk_bytes, free_bytes, resident_bytes

_LOOK_SECONDS = 0.1  # between two looks at what is taken
_END_SECONDS = 5.0
_MAX_SHARE = 0.1  # of the time may go into looking at the disk
_CHUNK = 65_536


@dataclass(frozen=True)
class Launch:
    """The launcher of a rung: a process whose children are the sandbox, and which ends when they have.

    `environment` is all that it gets of one. `kept` are the descriptors that it is handed beside the standard ones.
    `folder` is what the program can write in on the disk; its size is watched.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    kept: tuple[int, ...] = ()
    folder: Path | None = None


def watch(launch: Launch, limits: Limits, stdin: bytes) -> Finished:
    """Run a launcher until it ends or a limit is broken. Nothing that it started is left.

    Raises:
        SandboxError: no_sandbox, the launcher cannot be started.
    """
    with sealed(stdin) as stdin_handle:
        try:
            process = subprocess.Popen(
                launch.argv,
                stdin=stdin_handle,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=dict(launch.environment),
                pass_fds=launch.kept,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise SandboxError("no_sandbox", f"{Path(launch.argv[0]).name} cannot be started: {error}") from error
    return _Watch(process, limits, launch.folder).to_the_end()


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """The handle of an unnamed file with these bytes, which nobody can change any more where the system has such."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.lseek(handle, 0, os.SEEK_SET)
        if hasattr(fcntl, "F_ADD_SEALS"):
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
        yield handle
    except OSError as error:
        raise StoreError(f"the input of a program cannot be kept: {error}") from error
    finally:
        os.close(handle)


@dataclass
class _Watch:
    process: subprocess.Popen[bytes]
    limits: Limits
    folder: Path | None
    started: float = field(default_factory=time.monotonic)
    output: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._next_look = self._next_disk_look = self.started + _LOOK_SECONDS
        self._free_at_first = free_bytes(self.folder) if self.folder else 0

    def to_the_end(self) -> Finished:
        assert self.process.stdout is not None  # noqa: S101 a pipe was asked for; this tells mypy
        with self.process.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            try:
                ended = self._follow(pipe.fileno())
            finally:
                end(self.process)
            self._drain(pipe.fileno())
        if len(self.output) > self.limits.output and ended == "exit":
            ended = "output"
        code = self.process.returncode
        code = 128 - code if code < 0 else code
        seconds = time.monotonic() - self.started
        return Finished(code, bytes(self.output[: self.limits.output]), ended, seconds)

    def _follow(self, pipe: int) -> End:
        deadline = self.started + self.limits.seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while (now := time.monotonic()) < deadline:
                if (broken := self._look(now)) is not None:
                    return broken
                pause = max(0.0, min(deadline, self._next_look) - now)
                if not selector.get_map():  # it prints no more, and may yet go on
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(pause)
                        return "exit"
                elif selector.select(pause):
                    chunk = os.read(pipe, _CHUNK)
                    if not chunk:
                        selector.unregister(pipe)
                    self.output += chunk
                    if len(self.output) > self.limits.output:
                        return "output"
                elif self.process.poll() is not None:
                    return "exit"
        return "timeout"

    def _look(self, now: float) -> End | None:
        """Whether all its processes together, or its files, take more than they may."""
        if now < self._next_look:
            return None
        self._next_look = now + _LOOK_SECONDS
        if resident_bytes(self.process.pid) > self.limits.memory:
            return "memory"
        if self.folder is None or now < self._next_disk_look:
            return None
        taken = disk_bytes(self.folder)
        self._next_disk_look = now + max(_LOOK_SECONDS, (time.monotonic() - now) / _MAX_SHARE)
        if taken is None or taken > self.limits.disk or free_bytes(self.folder) < self._free_at_first // 2:
            return "disk"
        return None

    def _drain(self, pipe: int) -> None:
        """What was still in the pipe; never waits."""
        with contextlib.suppress(BlockingIOError):
            while len(self.output) <= self.limits.output and (chunk := os.read(pipe, _CHUNK)):
                self.output += chunk


def end(process: subprocess.Popen[bytes]) -> None:
    """End all that a launcher has started, and then itself.

    Its children are killed first: bubblewrap's is the first process of the namespace, with which the kernel ends all
    that is in it, before the launcher learns of it; our own launcher ends its child's group when the child is gone.
    """
    if process.poll() is None:
        started = children(process.pid)
        for pid in started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not started:
            process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
