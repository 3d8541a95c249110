"""read_file: the text of one file of the workspace."""

from __future__ import annotations

import os

from pydantic import Field

from agent.tools.base import Excerpt, Params, Tool, ToolContext
from agent.tools.workspace import MAX_FILE_BYTES, MAX_PATH_CHARS, faults_told, opened_file, place_of, read_bytes


class ReadFileParams(Params):
    """What read_file takes."""

    path: str = Field(
        min_length=1, max_length=MAX_PATH_CHARS, description="The file, relative to the workspace, with its folders."
    )


class ReadFile(Tool[ReadFileParams]):
    """Text as UTF-8; bytes that are none become the replacement character."""

    name = "read_file"
    description = "Reads one text file and returns what stands in it."
    effect = "read"
    max_chars = 8000
    keywords = (
        *("read", "open the file", "show the file", "show me the file", "contents of", "content of the file"),
        *("in the file", "what does the file", "summarize the file"),
    )
    params = ReadFileParams

    def run(self, params: ReadFileParams, context: ToolContext) -> str | Excerpt:
        """The file's text, or the beginning of it where it is long.

        Raises:
            ToolError: not_found, is_directory, not_directory, refused or no_workspace.
            StoreError: the disk fails.
        """
        with place_of(context, params.path) as place, opened_file(place) as handle, faults_told(place.path):
            size = os.fstat(handle).st_size
            data = read_bytes(handle, MAX_FILE_BYTES)
        if b"\0" in data:
            return Excerpt(f"({place.path} is a binary file: there is no text to show)", f"{size:,} bytes")
        if not data:
            return f"({place.path} is empty)"
        text = data.decode("utf-8", "replace")
        return Excerpt(text, f"{size:,} bytes") if size > MAX_FILE_BYTES else text
