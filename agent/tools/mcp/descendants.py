"""The processes below another one, whatever group or session they put themselves in. Linux tells of them in /proc;
elsewhere none is found.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")


def held_below(root: int) -> list[int]:
    """A handle of each process below `root` that now lives. Whose parent has ended is below it no more."""
    children: dict[int, list[int]] = {}
    for process in _all():
        children.setdefault(_parent(process), []).append(process)
    handles, above = [], [root]
    while above:
        parent = above.pop()
        for child in children.get(parent, ()):
            above.append(child)
            with suppress(OSError):
                handle = os.pidfd_open(child)
                if _parent(child) == parent:  # the number is still that process's
                    handles.append(handle)
                else:
                    os.close(handle)
    return handles


def kill(handles: Iterable[int]) -> None:
    """End those that still live, and let go of all handles."""
    for handle in handles:
        with suppress(OSError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def _all() -> list[int]:
    with suppress(OSError):
        return [int(entry.name) for entry in _PROCESSES.iterdir() if entry.name.isdigit()]
    return []


def _parent(process: int) -> int:
    """The parent's number; 0 where the process is gone."""
    with suppress(OSError, ValueError, IndexError):
        told = (_PROCESSES / str(process) / "stat").read_bytes()
        return int(told.rpartition(b")")[2].split()[1])  # the name before it is in brackets, and may hold anything
    return 0
