"""The limits that the kernel itself holds a process to."""

from __future__ import annotations

import math

from agent.sandbox.base import MIB, Limits
from agent.sandbox.lending import Borrower
from agent.sandbox.usage import tasks_of

_OPEN_FILES = 256
_WRITABLE_MEMORY = 1024 * MIB  # of a process whose address space is not bounded


def prlimit_options(limits: Limits, user: Borrower) -> tuple[str, ...]:
    """What prlimit is told."""
    return tuple(f"--{name}={value}" for name, value in kernel_limits(limits, user).items())


def kernel_limits(limits: Limits, user: Borrower) -> dict[str, int]:
    """Each limit by its name. The one on processes counts all that the user runs, unless a namespace counts anew."""
    memory = {"as": limits.address_space} if limits.address_space is not None else {"data": _WRITABLE_MEMORY}
    others = tasks_of(user.uid) if user.counts_all else 0
    return memory | {
        "cpu": math.ceil(limits.seconds) + 1,
        "nproc": others + limits.processes,
        "fsize": limits.file,
        "nofile": _OPEN_FILES,
        "core": 0,
    }
