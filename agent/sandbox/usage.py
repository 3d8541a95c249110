"""What a group of processes and a folder take at this moment, as the kernel tells it; it may change meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512  # what st_blocks counts in
MAX_ENTRIES = 10_000  # more files than this are as bad as too many bytes


def children(pid: int) -> list[int]:
    """The processes that this one has started, or was given, and not buried."""
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_bytes().split())
    return found


def descendants(pid: int) -> Iterator[int]:
    """All processes below this one, and itself."""
    waiting = [pid]
    while waiting:
        yield (each := waiting.pop())
        waiting += children(each)


def resident_bytes(pid: int) -> int:
    """The memory that this process and all below it hold. What they share is counted once for each."""
    return sum(map(_resident_bytes, descendants(pid)))


def holds_over(pid: int, limit: int) -> bool:
    """Whether this process and all below it hold more bytes of memory than this, what they share counted once.

    That takes time, and is counted only where the quick count is over the limit.
    """
    return resident_bytes(pid) > limit and sum(map(_share_bytes, descendants(pid))) > limit


def _resident_bytes(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    return 0


def _share_bytes(pid: int) -> int:
    """A process's memory with its share of what it shares; all of that where it has made itself unreadable."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return _resident_bytes(pid)


def tasks_of(uid: int) -> int:
    """How many tasks a user runs: without a user namespace, the limit on processes counts all of them."""
    count = 0
    with os.scandir("/proc") as processes:
        for process in processes:
            with suppress(OSError):
                if process.name.isdigit() and process.stat().st_uid == uid:
                    count += sum(1 for _ in os.scandir(f"{process.path}/task"))
    return count


def disk_bytes(folder: Path) -> int | None:
    """The bytes that the files below a folder take on the disk; None where there are more files than may be.

    What cannot be looked into is not counted: `free_bytes` is there for those who hide files.
    """
    total = entries = 0
    waiting = [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                entries += 1
                if entries > MAX_ENTRIES:
                    return None
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


def free_bytes(folder: Path) -> int:
    """What is left on the folder's disk. Raises OSError."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize
