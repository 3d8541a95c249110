"""A trace's record of its workspace, held against itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from agent.state import AgentState, WorkspaceFile


def file_faults(state: AgentState) -> Iterator[str]:
    """Each text is the one that its size and hash say, and no path stands twice."""
    if state.workspace is None:
        return
    for when, files in (("before", state.workspace.before), ("after", state.workspace.after)):
        paths = [file.path for file in files]
        if len(set(paths)) != len(paths):
            yield f"workspace.{when}: a path stands twice"
        for place, file in enumerate(files):
            if not _is_itself(file):
                yield f"workspace.{when}[{place}]: its text is not the one that its size and hash say"


def _is_itself(file: WorkspaceFile) -> bool:
    if file.text is None:
        return file.size >= 0
    data = file.text.encode("utf-8", "surrogatepass")
    return (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
