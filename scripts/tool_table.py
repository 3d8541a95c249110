"""The table of tools in README.md, from the registry. `python -m scripts.tool_table` writes it between its markers."""

from __future__ import annotations

import sys
from pathlib import Path

from agent.egress.fetch import MAX_BYTES, MAX_REDIRECTS
from agent.sandbox.base import MIB, Limits
from agent.tools.browser_process import MAX_RESIDENT_BYTES
from agent.tools.calculate_math import MAX_BITS
from agent.tools.fetching import FETCH_SECONDS
from agent.tools.folder_walk import MAX_COUNTED
from agent.tools.get_weather import MAX_DAYS
from agent.tools.list_directory import MAX_ENTRIES
from agent.tools.query_pdf import CHUNK_CHARS, MAX_CHUNKS_SHOWN, MAX_PAGES, MAX_PDF_BYTES
from agent.tools.read_file_chunk import MAX_LINES
from agent.tools.registry import TOOLSETS, AnyTool
from agent.tools.search import MAX_PREVIEW, MAX_SEARCHED_BYTES, USUAL_RESULTS
from agent.tools.search import MAX_RESULTS as MAX_PLACES
from agent.tools.search_codebase import MAX_PER_FILE
from agent.tools.search_codebase import MAX_RESULTS as MAX_MATCHES
from agent.tools.web_search import MAX_RESULTS
from agent.tools.workspace import MAX_FILE_BYTES
from agent.tools.write_file import MAX_CONTENT_CHARS

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- tools: python -m scripts.tool_table -->\n", "<!-- end of tools -->\n"

_PROGRAM = Limits()
_PAGE = f"{MAX_BYTES // MIB} MiB, unpacked too; {FETCH_SECONDS:g} s and {MAX_REDIRECTS} redirects to fetch it"
# What bounds a tool beside its seconds and the characters of its result.
LIMITS = {
    "web_search": f"{MAX_RESULTS} results",
    "calculate_math": f"numbers of {MAX_BITS:,} bits",
    "execute_code": f"{_PROGRAM.memory // MIB} MiB of memory, {_PROGRAM.disk // MIB} MiB of files, "
    f"{_PROGRAM.processes} processes, {_PROGRAM.output // 1024} KiB printed",
    "clock": "",
    "list_directory": f"{MAX_ENTRIES} entries",
    "read_file": "",
    "read_file_chunk": f"{MAX_LINES} lines",
    "write_file": f"{MAX_CONTENT_CHARS:,} characters a call, {MAX_FILE_BYTES // MIB} MiB a file",
    "manage_path": f"deletes {MAX_COUNTED:,} entries",
    "search": f"{USUAL_RESULTS} places unless asked for more, up to {MAX_PLACES}; {MAX_SEARCHED_BYTES // MIB} MiB "
    f"looked through, previews of {MAX_PREVIEW} characters",
    "fetch_url": _PAGE,
    "fetch_url_markdown": _PAGE,
    "get_weather": f"now and {MAX_DAYS} days",
    "search_codebase": f"{MAX_MATCHES} matches, {MAX_PER_FILE} a file, previews of {MAX_PREVIEW} characters",
    "query_pdf": f"{MAX_CHUNKS_SHOWN} parts of {CHUNK_CHARS} characters, of {MAX_PDF_BYTES // MIB} MiB and "
    f"{MAX_PAGES:,} pages",
    "browse": f"one page, {MAX_RESIDENT_BYTES // MIB // 1024} GiB of memory",
}


def table() -> str:
    """All tools of all toolsets, a line each."""
    lines = ["| tool | toolset | effect | limits |", "|---|---|---|---|"]
    lines += [_line(tool, name) for name, tools in TOOLSETS.items() for tool in tools]
    return "\n".join(lines) + "\n"


def _line(tool: type[AnyTool], toolset: str) -> str:
    bounds = (f"{tool.timeout_seconds:g} s", f"{tool.max_chars:,} characters", LIMITS[tool.name])
    return f"| `{tool.name}` | {toolset} | {tool.effect} | {'; '.join(filter(None, bounds))} |"


def with_table(page: str) -> str:
    """The page with today's table between the markers.

    Raises:
        ValueError: a marker is missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _old, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{README.name} lacks the marker {(BEGIN if not begin else END).strip()}")
    return f"{head}{begin}{table()}{end}{tail}"


def main() -> int:
    """Write the table into README.md."""
    README.write_text(with_table(README.read_text("utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
