"""A walk through the folders of a workspace from open handles: it follows no link and goes no deeper than tools do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass

from agent.tools.base import ToolContext
from agent.tools.workspace import MAX_DEPTH, folder_in, is_private, shown_path

MAX_COUNTED = 10_000  # entries that are looked at, of one folder and by whoever walks


@dataclass(frozen=True)
class Entry:
    """What a folder holds under a name. `folder` is its open handle, good until the walk goes on; `parts` lead from
    the workspace to the entry."""

    found: os.DirEntry[str]
    folder: int
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """The entry's path from the workspace down, as tools take it."""
        return "/".join(self.parts)

    @property
    def shown(self) -> str:
        """The path as a model may see it: a name can hold anything."""
        return shown_path(self.path)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder itself; a link to one is none."""
        return self.found.is_dir(follow_symlinks=False)

    @property
    def is_file(self) -> bool:
        """Whether it is an ordinary file itself; a link to one is none."""
        return self.found.is_file(follow_symlinks=False)


def is_open(entry: Entry, context: ToolContext) -> bool:
    """Whether a walk may go into a folder: not where it is private, or deeper than paths may be."""
    return not is_private(entry.found.name, context) and len(entry.parts) < MAX_DEPTH


def entries(folder: int, parts: tuple[str, ...], enters: Callable[[Entry], bool]) -> Generator[Entry, None, None]:
    """Each entry of an open folder in the order of the names and, right after a folder that `enters` lets in, those in
    it. What is gone meanwhile or closed to us is passed over.

    Raises:
        OSError: the first folder cannot be read.
    """
    with os.scandir(folder) as scan:
        found = sorted(itertools.islice(scan, MAX_COUNTED + 1), key=lambda entry: entry.name)
    for each in found:
        entry = Entry(each, folder, (*parts, each.name))
        yield entry
        if entry.is_folder and enters(entry):
            with suppress(OSError):
                yield from _inside(entry, enters)


def _inside(entry: Entry, enters: Callable[[Entry], bool]) -> Generator[Entry, None, None]:
    inner = folder_in(entry.folder, entry.found.name)
    try:
        yield from entries(inner, entry.parts, enters)
    finally:
        os.close(inner)
