"""search: where a text stands in the files of the workspace, or which of them have it in their names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from agent.redaction import redacted
from agent.tools.base import Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.folder_walk import MAX_COUNTED, Entry, entries, is_open
from agent.tools.workspace import (
    MAX_FILE_BYTES,
    MAX_PATH_CHARS,
    faults_told,
    file_in,
    is_private,
    opened_folder,
    parts_in,
    read_bytes,
)

USUAL_RESULTS, MAX_RESULTS = 20, 50
MAX_PREVIEW = 120
MAX_SEARCHED_BYTES = 32 << 20  # of all files together
_MAX_QUERY = 200
# Folders of other people's code and of what programs leave behind, which would bury what is looked for. Like folders
# with a dot before their name, they are searched where the path leads into them.
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


class SearchParams(Params):
    """What search takes."""

    query: str = Field(min_length=1, max_length=_MAX_QUERY, description="The plain text to find, within one line.")
    path: str | None = Field(
        None, max_length=MAX_PATH_CHARS, description="The folder or file to look in; the whole workspace if left out."
    )
    target: Literal["text", "names"] = Field(
        "text", description="Whether to look into the files, or at the names of files and folders."
    )
    max_results: int = Field(USUAL_RESULTS, ge=1, le=MAX_RESULTS, description="How many places are shown at most.")


@dataclass
class _Search:
    """One search: what it has found and how much it may still look at."""

    words: str
    most: int
    secrets: tuple[str, ...] = field(default=(), repr=False)
    lines: list[str] = field(default_factory=list)
    matches: int = 0
    bytes_left: int = MAX_SEARCHED_BYTES
    is_complete: bool = True

    def found(self, line: str) -> None:
        self.matches += 1
        if self.matches <= self.most:
            self.lines.append(line)

    def in_name(self, entry: Entry) -> None:
        """Look at the name of a file or folder."""
        if self.words in entry.found.name.casefold():
            self.found(entry.shown + "/" * entry.is_folder)

    def in_file(self, shown: str, folder: int, name: str) -> None:
        """Look into a file, unless it is binary. Raises OSError."""
        handle = file_in(folder, name)
        try:
            data = read_bytes(handle, min(MAX_FILE_BYTES, self.bytes_left))
            is_whole = len(data) == os.fstat(handle).st_size
        finally:
            os.close(handle)
        self.bytes_left -= len(data)
        if b"\0" in data:
            return
        self.is_complete &= is_whole
        text = data.decode("utf-8", "replace")
        if self.words not in text.casefold():  # most files: no need to take them apart
            return
        text = redacted(text, self.secrets, is_cut=not is_whole, keep_lines=True)  # of what is cut out, no part is left
        for number, line in enumerate(text.split("\n"), 1):
            if self.words in line.casefold():
                self.found(f"{shown}:{number}: {preview(line)}")


class Search(Tool[SearchParams]):
    """Plain text in any case, in time linear to what is read. Links are not followed, private files not read."""

    name = "search"
    description = "Finds a plain text in the files of the workspace, in upper or lower case, or in their names."
    effect = "read"
    max_chars = 8000
    keywords = (
        *("search the files", "search in the files", "search the folder", "search the workspace", "use search"),
        *("which file contains", "which files contain", "which file mentions", "which files mention"),
        *("in the files", "find the file", "find files", "find the text"),
    )
    params = SearchParams

    def run(self, params: SearchParams, context: ToolContext) -> str | Excerpt:
        """How many matches there are, then the path of each, with number and text of its line.

        Raises:
            ToolError: bad_query, not_found, not_directory, refused or no_workspace.
            StoreError: the disk fails.
        """
        words = params.query.casefold()
        if not words.strip() or not set(words).isdisjoint("\n\r\0"):
            raise ToolError("bad_query", "The query must be a text that can stand within one line.")
        search = _Search(words, params.max_results, context.secrets)
        with _what_is_searched(context, params.path or "") as (folder, parts, name):
            if name is None:
                _walk(search, folder, parts, params.target, context)
            else:
                search.in_file("/".join(parts), folder, name)
        return _told(search)


@contextmanager
def _what_is_searched(context: ToolContext, path: str) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """The folder to be searched with its parts and None; or, where the path names a file, its folder and its name."""
    parts = parts_in(path, context)
    with faults_told("/".join(parts) or "the workspace"):
        if parts:
            with opened_folder(context, parts[:-1]) as outer:
                mode = os.stat(parts[-1], dir_fd=outer, follow_symlinks=False).st_mode
                if not stat.S_ISDIR(mode):  # what else it is comes out when it is opened
                    yield outer, parts, parts[-1]
                    return
        with opened_folder(context, parts) as folder:
            yield folder, parts, None


def _walk(search: _Search, folder: int, parts: tuple[str, ...], target: str, context: ToolContext) -> None:
    with closing(entries(folder, parts, lambda entry: _is_searched(entry, context))) as found:
        for looked_at, entry in enumerate(found):
            if looked_at >= MAX_COUNTED or search.bytes_left <= 0:
                search.is_complete = False
                return
            if target == "names":
                search.in_name(entry)
            elif entry.is_file and not is_private(entry.found.name, context):
                with suppress(OSError):  # gone meanwhile, or closed to us
                    search.in_file(entry.shown, folder=entry.folder, name=entry.found.name)


def _is_searched(entry: Entry, context: ToolContext) -> bool:
    name = entry.found.name
    return is_open(entry, context) and not name.startswith(".") and name not in _PASSED_OVER


def preview(line: str) -> str:
    """The beginning of a line, on which nothing but what is printable is left."""
    text = "".join(char if char.isprintable() else " " for char in line[: 4 * MAX_PREVIEW]).strip()
    return text if len(text) <= MAX_PREVIEW else f"{text[: MAX_PREVIEW - 3]}..."


def _told(search: _Search) -> str | Excerpt:
    more = "" if search.is_complete else " in what could be searched (name a path to look in less)"
    if not search.matches:
        return f"no match{more}"
    counted = f"{search.matches:,} match{'es' * (search.matches > 1)}"
    text = "\n".join([f"{counted}{more}:", *search.lines])
    whole = counted if search.is_complete else f"over {counted}"
    return Excerpt(text, whole) if search.matches > search.most else text
