"""What is left of the files of a program that was ended for them: no more than it may leave, so that whoever looks into
the folder afterwards has no more to look through. Nothing runs in there any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.base import Command, Finished
from agent.sandbox.usage import BLOCK, MAX_ENTRIES


@dataclass(frozen=True)
class _Entry:
    path: str
    changed: int
    bytes: int
    is_folder: bool


def pruned(finished: Finished, command: Command) -> Finished:
    """Remove the newest files of the command's workspace until the others keep its limit on the disk, where it was
    ended for that. Call it when the workspace is the harness's again."""
    if finished.ended in ("disk", "files") and command.workspace is not None and not command.read_only:
        _prune(command.workspace, command.limits.disk)
    return finished


def _prune(workspace: Path, most: int) -> None:
    entries = sorted(_entries(str(workspace)), key=lambda entry: entry.changed)
    taken, surplus = 0, []
    for place, entry in enumerate(entries):
        taken += entry.bytes
        if taken > most or place >= MAX_ENTRIES:
            surplus.append(entry)
    for entry in sorted(surplus, key=lambda entry: entry.path, reverse=True):  # what is in a folder before it
        with suppress(OSError):  # a folder of which something stays
            _remove(entry)


def _remove(entry: _Entry) -> None:
    if entry.is_folder:
        Path(entry.path).rmdir()
    else:
        Path(entry.path).unlink()


def _entries(folder: str) -> Iterator[_Entry]:
    """All below a folder; links are not followed."""
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                about = entry.stat(follow_symlinks=False)
                is_folder = entry.is_dir(follow_symlinks=False)
                yield _Entry(entry.path, about.st_mtime_ns, about.st_blocks * BLOCK, is_folder)
                if is_folder:
                    waiting.append(entry.path)
