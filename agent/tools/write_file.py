"""write_file: one file of the workspace written, or added to at its end or its beginning."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

from pydantic import Field

from agent.errors import StoreError
from agent.tools.base import Params, Tool, ToolContext, ToolError
from agent.tools.workspace import (
    MAX_FILE_BYTES,
    MAX_PATH_CHARS,
    Place,
    faults_told,
    obeyed_warning,
    opened_file,
    parts_in,
    place_of,
    read_bytes,
    replace_file,
)

MAX_CONTENT_CHARS = 20_000


class WriteFileParams(Params):
    """What write_file takes."""

    path: str = Field(
        min_length=1, max_length=MAX_PATH_CHARS, description="The file, relative to the workspace, with its folders."
    )
    content: str = Field(
        max_length=MAX_CONTENT_CHARS, description="The text exactly as it is to stand there, line ends included."
    )
    mode: Literal["overwrite", "append", "prepend"] = Field(
        "overwrite", description="Whether it replaces what is there, or is added after or before it."
    )


class WriteFile(Tool[WriteFileParams]):
    """The file changes in one step: whoever looks, or kills the process, finds the old text or the new one whole."""

    name = "write_file"
    description = "Writes text into one file. Folders that are missing are made."
    effect = "write"
    keywords = (
        *("write", "save", "append", "prepend", "create a file", "create the file", "make a file"),
        *("to the file", "into the file"),
    )
    params = WriteFileParams

    def does_more_again(self, params: WriteFileParams) -> bool:
        """A text that is added stands there twice then; one that replaces the file does not."""
        return params.mode != "overwrite"

    def warning(self, params: WriteFileParams, context: ToolContext) -> str | None:
        """That the file is there already, where it would be replaced; that programs may run or obey it later."""
        found: list[str | None] = []
        with suppress(ToolError, StoreError):
            found.append(obeyed_warning("/".join(parts_in(params.path, context)), context))
            with place_of(context, params.path) as place, opened_file(place) as handle:
                if params.mode == "overwrite":
                    size = os.fstat(handle).st_size
                    found.append(f"{place.path} is there already ({size:,} bytes) and would be replaced")
        return "; ".join(text for text in found if text) or None

    def run(self, params: WriteFileParams, context: ToolContext) -> str:
        """How many characters were written, and how many stand in the file now.

        Raises:
            ToolError: too_large, is_directory, not_directory, refused or no_workspace. The file is then as it was.
            StoreError: the disk fails.
        """
        with place_of(context, params.path, to_write=True) as place:
            text, before = _what_is_there(place)
            data = _joined(text, params.content.encode(), params.mode)
            if len(data) > MAX_FILE_BYTES:
                raise ToolError("too_large", f"{place.path} would have over {MAX_FILE_BYTES:,} bytes. Write less.")
            with faults_told(place.path):
                replace_file(place, data, before)
            context.written.append(place.path)
        whole = len(data.decode("utf-8", "replace"))
        return f"wrote {len(params.content)} characters to {place.path} ({whole} in all)"


def _what_is_there(place: Place) -> tuple[bytes, os.stat_result | None]:
    """The file's bytes (no more than one too many) and what it is like; nothing where there is no file yet."""
    try:
        with opened_file(place) as handle, faults_told(place.path):
            return read_bytes(handle, MAX_FILE_BYTES + 1), os.fstat(handle)
    except ToolError as error:
        if error.error_type == "not_found":
            return b"", None
        raise


def _joined(before: bytes, content: bytes, mode: str) -> bytes:
    match mode:
        case "append":
            return before + content
        case "prepend":
            return content + before
    return content
