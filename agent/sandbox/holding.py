"""Whether a sandbox takes more memory or disk than it may, also where that is hidden from a look at its processes and
its folders. What cannot be laid at its door but by what is missing from the machine is given room for others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.base import MIB, End
from agent.sandbox.usage import (
    MAX_ENTRIES,
    Free,
    MachineMemory,
    descendants,
    entries_in_memory,
    files_below,
    free,
    hold_over,
    machine_memory,
    members,
    pid_namespace,
    removed_bytes,
)

_OTHERS_SHARED = 128 * MIB  # shared memory that others may take meanwhile
_OTHERS_MEMORY = 512 * MIB  # the same, with what the kernel holds for them
_OTHERS_DISK = 1024 * MIB  # that others may write meanwhile
_OTHERS_DISK_BESIDE_HIDDEN = 64 * MIB  # the same, where the program has hidden a folder from our looks
_OTHERS_FILES = 100_000  # that others may make meanwhile
_OTHERS_FILES_BESIDE_HIDDEN = 10_000
_WALKS = 8  # through all processes: those that change all the time are not seen by each
_DISK_SHARE = 0.1  # of the time may go into looking at the disk


@dataclass(frozen=True)
class Over:
    """A limit that is broken. `is_counted`: by what was found at the sandbox itself, not by what the machine misses."""

    limit: End
    is_counted: bool = True


class Holding:
    """What one sandbox holds, from the moment at which this is made. `launcher` is its process, which leads a session.

    `folders` are what it can write in on the disk; `in_memory` names, as they are called inside, those that it has for
    itself in memory. `memory` and `disk` are limits in bytes.
    """

    def __init__(self, launcher: int, folders: tuple[Path, ...], in_memory: tuple[str, ...], memory: int, disk: int):
        self._launcher, self._memory, self._disk = launcher, memory, disk
        self._folders, self._in_memory = folders, in_memory
        self._first: int | None = None
        self._namespace: str | None = None
        self._machine = self._machine_short = machine_memory()
        self._short_of: End | None = None
        self._left_short: list[Free] = []
        self._free = [free(folder) for folder in folders]
        self._next_walk = 0.0

    def note_first(self, pid: int) -> None:
        """The sandbox's first process, where it has a namespace of processes."""
        self._first, self._namespace = pid, pid_namespace(pid)

    def over_memory(self) -> Over | None:
        """Whether its processes hold too much, or the machine misses as much.

        Memory that is shared counts for a process only once it has touched it, so that one which has just begun, with
        all that its parent left it, seems to hold none.
        """
        if hold_over(descendants(self._launcher), self._memory):
            return Over("memory")
        now = machine_memory()
        if now.shared - self._machine.shared > self._memory + _OTHERS_SHARED:
            return self._missed("memory", now)
        missing = self._machine.available - now.available
        if missing <= self._memory:
            return None
        if any(hold_over(self._members(), self._memory) for _ in range(_WALKS)):
            return Over("memory")
        nobodys = missing - max(0, now.private - self._machine.private)
        return self._missed("memory", now) if nobodys > self._memory + _OTHERS_MEMORY else None

    def over_disk(self) -> Over | None:
        """Whether its files are too many or too large. Most looks are short: a whole one is due only where the disk
        misses something, and from time to time."""
        if self._first is not None and entries_in_memory(self._first, self._in_memory) > MAX_ENTRIES:
            return Over("files")
        missing = _most_missing(self._free, [free(folder) for folder in self._folders])
        started = time.monotonic()
        if missing.bytes <= self._disk and missing.files <= MAX_ENTRIES and started < self._next_walk:
            return None
        over = self._over_files(missing)
        ended = time.monotonic()
        self._next_walk = ended + (ended - started) / _DISK_SHARE
        return over

    def gave_back(self) -> bool:
        """Whether it was this sandbox which held what the machine missed: asked as soon as all of it has ended, before
        others have given back as much."""
        if self._short_of == "memory":
            now, then = machine_memory(), self._machine_short
            return max(now.available - then.available, then.shared - now.shared) > self._memory
        back = _most_missing([free(folder) for folder in self._folders], self._left_short)
        held = [files_below(folder, opening=True) for folder in self._folders]
        if self._short_of == "files":  # it may have made more since that look
            return max(0, back.files) + sum(files.entries for files in held) > MAX_ENTRIES
        return max(0, back.bytes) + sum(files.bytes for files in held) > self._disk

    def _missed(self, limit: End, memory: MachineMemory) -> Over:
        """Over a limit by what the machine misses; how that stood is kept."""
        self._short_of, self._machine_short = limit, memory
        self._left_short = [free(folder) for folder in self._folders]
        return Over(limit, is_counted=False)

    def _over_files(self, missing: Free) -> Over | None:
        taken = [files_below(folder) for folder in self._folders]
        if any(files.entries > MAX_ENTRIES for files in taken):
            return Over("files")
        total = sum(files.bytes for files in taken)
        if missing.bytes > self._disk:
            total += removed_bytes(self._members())
        if total > self._disk:
            return Over("disk")
        is_whole = all(files.is_whole for files in taken)
        if missing.bytes > self._disk + (_OTHERS_DISK if is_whole else _OTHERS_DISK_BESIDE_HIDDEN):
            return self._missed("disk", self._machine)
        if missing.files > MAX_ENTRIES + (_OTHERS_FILES if is_whole else _OTHERS_FILES_BESIDE_HIDDEN):
            return self._missed("files", self._machine)
        return None

    def _members(self) -> set[int]:
        return {*members(self._launcher, self._namespace), *descendants(self._launcher)}


def _most_missing(before: list[Free], now: list[Free]) -> Free:
    """What the disks of several folders have lost between two looks, where that is most."""
    lost = [(first.bytes - left.bytes, first.files - left.files) for first, left in zip(before, now, strict=True)]
    return Free(max((each[0] for each in lost), default=0), max((each[1] for each in lost), default=0))
