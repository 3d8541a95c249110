"""What processes and folders take at this moment, as the kernel tells it; it may change meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.walking import Walk, open_to_owner, opened

_PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512  # what st_blocks counts in
_SESSION_AT = 3  # in /proc/PID/stat, behind the name
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


def pid_namespace(pid: int) -> str | None:
    """The name of the namespace of processes that this one is in; None where it is ours, or cannot be known."""
    with suppress(OSError):
        name = str(Path(f"/proc/{pid}/ns/pid").readlink())
        return name if name != str(Path("/proc/self/ns/pid").readlink()) else None
    return None


def members(session: int, namespace: str | None) -> Iterator[int]:
    """All processes of a namespace, or else of a session, whoever their parents are: some change faster than a tree of
    processes can be walked."""
    with suppress(OSError), os.scandir("/proc") as processes:
        for process in processes:
            with suppress(OSError):
                if not process.name.isdigit():
                    continue
                if namespace is not None:
                    belongs = str(Path(process.path, "ns", "pid").readlink()) == namespace
                else:
                    belongs = _session(process.path) == session
                if belongs:
                    yield int(process.name)


def _session(process: str) -> int:
    behind_name = Path(process, "stat").read_bytes().rpartition(b")")[2]
    return int(behind_name.split()[_SESSION_AT])


def resident_bytes(pid: int) -> int:
    """The memory that this process and all below it hold. What they share is counted once for each."""
    return sum(map(_resident_bytes, descendants(pid)))


def hold_over(processes: Iterable[int], limit: int) -> bool:
    """Whether these processes hold more bytes of memory than this, what they share counted once.

    That takes time, and is counted only where the quick count is over the limit. One that has gone since counts whole.
    """
    quick = {pid: _resident_bytes(pid) for pid in processes}
    return sum(quick.values()) > limit and sum(_share_bytes(pid, held) for pid, held in quick.items()) > limit


def _resident_bytes(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    return 0


def _share_bytes(pid: int, resident: int) -> int:
    """A process's memory with its share of what it shares; all of that where it cannot be read."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return resident


@dataclass(frozen=True)
class MachineMemory:
    """Bytes of the whole machine. `available`: what could be had without swapping. `private`: what processes have for
    themselves. `shared`: what they can share without a file on the disk. What the kernel holds for them (sockets,
    pipes) is in neither."""

    available: int = 0
    private: int = 0
    shared: int = 0


def machine_memory() -> MachineMemory:
    """The machine's memory; zeros where it is not told."""
    with suppress(OSError, KeyError):
        lines = (line.split() for line in Path("/proc/meminfo").read_bytes().splitlines())
        told = {words[0]: int(words[1]) * 1024 for words in lines}
        return MachineMemory(told[b"MemAvailable:"], told[b"AnonPages:"], told[b"Shmem:"])
    return MachineMemory()


def tasks_of(uid: int) -> int:
    """How many tasks a user runs: without a user namespace, the limit on processes counts all of them."""
    count = 0
    with os.scandir("/proc") as processes:
        for process in processes:
            with suppress(OSError):
                if process.name.isdigit() and process.stat().st_uid == uid:
                    count += sum(1 for _ in os.scandir(f"{process.path}/task"))
    return count


@dataclass(frozen=True)
class Files:
    """What the files below a folder take: bytes of the disk, and how many they are, no further than MAX_ENTRIES + 1.

    `is_whole`: nothing in there was hidden from the look.
    """

    bytes: int = 0
    entries: int = 0
    is_whole: bool = True


def files_below(folder: Path, *, opening: bool = False) -> Files:
    """What a folder holds. With `opening`, closed folders are opened to us; nothing may run in there any more."""
    try:
        if opening:
            open_to_owner(None, folder)
        with opened(folder) as top:
            walk = Walk(top, opening=opening, most=MAX_ENTRIES + 1)
            taken = sum(found.about.st_blocks * BLOCK for found in walk if not found.is_left)
    except OSError:
        return Files(is_whole=False)
    return Files(taken, walk.names, walk.trouble is None)


def removed_bytes(processes: Iterable[int]) -> int:
    """What files take on the disk that were removed while these processes have them open."""
    found: dict[tuple[int, int], int] = {}
    for pid in processes:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as handles:
            for handle in handles:
                with suppress(OSError):
                    about = handle.stat()
                    if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                        found[about.st_dev, about.st_ino] = about.st_blocks * BLOCK
    return sum(found.values())


@dataclass(frozen=True)
class Free:
    """What is left on a disk. A file system that makes room for files as they come says that it has none to count."""

    bytes: int
    files: int


def free(folder: Path) -> Free:
    """What is left on the folder's disk. Raises OSError."""
    about = os.statvfs(folder)
    return Free(about.f_bavail * about.f_frsize, about.f_ffree)


def entries_in_memory(pid: int, names: Iterable[str]) -> int:
    """How many files a process has in file systems of its own, by their names in there, that hold them in memory."""
    count = 0
    for name in names:
        with suppress(OSError):
            shown = f"/proc/{pid}/root{name}"
            if not _is_ours(name, shown):
                about = os.statvfs(shown)
                count += about.f_files - about.f_ffree
    return count


def _is_ours(name: str, shown: str) -> bool:
    """Whether the process still has our own root, which it changes for its own when it begins."""
    try:
        return Path(name).stat().st_dev == Path(shown).stat().st_dev
    except FileNotFoundError:
        return not Path(shown).exists()
