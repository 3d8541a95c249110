"""The second rung, for where no namespaces may be made (containers): landlock, a filter of system calls, and limits, in
a launcher of our own. The program has no socket, cannot leave its group, and sees no file but the system's and its own.

What differs from bubblewrap: that a file exists, its size, and where a link leads can be asked of any path that is
known; of /proc only a few files can be read, and only by the first process; /tmp is a folder of the run's own under
another name; a program cannot start a session, and where files outside belong to the user that it runs as, changes of a
file's mode, owner or times are not made though it is told they were.
"""

from __future__ import annotations

import marshal
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.errors import StoreError
from agent.sandbox.base import SHOWN_ROOT, SHOWN_SOURCE, Command, Finished, Level, SandboxError
from agent.sandbox.leftovers import temporary
from agent.sandbox.lending import Lent, lent
from agent.sandbox.limits import PATH, kernel_limits, variables
from agent.sandbox.readable import ROOTS, SYSTEM, SYSTEM_FILES, base_python
from agent.sandbox.sealed import sealed
from agent.sandbox.seccomp import Rules, is_supported, seccomp_filter
from agent.sandbox.users import Borrower, borrowed
from agent.sandbox.watched import Launch, watch

LAUNCHER = Path(__file__).with_name("landlock_launcher.py")
_SCOPED_SIGNALS = 6  # the version from which on a program's signals stay within its walls
# Python and bash need none. node asks for its stack (maps), its memory (self/stat) and the processors; status is a
# program's own account of itself. No folder of /proc is among them: each process has the machine's connections, routes
# and mounts in its own.
_KERNEL_FILES = (
    *("/proc/self/maps", "/proc/self/stat", "/proc/self/status"),
    *("/proc/meminfo", "/proc/cpuinfo", "/proc/stat"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SHOWN_TMP = "/tmp"  # noqa: S108 what a program calls its own


class Landlock:
    """Runs commands in our own launcher; see the module's docstring.

    Raises:
        SandboxError: no_sandbox, the kernel has no landlock, or this kind of processor is not known.
    """

    name: Level = "landlock"

    def __init__(self) -> None:
        if not is_supported():
            raise SandboxError("no_sandbox", "this system, or this kind of processor, is not one it is made for")
        asked = subprocess.run(launcher("--abi"), env={}, capture_output=True, check=False)
        version = int(asked.stdout or 0)
        if version < 1:
            raise SandboxError("no_sandbox", "this kernel has no landlock")
        self._has_bare_signals = version < _SCOPED_SIGNALS

    def can_read(self, path: Path) -> bool:
        """See `Sandbox.can_read`: root gives itself up, and with it the folders that only root may enter."""
        return os.geteuid() != 0 or _is_open(path)

    def run(self, command: Command) -> Finished:
        """See `Sandbox.run`."""
        with borrowed(own_namespace=False) as user, folders(command, user) as work:
            if user.is_other:
                _check_open(work, command)
            rules = Rules(landlock=True, shares_user=not user.is_other, bare_signals=self._has_bare_signals)
            writable = [work.tmp] if command.read_only else [work.folder, work.tmp]
            readable = [
                work.folder,
                work.source,
                *SYSTEM,
                *SYSTEM_FILES,
                *(f"/{name}" for name in ROOTS),
                *_KERNEL_FILES,
            ]
            plan = {
                "landlocked": True,
                "user": user.uid if user.is_other else None,
                "filter": seccomp_filter(rules),
                "readable": [str(path) for path in (*readable, *command.readable)],
                "writable": [str(path) for path in writable],
                "devices": _DEVICES,
            }
            done = launched(command, plan, user, work)
        return work.lent.judged(done)


def _is_open(path: Path) -> bool:
    """Whether every user may enter the folders above."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def _check_open(work: Folders, command: Command) -> None:
    """Whether what a program finds by its whole name can be found by another user than root.

    Raises:
        SandboxError: no_sandbox.
    """
    named = [work.source] if command.source else []
    if command.workspace is not None and not command.read_only:
        named.append(work.folder)
    if not all(map(_is_open, named)):
        raise SandboxError(
            "no_sandbox",
            "temporary files stand in a folder that only root may enter, and programs run as another user:"
            " set TMPDIR to a folder that every user may enter",
        )


@dataclass(frozen=True)
class Folders:
    """Where a command works, what it calls /tmp, and the file with its source. `lent` says how the first was left."""

    folder: Path
    tmp: Path
    source: Path
    lent: Lent

    def named(self, argv: tuple[str, ...]) -> list[str]:
        """The command line with the source's real path."""
        return [str(self.source) if part == SHOWN_SOURCE else part for part in argv]

    def shown(self, output: bytes) -> bytes:
        """The output with the names that programs have for these."""
        pairs = ((self.source, SHOWN_SOURCE), (self.folder, SHOWN_ROOT), (self.tmp, _SHOWN_TMP))
        for path, name in pairs:
            output = output.replace(bytes(path), name.encode())
        return output


def launched(command: Command, walls: dict[str, Any], user: Borrower, work: Folders) -> Finished:
    """Run a command in the launcher, in these folders, within these walls.

    Raises:
        SandboxError, StoreError: as `Sandbox.run`.
    """
    plan = walls | {
        "parent": os.getpid(),
        "argv": work.named(command.argv),
        "environment": dict(variables(command, str(work.tmp))),
        "folder": str(work.folder),
        "limits": kernel_limits(command.limits, user),
    }
    with sealed(marshal.dumps(plan)) as handle:
        argv = launcher(str(handle))
        watched = (work.tmp,) if command.read_only else (work.folder, work.tmp)
        done = watch(Launch(argv, {"PATH": PATH}, (handle,), watched, ends_when_told=True), command)
    return replace(done, output=work.shown(done.output))


def launcher(argument: str) -> tuple[str, ...]:
    """The command line of the launcher."""
    return (str(base_python()), "-I", "-S", "-B", str(LAUNCHER), argument)


@contextmanager
def folders(command: Command, user: Borrower) -> Iterator[Folders]:
    """The folders that the command is given; those that were made for it are removed.

    Raises:
        StoreError: the disk takes no folder.
    """
    with ExitStack() as stack:
        try:
            scratch = stack.enter_context(temporary("scratch"))
        except OSError as error:
            raise StoreError(f"no scratch folder can be made: {error}") from error
        scratch.chmod(0o711)
        tmp, own = scratch / "tmp", scratch / "work"
        for made in (tmp, own):
            made.mkdir(0o700)
        source = scratch / "program"
        source.write_bytes(command.source)
        folder = command.workspace or own
        most = command.limits.disk if command.workspace is not None else None
        given = stack.enter_context(lent(folder, user, read_only=command.read_only, most=most))
        stack.enter_context(lent(tmp, user))
        yield Folders(folder, tmp, source, given)
