"""list_directory: what a folder of the workspace holds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import closing, suppress

from pydantic import Field

from agent.tools.base import Excerpt, Params, Tool, ToolContext
from agent.tools.workspace import (
    MAX_DEPTH,
    MAX_PATH_CHARS,
    faults_told,
    folder_in,
    is_private,
    opened_folder,
    parts_of,
    workspace_of,
)

MAX_ENTRIES = 100
MAX_COUNTED = 10_000  # entries that are looked at, of a folder and in all


class ListDirectoryParams(Params):
    """What list_directory takes."""

    path: str | None = Field(
        None, max_length=MAX_PATH_CHARS, description="The folder, relative to the workspace; all of it if left out."
    )
    recursive: bool = Field(False, description="Whether to list what is inside its folders as well.")


class ListDirectory(Tool[ListDirectoryParams]):
    """One line an entry, in the order of their names. Links are shown and not followed."""

    name = "list_directory"
    description = "Lists the files of a folder with their sizes. Folders end with a slash."
    effect = "read"
    max_chars = 8000
    keywords = (
        *("list the files", "list files", "list the folder", "list all files", "which files", "what files"),
        *("files are there", "how many files", "in the folder", "in the directory", "directory", "folders"),
    )
    params = ListDirectoryParams

    def run(self, params: ListDirectoryParams, context: ToolContext) -> str | Excerpt:
        """The entries, each with its path from the workspace down, as other tools take it.

        Raises:
            ToolError: not_found, not_directory, refused or no_workspace.
            StoreError: the disk fails.
        """
        parts = parts_of(params.path or "", workspace_of(context))
        with (
            opened_folder(context, parts) as folder,
            faults_told("/".join(parts) or "the workspace"),
            closing(_entries(folder, parts, recursive=params.recursive)) as found,
        ):
            lines = list(itertools.islice(found, MAX_COUNTED + 1))
        if not lines:
            return "(the folder is empty)"
        shown = "\n".join(lines[:MAX_ENTRIES])
        if len(lines) <= MAX_ENTRIES:
            return shown
        counted = f"over {MAX_COUNTED:,}" if len(lines) > MAX_COUNTED else f"{len(lines):,}"
        return Excerpt(shown, f"{counted} entries")


def _entries(folder: int, parts: tuple[str, ...], *, recursive: bool) -> Generator[str, None, None]:
    """A line for each entry of an open folder and, where asked for, of the folders in it. Raises OSError."""
    with os.scandir(folder) as scan:
        entries = sorted(itertools.islice(scan, MAX_COUNTED + 1), key=lambda entry: entry.name)
    for entry in entries:
        path = (*parts, entry.name)
        yield _line(entry, "/".join(path))
        if recursive and entry.is_dir(follow_symlinks=False) and not is_private(entry.name) and len(path) < MAX_DEPTH:
            with suppress(OSError):  # gone meanwhile, or closed to us
                yield from _inside(folder, path)


def _inside(folder: int, path: tuple[str, ...]) -> Generator[str, None, None]:
    inner = folder_in(folder, path[-1])
    try:
        yield from _entries(inner, path, recursive=True)
    finally:
        os.close(inner)


def _line(entry: os.DirEntry[str], path: str) -> str:
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in path)
    if entry.is_symlink():
        return f"{shown} (link, not followed)"
    if entry.is_dir(follow_symlinks=False):
        return f"{shown}/ (private)" if is_private(entry.name) else f"{shown}/"
    if not entry.is_file(follow_symlinks=False):
        return f"{shown} (no ordinary file)"
    try:
        size = entry.stat(follow_symlinks=False).st_size
    except OSError:  # gone meanwhile
        return shown
    return f"{shown} ({size:,} bytes)"
