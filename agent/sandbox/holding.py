"""Whether a sandbox takes more memory or disk than it may, also where that is hidden from a look at its processes and
its folders. What cannot be laid at its door but by what is missing from the machine is given room for others."""

from __future__ import annotations

import time
from pathlib import Path

from agent.sandbox.base import MIB
from agent.sandbox.usage import (
    MAX_ENTRIES,
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
_OTHERS_DISK_BESIDE_HIDDEN = 64 * MIB  # the same, where the program has closed a folder to our looks
_WALKS = 8  # through all processes: those that change all the time are not seen by each
_DISK_SHARE = 0.1  # of the time may go into looking at the disk


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
        self._machine = machine_memory()
        self._free = [free(folder) for folder in folders]
        self._next_walk = 0.0

    def note_first(self, pid: int) -> None:
        """The sandbox's first process, where it has a namespace of processes."""
        self._first, self._namespace = pid, pid_namespace(pid)

    def is_over_memory(self) -> bool:
        """Whether its processes hold too much, or the machine misses as much.

        Memory that is shared counts for a process only once it has touched it, so that one which has just begun, with
        all that its parent left it, seems to hold none.
        """
        if hold_over(descendants(self._launcher), self._memory):
            return True
        now = machine_memory()
        if now.shared - self._machine.shared > self._memory + _OTHERS_SHARED:
            return True
        missing = self._machine.available - now.available
        if missing <= self._memory:
            return False
        nobodys = missing - max(0, now.private - self._machine.private)
        if nobodys > self._memory + _OTHERS_MEMORY:
            return True
        return any(hold_over(self._members(), self._memory) for _ in range(_WALKS))

    def is_over_disk(self) -> bool:
        """Whether its files are too many or too large. Most looks are short: a whole one is due only where the disk
        misses something, and from time to time."""
        if self._first is not None and entries_in_memory(self._first, self._in_memory) > MAX_ENTRIES:
            return True
        now = [free(folder) for folder in self._folders]
        missing = max((first.bytes - left.bytes for first, left in zip(self._free, now, strict=True)), default=0)
        files = max((first.files - left.files for first, left in zip(self._free, now, strict=True)), default=0)
        started = time.monotonic()
        if missing <= self._disk and files <= MAX_ENTRIES and started < self._next_walk:
            return False
        is_over = self._files_are_over(missing)
        ended = time.monotonic()
        self._next_walk = ended + (ended - started) / _DISK_SHARE
        return is_over

    def _files_are_over(self, missing: int) -> bool:
        taken = [files_below(folder) for folder in self._folders]
        total = sum(files.bytes for files in taken)
        if missing > self._disk:
            total += removed_bytes(self._members())
        if total > self._disk or any(files.entries > MAX_ENTRIES for files in taken):
            return True
        is_whole = all(files.is_whole for files in taken)
        return missing > self._disk + (_OTHERS_DISK if is_whole else _OTHERS_DISK_BESIDE_HIDDEN)

    def _members(self) -> set[int]:
        return {*members(self._launcher, self._namespace), *descendants(self._launcher)}
