"""What every program is given on any rung: limits that the kernel itself holds it to, and a few variables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from agent.sandbox.base import MIB, Command, Limits
from agent.sandbox.usage import tasks_of
from agent.sandbox.users import Borrower

PATH: Final = "/usr/bin:/bin"
_OPEN_FILES, _OPEN_FILES_OF_NODE = 64, 256  # each may hold memory of the kernel's
_WRITABLE_MEMORY = 1024 * MIB  # of a process whose address space is not bounded


def kernel_limits(limits: Limits, user: Borrower) -> dict[str, int]:
    """Each limit by the name that prlimit has for it, which is also the kernel's.

    The one on processes counts all that the user runs, unless a namespace counts anew.
    """
    memory = {"as": limits.address_space} if limits.address_space is not None else {"data": _WRITABLE_MEMORY}
    others = tasks_of(user.uid) if user.counts_all else 0
    return memory | {
        "cpu": math.ceil(limits.seconds) + 1,
        "nproc": others + limits.processes,
        "fsize": limits.file,
        "nofile": _OPEN_FILES_OF_NODE if limits.address_space is None else _OPEN_FILES,
        "core": 0,
    }


def variables(command: Command, tmp: str) -> Iterator[tuple[str, str]]:
    """All that a program sees of an environment. `tmp` is a folder of its own, and its home."""
    yield from (("PATH", PATH), ("HOME", tmp), ("TMPDIR", tmp), ("LANG", "C.UTF-8"))
    yield from command.environment
