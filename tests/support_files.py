"""A workspace with secrets beside it, and the file tools that work in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset

SECRET = "the secret outside"


class Files:
    """The tools of one workspace. Beside it lies what no tool may reach."""

    def __init__(self, folder: Path, *, persons_folder: bool = False):
        self.root = folder / "workspace"
        self.root.mkdir()
        (folder / "workspace-evil").mkdir()
        for outside in (folder / "outside.txt", folder / "workspace-evil" / "x"):
            outside.write_text(SECRET)
        self.context = ToolContext(workspace=self.root, persons_folder=persons_folder)
        self.tools = ToolRegistry(toolset("fs"), self.context)

    def run(self, name: str, **arguments: Any) -> ToolResult:
        return self.tools.execute(ToolCall(name=name, arguments=arguments))

    def read(self, path: str) -> ToolResult:
        return self.run("read_file", path=path)

    def chunk(self, path: str, start: int = 1, end: int = 1) -> ToolResult:
        return self.run("read_file_chunk", path=path, start_line=start, end_line=end)

    def write(self, path: str, content: str = "new", mode: str = "overwrite") -> ToolResult:
        return self.run("write_file", path=path, content=content, mode=mode)

    def manage(self, action: str, path: str, destination: str | None = None, **more: Any) -> ToolResult:
        return self.run("manage_path", action=action, path=path, destination=destination, **more)

    def search(self, query: str, **more: Any) -> ToolResult:
        return self.run("search", query=query, **more)

    def ls(self, **arguments: Any) -> ToolResult:
        return self.run("list_directory", **arguments)

    def names(self) -> list[str]:
        """All that is in the workspace."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


def refused(result: ToolResult, error_type: str = "refused") -> bool:
    """Whether a call failed in this way."""
    return (result.success, result.error_type) == (False, error_type)
