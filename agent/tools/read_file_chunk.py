"""read_file_chunk: some lines of one file of the workspace, for files that are too long to be read whole."""

from __future__ import annotations

import io
import itertools
import os

from pydantic import Field

from agent.redaction import redacted, spelling_room
from agent.tools.base import Params, Tool, ToolContext, ToolError
from agent.tools.workspace import MAX_PATH_CHARS, faults_told, opened_file, place_of, read_bytes

MAX_LINES = 100
MAX_LOOKED_AT = 16 << 20  # bytes of a file in which lines are counted
_MAX_LINE = 1_000_000_000


class ReadFileChunkParams(Params):
    """What read_file_chunk takes."""

    path: str = Field(
        min_length=1, max_length=MAX_PATH_CHARS, description="The file, relative to the workspace, with its folders."
    )
    start_line: int = Field(ge=1, le=_MAX_LINE, description="The first line to read, counted from one.")
    end_line: int = Field(ge=1, le=_MAX_LINE, description="The last line to read, within a hundred of the first.")


class ReadFileChunk(Tool[ReadFileChunkParams]):
    """Lines end at line feeds. A range that cannot be had is refused with the number of lines there are."""

    name = "read_file_chunk"
    description = "Reads some lines of one text file, at most a hundred at a time, and says how many it has."
    effect = "read"
    max_chars = 8000
    keywords = (
        *("read lines", "read line", "show lines", "show line", "show me lines", "the lines from"),
        *("first lines of", "last lines of", "from line"),
    )
    params = ReadFileChunkParams

    def run(self, params: ReadFileChunkParams, context: ToolContext) -> str:
        """Which lines these are, then the lines.

        Raises:
            ToolError: bad_range (with the number of lines), too_large, not_found, is_directory, not_directory, refused
                or no_workspace.
            StoreError: the disk fails.
        """
        start, end = params.start_line, params.end_line
        with place_of(context, params.path) as place, opened_file(place) as handle, faults_told(place.path):
            is_whole = os.fstat(handle).st_size <= MAX_LOOKED_AT
            data = read_bytes(handle, MAX_LOOKED_AT)
        last = data.count(b"\n")
        if is_whole and not data.endswith(b"\n") and data:  # the last one need not be ended
            last += 1
        counted = f"{last:,} lines" if is_whole else f"over {last:,} lines"
        if not is_whole and end > last:
            message = f"Only the first {MAX_LOOKED_AT >> 20} MiB of a file can be read here: {last:,} lines."
            raise ToolError("too_large", message)
        if not (start <= end <= last and end - start < MAX_LINES):
            raise ToolError("bad_range", f"{place.path} has {counted}. {_mend(start, end, last)}")
        text = _lines(data, start, end, context.secrets)
        if "\0" in text:
            return f"({place.path} is a binary file: there is no text to show)"
        return f"[{place.path}: lines {start} to {end} of {counted}]\n{text}"


def _lines(data: bytes, start: int, end: int, secrets: tuple[str, ...]) -> str:
    """Some lines, without the secrets that stand in them or reach into them from around."""
    file = io.BytesIO(data)
    begins = sum(map(len, itertools.islice(file, start - 1)))
    ends = begins + sum(map(len, itertools.islice(file, end - start + 1)))
    room = spelling_room(secrets)
    first, behind = max(0, begins - room), ends + room
    around = redacted(data[first:behind].decode("utf-8", "replace"), secrets, keep_lines=True).split("\n")
    above = data.count(b"\n", first, begins)
    return "\n".join(around[above : above + end - start + 1])


def _mend(start: int, end: int, last: int) -> str:
    if not last:
        return "There is nothing to read."
    if start > end:
        return "The first line to read cannot come after the last."
    if end > last:
        return f"The last line to read can be {last} at most."
    return f"At most {MAX_LINES} can be read at a time; here it would be {end - start + 1}."
