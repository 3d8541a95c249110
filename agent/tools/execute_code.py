"""execute_code: Python in a process group of its own, in a scratch folder, with limits and no environment.

What holds: 15 seconds of wall clock for the whole group, no variable of the harness's environment, a fresh working
folder that is removed, limits on memory, CPU time, file size and open files, and bounded reading of what it prints.

What does NOT hold yet: the code runs as the same user. It can read what that user can, use the network, write outside
its folder, send signals to the harness, fill the disk with many files, and leave the group (setsid). Run models you do
not trust in a container or a virtual machine.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from agent.errors import StoreError
from agent.tools.base import Params, Tool, ToolContext, ToolError

MEMORY_BYTES = 1 << 30
FILE_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 1 << 20  # code that prints more is stopped
_MAX_TAIL = 1500
_POLL_SECONDS = 0.05
_LAUNCHER = Path(__file__).with_name("limited.py")
_SHOWN_SCRATCH = "/scratch"  # the folder's real name differs every time: runs that repeat must not see it
_FENCE = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)

End = Literal["exited", "timeout", "flood"]


class ExecuteCodeParams(Params):
    """What execute_code takes."""

    code: str = Field(
        min_length=1,
        max_length=20_000,
        description="The whole program as plain Python source. It has the standard library and no input.",
    )


@dataclass(frozen=True)
class Finished:
    """How the process ended and what the group printed (stdout and stderr in one, as it came)."""

    end: End
    code: int
    output: bytes


class ExecuteCode(Tool[ExecuteCodeParams]):
    """Runs a program and returns what it prints. See the module's docstring for what is isolated."""

    name = "execute_code"
    description = "Runs a Python program and returns what it prints. Only printed values are seen."
    effect = "execute"
    max_chars = 3000
    self_timed = True
    keywords = (
        *("python", "run code", "run this code", "run the code", "execute", "script", "simulate"),
        *("write a program", "a program that"),
    )
    params = ExecuteCodeParams

    def __init__(self, wall_clock_seconds: float = Tool.timeout_seconds):
        self._seconds = wall_clock_seconds

    def run(self, params: ExecuteCodeParams, context: ToolContext) -> str:  # noqa: ARG002 the signature of every tool
        """What the program printed.

        Raises:
            ToolError: code_failed with the end of the traceback, empty, timeout, too_large, memory, bad_args, refused.
            StoreError: no scratch folder or process can be made on this machine.
        """
        if os.name != "posix":
            raise ToolError("refused", "execute_code needs Linux or macOS: this system has no process groups to end.")
        if "\0" in params.code:  # some releases of Python would run what stands before it
            raise ToolError("bad_args", "The code holds a NUL character. Write it without.")
        try:
            scratch = Path(tempfile.mkdtemp(prefix="shoestring-")).resolve()
        except OSError as error:
            raise StoreError(f"execute_code: no scratch folder can be made: {error}") from error
        try:
            finished = self._run_in(scratch, _unfenced(params.code))
        except OSError as error:
            raise StoreError(f"execute_code: the program cannot be started: {error}") from error
        finally:
            _remove(scratch)
        text = finished.output.decode("utf-8", "replace").replace(str(scratch), _SHOWN_SCRATCH)
        return self._judged(finished, text.rstrip())

    def _run_in(self, scratch: Path, code: str) -> Finished:
        (scratch / "code.py").write_text(code, encoding="utf-8")
        deadline = time.monotonic() + self._seconds
        limits = [math.ceil(self._seconds) + 1, MEMORY_BYTES, FILE_BYTES, math.ceil(self._seconds) + 2]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LAUNCHER), *map(str, limits)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env=_environment(scratch),
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 a pipe was asked for; this tells mypy
        with process.stdout as pipe:
            output = bytearray()
            try:
                end = _follow(process, pipe.fileno(), output, deadline)
            finally:
                _end_group(process)
            _drain(pipe.fileno(), output)
        return Finished(end, process.returncode, bytes(output[:MAX_OUTPUT_BYTES]))

    def _judged(self, finished: Finished, text: str) -> str:
        if finished.end == "timeout" or finished.code == -signal.SIGXCPU:
            raise ToolError("timeout", f"The code was stopped after {self._seconds:g} seconds.{_tail(text)}")
        if finished.end == "flood":
            raise ToolError(
                "too_large", f"The code was stopped: it printed over {MAX_OUTPUT_BYTES:,} bytes. Print less."
            )
        if finished.code != 0:
            kind = "memory" if text.endswith("MemoryError") else "code_failed"
            raise ToolError(kind, f"The code failed ({_exit_words(finished.code)}).{_tail(text)}")
        if not text.strip():
            raise ToolError("empty", "The code printed nothing. Print the result.")
        return text


def _environment(scratch: Path) -> dict[str, str]:
    """All that the code sees of an environment."""
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONHASHSEED": "0",  # sets print in the same order every time
        "MALLOC_ARENA_MAX": "2",  # glibc would take 64 MB of the address space, which is limited, for each thread
    }


def _unfenced(code: str) -> str:
    """The code without a Markdown fence around all of it, which small models add and Python cannot read."""
    match = _FENCE.fullmatch(code)
    return match[1] if match else code


def _follow(process: subprocess.Popen[bytes], pipe: int, output: bytearray, deadline: float) -> End:
    """Read until the process ends, the deadline passes, or it has printed too much."""
    os.set_blocking(pipe, False)
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(min(left, _POLL_SECONDS)):
                chunk = os.read(pipe, 65_536)
                if not chunk:
                    return _wait(process, deadline)
                output += chunk
                if len(output) > MAX_OUTPUT_BYTES:
                    return "flood"
            elif process.poll() is not None:  # over, though something it started still holds the pipe
                return "exited"
    return "timeout"


def _wait(process: subprocess.Popen[bytes], deadline: float) -> End:
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "timeout"
    return "exited"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill all that is left of the group, whether its first process has ended or not."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody left (macOS says it the second way)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _drain(pipe: int, output: bytearray) -> None:
    """What was still in the pipe. Never waits: a process that left the group may hold the other end for ever."""
    with contextlib.suppress(BlockingIOError):
        while len(output) <= MAX_OUTPUT_BYTES and (chunk := os.read(pipe, 65_536)):
            output += chunk


def _remove(scratch: Path) -> None:
    """Remove the folder. Code may leave one too deep for Python's recursion, or closed to its own user."""
    try:
        shutil.rmtree(scratch)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([f"/bin/{command[0]}", *command[1:], "--", scratch], check=False, stderr=subprocess.DEVNULL)


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _tail(text: str) -> str:
    """The end of what was printed, from the start of a line: that is where a traceback says what went wrong."""
    if len(text) > _MAX_TAIL:
        text = text[-_MAX_TAIL:].partition("\n")[2] or text[-_MAX_TAIL:]
    return f" Its output ended with:\n{text}" if text else " It had printed nothing."
