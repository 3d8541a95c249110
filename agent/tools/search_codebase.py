"""search_codebase: ripgrep over the workspace, run where it can do no harm: it parses whatever files it finds."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

from pydantic import Field, model_validator

from agent.redaction import redacted
from agent.sandbox.base import Command, Finished, Limits, SandboxError
from agent.tools.base import Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.search import MAX_PREVIEW, preview
from agent.tools.workspace import (
    MAX_PATH_CHARS,
    is_private,
    opened_folder,
    parts_in,
    private_names,
    shown_path,
    workspace_of,
)

MAX_RESULTS = 15
MAX_PER_FILE = 5  # one file with many matches leaves room for others
_MAX_COLUMNS = 4 * MAX_PREVIEW  # bytes of a line that ripgrep prints: a character has up to four
_SECONDS = 15.0
_WHERE = "/usr/local/bin:/usr/bin:/bin"  # what the sandbox can see
# No configuration file, no link, no hidden file, one thread with sorted files: the same every time. The pattern has its
# own flag and the path stands behind --, so that neither can be taken for an option (--pre runs a program).
_RIPGREP = (
    *("--no-config", "--no-require-git", "--no-messages", "--color=never", "--no-heading", "--with-filename"),
    *("--line-number", "--null", "--sort=path", "--smart-case", "--engine=default", f"--max-count={MAX_PER_FILE + 1}"),
    *(f"--max-columns={_MAX_COLUMNS}", "--max-columns-preview"),
)
_OMITTED = re.compile(r" \[\.\.\. [a-z0-9 ]{1,80}\]\Z")  # what ripgrep puts where it cuts a line
_NO_MATCH, _FAULT = 1, 2  # ripgrep's exit codes


class SearchCodebaseParams(Params):
    """What search_codebase takes."""

    pattern: str = Field(min_length=1, max_length=200, description="The text to find, exactly as it stands in a line.")
    directory: str | None = Field(
        None,
        max_length=MAX_PATH_CHARS,
        description="The folder to look in, relative to the workspace; all of it if left out.",
    )
    regex: bool = Field(False, description="Whether the pattern is a regular expression and not a plain text.")

    @model_validator(mode="before")
    @classmethod
    def _path_is_the_directory(cls, given: object) -> object:
        """All other tools call it path, and so do models."""
        if isinstance(given, dict) and "path" in given and "directory" not in given:
            return {"directory" if name == "path" else name: value for name, value in given.items()}
        return given


@dataclass(frozen=True)
class Match:
    """One line that matches, as ripgrep printed it."""

    path: str
    number: str
    line: str


class SearchCodebase(Tool[SearchCodebaseParams]):
    """What .gitignore names and hidden files are left out. A pattern all in lower case matches in any case."""

    name = "search_codebase"
    description = "Finds the lines of source code that hold a text and shows the first of them."
    effect = "read"
    self_timed = True
    keywords = (
        *("codebase", "search the codebase", "source code", "in the code", "the repository", "where in the code"),
        *("which function", "where is it defined", "defined in the code", "find where", "grep"),
    )
    params = SearchCodebaseParams

    def run(self, params: SearchCodebaseParams, context: ToolContext) -> str | Excerpt:
        """How many matches are shown, then the path, number and text of each line.

        Raises:
            ToolError: missing_program, no_sandbox, bad_pattern, timeout, memory, tool_crashed, not_found,
                not_directory, refused or no_workspace.
            StoreError: the disk fails.
        """
        if "\0" in params.pattern or "\n" in params.pattern:
            raise ToolError("bad_pattern", "The pattern must be a text that can stand within one line.")
        folder = _checked(params.directory or "", context)
        literal = () if params.regex else ("--fixed-strings",)
        # The workspace's own ignore files may call hidden files back in (!.env): these globs win over them.
        private = [f"--iglob=!{name}" for name in private_names(context)]
        command = Command(
            (_ripgrep(), *_RIPGREP, *private, *literal, "-e", params.pattern, "--", folder),
            workspace=workspace_of(context),
            read_only=True,
            limits=Limits(seconds=_SECONDS),
        )
        try:
            done = context.isolation.sandbox().run(command)
        except SandboxError as error:
            raise ToolError(error.error_type, str(error)) from None
        found = [match for match in matches(_judged(done)) if not _is_kept_away(match, context)]
        return _told(found, context.secrets, is_complete=done.ended == "exit" and done.code != _FAULT)


def _checked(directory: str, context: ToolContext) -> str:
    """The folder as ripgrep takes it, from the workspace down."""
    if directory.startswith("-"):
        raise ToolError("refused", "A folder to look in may not begin with - here.")
    parts = parts_in(directory, context)
    with opened_folder(context, parts):
        return "/".join((".", *parts))


def _ripgrep() -> str:
    path = shutil.which("rg", path=_WHERE)
    if path is None:
        raise ToolError(
            "missing_program",
            "ripgrep is not installed (apt-get install ripgrep, or brew install ripgrep). Use another tool.",
        )
    return path


def _judged(done: Finished) -> bytes:
    """What ripgrep printed, where it came to an end that can be used."""
    if done.ended == "timeout":
        raise ToolError("timeout", f"The search was stopped after {_SECONDS:g} seconds. Name a folder to look in less.")
    if done.ended in ("memory", "disk", "files"):
        raise ToolError("memory", "The search took more memory than it may. Look for a plain text, in one folder.")
    if done.ended == "exit" and done.code not in (0, _NO_MATCH, _FAULT):
        raise ToolError("tool_crashed", f"The search failed (exit code {done.code}). Use another tool.")
    if done.code == _FAULT and b"\0" not in done.output:  # else a file or two could not be read
        if b"regex" in done.output:
            message = preview(done.output.decode("utf-8", "replace"))
            raise ToolError("bad_pattern", f"The pattern is no regular expression here: {message}")
        raise ToolError("refused", "No match in what can be read: some files are closed to whom searches run as.")
    return done.output


def matches(output: bytes) -> list[Match]:
    """The lines that ripgrep printed: a path, NUL, the line's number, a colon and the line."""
    found = []
    path, *pieces = output.decode("utf-8", "replace").split("\0")
    for piece in pieces:  # a path ends at the NUL alone: it may hold line ends, and a line cannot
        record, _, next_path = piece.partition("\n")
        number, colon, line = record.partition(":")
        if colon and number.isdigit():
            found.append(Match(path.removeprefix("./"), number, line))
        path = next_path
    return found


def _is_kept_away(match: Match, context: ToolContext) -> bool:
    return any(is_private(part, context) for part in match.path.split("/"))


def _told(found: list[Match], secrets: tuple[str, ...], *, is_complete: bool) -> str | Excerpt:
    shown: list[str] = []
    of_file: dict[str, int] = {}
    for match in found:
        of_file[match.path] = of_file.get(match.path, 0) + 1
        if of_file[match.path] <= MAX_PER_FILE and len(shown) < MAX_RESULTS:
            line = _OMITTED.sub("", match.line)
            line = redacted(line, secrets, is_cut=line != match.line)
            shown.append(f"{preview(shown_path(match.path))}:{match.number}: {preview(line)}")
    if not shown:
        return "no match"
    text = "\n".join([f"{len(shown)} match{'es' * (len(shown) > 1)}:", *shown])
    if is_complete and len(shown) == len(found):
        return text
    return Excerpt(text, f"over {len(shown)} matches")
