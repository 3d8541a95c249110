"""list_directory: what a folder of the workspace holds."""

from __future__ import annotations

import itertools
from contextlib import closing

from pydantic import Field

from agent.tools.base import Excerpt, Params, Tool, ToolContext
from agent.tools.folder_walk import MAX_COUNTED, Entry, entries, is_open
from agent.tools.workspace import MAX_PATH_CHARS, faults_told, is_private, opened_folder, parts_in

MAX_ENTRIES = 100


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
        parts = parts_in(params.path or "", context)
        with (
            opened_folder(context, parts) as folder,
            faults_told("/".join(parts) or "the workspace"),
            closing(entries(folder, parts, lambda entry: params.recursive and is_open(entry, context))) as found,
        ):
            lines = [_line(entry, context) for entry in itertools.islice(found, MAX_COUNTED + 1)]
        if not lines:
            return "(the folder is empty)"
        shown = "\n".join(lines[:MAX_ENTRIES])
        if len(lines) <= MAX_ENTRIES:
            return shown
        counted = f"over {MAX_COUNTED:,}" if len(lines) > MAX_COUNTED else f"{len(lines):,}"
        return Excerpt(shown, f"{counted} entries")


def _line(entry: Entry, context: ToolContext) -> str:
    if entry.found.is_symlink():
        return f"{entry.shown} (link, not followed)"
    if entry.is_folder:
        return f"{entry.shown}/ (private)" if is_private(entry.found.name, context) else f"{entry.shown}/"
    if not entry.is_file:
        return f"{entry.shown} (no ordinary file)"
    try:
        size = entry.found.stat(follow_symlinks=False).st_size
    except OSError:  # gone meanwhile
        return entry.shown
    return f"{entry.shown} ({size:,} bytes)"
