"""Can a trace be worked with? Anybody may have written its file: what no run leaves is refused as it is read.

Only what would make us stumble stands here. Whether a run kept its promises is the verifier's matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from agent.state import AgentState, Record, WorkspaceFile
from agent.tools.workspace import MAX_DEPTH
from evals.workspaces import below_files, checked_name

MAX_NUMBER = 2**64  # far above every count, amount, duration and seed
_FREE = frozenset({"arguments", "expected"})  # fields that hold any JSON, as a model or a suite wrote it


def unsound(state: AgentState) -> str | None:
    """The first field of a trace that no run can have left so, and why; None where all can be worked with."""
    return next(chain(_numbers(state, ""), _counts(state), _files(state)), None)


def _numbers(value: Any, place: str) -> Iterator[str]:
    """Numbers beyond all measure, infinity among them. JSON has no bounds, and what we reckon with has."""
    if isinstance(value, int | float):
        if not abs(value) <= MAX_NUMBER:
            yield f"{place}: is beyond every number of a run"
        return
    inner: Iterator[tuple[str, Any]] = iter(())
    if isinstance(value, Record):
        inner = ((name, item) for name, item in value if name not in _FREE)
    elif isinstance(value, dict):
        inner = ((ascii(name)[:40], item) for name, item in value.items())
    elif isinstance(value, list):
        inner = ((str(number), item) for number, item in enumerate(value))
    for name, item in inner:
        yield from _numbers(item, f"{place}.{name}" if place else name)


def _counts(state: AgentState) -> Iterator[str]:
    """Counts of tokens that a budget does not take."""
    for name in ("num_ctx", "max_completion_tokens"):
        if getattr(state.sampling, name) < 1:
            yield f"sampling.{name}: is below 1"
    for number, entry in enumerate(state.ledger):
        if entry.prompt_tokens_bound < 0:
            yield f"ledger.{number}.prompt_tokens_bound: is below 0"


def _files(state: AgentState) -> Iterator[str]:
    """The files of a workspace stand below it, and their texts are ones that a file can hold."""
    if state.workspace is None:
        return
    for when, files in (("before", state.workspace.before), ("after", state.workspace.after)):
        for number, file in enumerate(files):
            if (why := _fault_of(file, laid_out=when == "before")) is not None:
                yield f"workspace.{when}.{number}.{why}"
        paths = [file.path for file in files]
        for name, _ in below_files(paths):
            yield f"workspace.{when}.{paths.index(name)}.path: a folder of it is a file too"


def _fault_of(file: WorkspaceFile, *, laid_out: bool) -> str | None:
    """What is wrong with a file's record. Those that were laid out bear names that a suite may give."""
    try:
        if laid_out:
            checked_name(file.path)
    except ValueError as error:
        return f"path: {error}"
    if not file.path or "\0" in file.path or file.path.startswith("/") or ".." in PurePosixPath(file.path).parts:
        return "path: is no path below the workspace"
    if len(PurePosixPath(file.path).parts) > MAX_DEPTH:
        return "path: is deeper than a record goes"
    try:
        (file.text or "").encode()
    except UnicodeEncodeError:
        return "text: holds half a character, which no file can"
    return None
