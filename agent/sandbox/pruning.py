"""What is left of the files of a program that took too much: no more than it may leave, so that they do not pile up
from one program to the next, and whoever looks into the folder has no more to look through. Nothing runs in there any
more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from agent.sandbox.usage import BLOCK, MAX_ENTRIES
from agent.sandbox.walking import Found, Walk

_Key = tuple[int, int, str]


@dataclass(frozen=True)
class _Entry:
    """A folder counts as old as the oldest thing in it: it must stay with that."""

    key: _Key
    changed: int
    depth: int
    bytes: int


def prune(top: int, most: int) -> None:
    """Remove the newest files below an open folder until the others keep the limits: `most` bytes of the disk, and
    MAX_ENTRIES."""
    entries = sorted(_entries(top), key=lambda entry: (entry.changed, entry.depth))
    taken, surplus = 0, set()
    for place, entry in enumerate(entries):
        taken += entry.bytes
        if taken > most or place >= MAX_ENTRIES:
            surplus.add(entry.key)
    for found in Walk(top):
        if _key(found) in surplus:
            with suppress(OSError):
                found.remove()


def _entries(top: int) -> Iterator[_Entry]:
    oldest: dict[int, int] = {}  # by depth, of what is in the folder there that the walk has not left yet
    for found in Walk(top):
        if found.is_folder and not found.is_left:
            continue
        changed = min(found.about.st_mtime_ns, oldest.pop(found.depth + 1, found.about.st_mtime_ns))
        oldest[found.depth] = min(changed, oldest.get(found.depth, changed))
        yield _Entry(_key(found), changed, found.depth, found.about.st_blocks * BLOCK)


def _key(found: Found) -> _Key:
    return (found.about.st_dev, found.about.st_ino, found.name)
