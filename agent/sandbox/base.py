"""What is run, within which limits, and how it ended: the types that every rung of the ladder shares."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Level = Literal["bubblewrap", "landlock", "external"]
End = Literal["exit", "timeout", "memory", "output", "disk", "files"]

SHOWN_ROOT = "/workspace"  # what programs and models call the folder whose real name they are never told
SHOWN_SOURCE = "/code/program"  # what a program's own text is called there
MIB = 1 << 20


class SandboxError(Exception):
    """What was to be run isolated did not come to its end.

    `error_type` is a short fixed word: no_sandbox (nothing on this machine protects; the message says how to mend it),
    timeout, memory, too_large, disk, tool_crashed, machine_busy (the machine ran short meanwhile, and it was not the
    program). The message is fit for a model and holds nothing of the program's.
    """

    def __init__(self, error_type: str, message: str):
        super().__init__(message)
        self.error_type = error_type


@dataclass(frozen=True)
class Limits:
    """What a command may take: `memory`, `output` and `disk` count for all its processes together.

    `seconds` are of wall clock. The rest are bytes, but for `processes`: `memory` is what they hold, `address_space`
    what one of them may reserve (None: its writable memory is bounded instead, for programs that reserve far more than
    they use), `file` is the longest file it can write, `output` what may be printed, `disk` what the workspace may
    hold.
    """

    seconds: float = 15.0
    memory: int = 512 * MIB
    address_space: int | None = 1024 * MIB
    processes: int = 64
    file: int = 64 * MIB
    output: int = 256 * 1024
    disk: int = 256 * MIB


@dataclass(frozen=True)
class Command:
    """A program to run. `argv[0]` is an absolute path, or a name to be found in /usr/bin. When it has ended, what it
    left running ends too: at once, or a moment later where that holds its output.

    `workspace` is its working folder, called /workspace inside, which it may change unless `read_only`; None gives it
    an empty folder that is removed afterwards. `stdin` is all that it can read there. `source`, where it is not empty,
    is a file that it finds at SHOWN_SOURCE, and one of `argv` may be that very path. `readable` are files and folders
    beside the system's own that it may read under their own names. `environment` is added to the little that every
    program has.
    """

    argv: tuple[str, ...]
    workspace: Path | None = None
    read_only: bool = False
    stdin: bytes = b""
    source: bytes = b""
    readable: tuple[Path, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.workspace is not None and not self.workspace.is_absolute():
            raise ValueError("the workspace needs an absolute path")


@dataclass(frozen=True)
class Finished:
    """How a command ended. `code` is its exit code, 128 and the signal's number where a signal ended it, and None
    where a limit did.

    `output` is what its processes wrote to stdout and stderr, in the order in which it came, and no longer than the
    limit. `ended` says what ended it: itself (exit), or the limit that it broke (disk: the bytes of its files, files:
    their number). `seconds` are of wall clock.
    """

    code: int | None
    output: bytes
    ended: End
    seconds: float


class Sandbox(Protocol):
    """A way to run programs that can do no harm; `external` only says that somebody else sees to that."""

    @property
    def name(self) -> Level:
        """The level that traces record."""

    def can_read(self, path: Path) -> bool:
        """Whether a program in there can be let read this file or folder of the machine."""

    def run(self, command: Command) -> Finished:
        """Run a command to its end, or to the end of what it may take. Nothing of it is left when this returns.

        Raises:
            SandboxError: no_sandbox, it could not be started; machine_busy or tool_crashed, it was ended for what was
                not its doing.
            StoreError: the disk takes no scratch folder, or the workspace cannot be looked through afterwards.
        """
