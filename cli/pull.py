"""Fetching a model that Ollama lacks: a progress bar on a terminal, one line where there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.text import Text

from agent.errors import BackendError, UsageError
from agent.llm.backends.ollama import OllamaBackend
from cli.escape import inert_line
from cli.terminal import make_console


def pull(backend: OllamaBackend, tell: Callable[[str], None]) -> None:
    """Fetch the backend's model.

    Raises:
        UsageError: there is no such model to fetch.
        BackendError: the server failed, or fell silent.
    """
    tell(f"{backend.model} is not at {backend.url}: pulling it (OLLAMA_AUTO_PULL)")
    console = make_console(sys.stderr)
    columns = (_Status(), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
            backend.pull(_Shown(progress, progress.add_task("pulling", total=None)))
    except BackendError as error:
        if error.error_type == "model_not_found":
            raise UsageError(f"{error}; set LLM_MODEL or --model to a model that there is") from None
        raise
    tell(f"{backend.model} is there now")


class _Status(TextColumn):
    """The server's word on what it is doing, as inert text."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: object) -> Text:
        return Text(inert_line(str(getattr(task, "description", "")), 40))


class _Shown:
    """Carries each line of a pull over to the bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, status: str, completed: int | None, total: int | None) -> None:
        self._progress.update(self._task, description=status, completed=completed or 0, total=total)
