"""execute_code: a program of the model's, run in the run's sandbox (agent/sandbox), in the run's workspace.

The program sees the workspace as its working folder, and may change it, where it was made for the run. A person's own
folder is not shown to it: it may hold what tools must not read, which no sandbox tells apart. Then, and where there is
no workspace, it works in an empty folder that is removed.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from pathlib import Path
from typing import Literal

from pydantic import Field

from agent.redaction import redacted
from agent.sandbox.base import SHOWN_SOURCE, Command, Finished, Limits, Sandbox, SandboxError
from agent.sandbox.limits import PATH
from agent.sandbox.readable import is_system, python_for
from agent.sandbox.usage import MAX_ENTRIES
from agent.tools.base import Params, Tool, ToolContext, ToolError

Language = Literal["python", "javascript", "bash"]

_MAX_TAIL = 1500
_FENCE = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_ES_MODULE = re.compile(r"^[ \t]*(?:import[ \t]*[\w{*\"']|export[ \t])|^await[ \t]", re.MULTILINE)
# -s -B: nothing of the user's, nothing left behind; -u keeps what was printed before a kill.
_PYTHON = ("-s", "-B", "-u", "-X", "utf8", SHOWN_SOURCE)
_PYTHON_VARIABLES = (
    ("PYTHONPATH", "."),  # its modules are those of the workspace
    ("PYTHONHASHSEED", "0"),  # sets print in the same order every time
    ("MALLOC_ARENA_MAX", "2"),  # glibc would take 64 MB of the address space, which is limited, for each thread
)
_NODE_VARIABLES = (("OPENSSL_CONF", "/dev/null"),)  # it would not start where it may not read the system's
_OUT_OF_MEMORY = re.compile(
    r"(?:^MemoryError(?::.*)?$|JavaScript heap out of memory|: cannot allocate \d+ bytes)", re.M
)


class ExecuteCodeParams(Params):
    """What execute_code takes."""

    code: str = Field(
        min_length=1,
        max_length=20_000,
        description="The whole program as plain source. It has the standard library and no input.",
    )
    language: Language = Field(default="python", description="What it is written in.")


class ExecuteCode(Tool[ExecuteCodeParams]):
    """Runs a program and returns what it prints. See the module's docstring for where."""

    name = "execute_code"
    description = "Runs a program, in Python by default, and returns what it prints. Only printed values are seen."
    effect = "execute"
    max_chars = 3000
    self_timed = True
    keywords = (
        *("python", "javascript", "bash", "run code", "run this code", "run the code", "execute", "script", "simulate"),
        *("write a program", "a program that"),
    )
    params = ExecuteCodeParams

    def __init__(self, wall_clock_seconds: float = Tool.timeout_seconds):
        self._seconds = wall_clock_seconds

    def run(self, params: ExecuteCodeParams, context: ToolContext) -> str:
        """What the program printed.

        Raises:
            ToolError: code_failed with the exit code and the end of what was printed; empty, timeout, memory,
                too_large, disk, bad_args; no_sandbox or missing_program, this machine cannot run it; machine_busy or
                tool_crashed, it was ended for what was not its doing.
            StoreError: the disk takes no scratch folder.
        """
        source = _source(_unfenced(params.code))
        try:
            sandbox = context.isolation.sandbox()
            command = self._command(
                params.language, source, sandbox, None if context.persons_folder else context.workspace
            )
            finished = sandbox.run(command)
        except SandboxError as error:
            raise ToolError(error.error_type, str(error)) from error
        text = redacted(finished.output.decode("utf-8", "replace"), context.secrets).rstrip()
        return self._judged(finished, text)

    def _command(self, language: Language, source: bytes, sandbox: Sandbox, workspace: Path | None) -> Command:
        limits = Limits(seconds=self._seconds)
        if language == "python":
            python, files = python_for(sandbox)
            argv = (str(python), *_PYTHON)
            return Command(argv, workspace, source=source, readable=files, environment=_PYTHON_VARIABLES, limits=limits)
        if language == "bash":
            return Command((str(_program("bash")), SHOWN_SOURCE), workspace, source=source, limits=limits)
        node = _program("node")
        files = () if is_system(node) else (node,)
        limits = Limits(seconds=self._seconds, address_space=None)  # it reserves far more than it uses
        kind = "module" if _ES_MODULE.search(source.decode()) else "commonjs"
        # From a file it would tell the two kinds apart by a name that ours has not.
        told = (str(node), f"--input-type={kind}", "-")
        return Command(told, workspace, stdin=source, readable=files, environment=_NODE_VARIABLES, limits=limits)

    def _judged(self, finished: Finished, text: str) -> str:
        over = Limits()
        if finished.ended == "timeout" or finished.code == 128 + signal.SIGXCPU:
            raise ToolError("timeout", f"The code was stopped after {self._seconds:g} seconds.{_tail(text)}")
        if finished.ended == "output":
            raise ToolError("too_large", f"The code was stopped: it printed over {over.output:,} bytes. Print less.")
        if finished.ended == "memory":
            raise ToolError("memory", f"The code was stopped: it took over {over.memory:,} bytes of memory. Use less.")
        if finished.ended == "disk":
            raise ToolError("disk", f"The code failed: it wrote over {over.disk:,} bytes of files. Write less.")
        if finished.ended == "files":
            raise ToolError("disk", f"The code failed: it made over {MAX_ENTRIES:,} files. Make fewer.")
        if finished.code:
            kind = "memory" if _OUT_OF_MEMORY.search(text) else "code_failed"
            raise ToolError(kind, f"The code failed ({_exit_words(finished.code)}).{_tail(text)}")
        if not text.strip():
            raise ToolError("empty", "The code printed nothing. Print the result.")
        return text


def _source(code: str) -> bytes:
    """The program's bytes.

    Raises:
        ToolError: bad_args, it would not be run as it stands.
    """
    if "\0" in code:  # some interpreters would run what stands before it
        raise ToolError("bad_args", "The code holds a NUL character. Write it without.")
    try:
        return code.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError(
            "bad_args", "The code holds half of a character (a lone surrogate). Write it without."
        ) from None


def _unfenced(code: str) -> str:
    """The code without a Markdown fence around all of it, which small models add and no language can read."""
    match = _FENCE.fullmatch(code)
    return match[1] if match else code


def _program(name: str) -> Path:
    """Where an interpreter stands: the system's, else the first that this process finds.

    Raises:
        ToolError: missing_program.
    """
    found = shutil.which(name, path=PATH) or shutil.which(name)
    if found is None:
        raise ToolError("missing_program", f"{name} is not installed on this machine: use another language.")
    return Path(found).resolve()


def _exit_words(code: int) -> str:
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"exit code {code}, killed by {signal.Signals(code - 128).name}"
    return f"exit code {code}"


def _tail(text: str) -> str:
    """The end of what was printed, from the start of a line: that is where a traceback says what went wrong."""
    if len(text) > _MAX_TAIL:
        text = text[-_MAX_TAIL:].partition("\n")[2] or text[-_MAX_TAIL:]
    return f" Its output ended with:\n{text}" if text else " It had printed nothing."
