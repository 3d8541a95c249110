"""Folders that last no longer than a command, by names that say whose they are; and the end of those that were left.

A command that is killed cannot remove its own. The next one does, where the process that is named is gone.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Literal

from agent.sandbox.users import is_borrower
from agent.sandbox.walking import remove

Kind = Literal["browser", "check", "mcp", "probe", "scratch", "workspace"]

MAX_LOOKED_AT = 100_000  # names in the folder for temporary files
MAX_REMOVED = 200  # folders a command
MAX_SECONDS = 5.0
_NAME = re.compile(r"shoestring-(?:browser|check|mcp|probe|scratch|workspace)-([0-9]{1,7})\.([0-9a-f]{1,16})-\w+")


def prefix(kind: Kind) -> str:
    """How the name of a temporary folder of this process begins."""
    return f"shoestring-{kind}-{os.getpid()}.{_numbering()}-"


@contextmanager
def temporary(kind: Kind) -> Iterator[Path]:
    """A new folder, removed at the end with all that is in it. Raises OSError: none can be made."""
    folder = Path(tempfile.mkdtemp(prefix=prefix(kind))).resolve()
    try:
        yield folder
    finally:
        remove(folder)


def sweep() -> None:
    """Remove what commands that were killed have left among the temporary files, as far as it is ours and soon done.

    A folder of another user, or of a process that runs or is numbered elsewhere, stays. What cannot be removed stays,
    too, and nothing is said: whatever was asked for goes on.
    """
    deadline = time.monotonic() + MAX_SECONDS
    with suppress(OSError):
        for folder in islice(_left(Path(tempfile.gettempdir()), _numbering()), MAX_REMOVED):
            remove(folder, deadline)


def _numbering() -> str:
    """Which numbers of processes are meant: in a container that shares the folder, number 7 is another process."""
    with suppress(OSError):
        return f"{Path('/proc/self/ns/pid').stat().st_ino:x}"
    return "0"


def _left(place: Path, numbering: str) -> Iterator[Path]:
    with os.scandir(place) as entries:
        for entry in islice(entries, MAX_LOOKED_AT):
            name = _NAME.fullmatch(entry.name)
            if name and name[2] == numbering and not _runs(int(name[1])) and _is_ours(entry):
                yield Path(entry.path)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # as another user
    return True


def _is_ours(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        owner = found.st_uid
        return stat.S_ISDIR(found.st_mode) and (owner == os.geteuid() or (os.geteuid() == 0 and is_borrower(owner)))
    return False
