"""The lines of `/api/pull`. An error can stand in any of them, under a status of 200."""

from __future__ import annotations

from collections.abc import Callable

from agent.errors import BackendError, BackendErrorType
from agent.llm.faults import error_text, one_line
from agent.llm.wire_values import as_text, as_whole, object_in

OnProgress = Callable[[str, int | None, int | None], None]


class PullProgress:
    """Reads a pull line by line and tells `on_progress(status, completed_bytes, total_bytes)` of each."""

    def __init__(self, model: str, on_progress: OnProgress) -> None:
        self._model = model
        self._on_progress = on_progress
        self._error: str | None = None
        self._last = ""

    def line(self, line: bytes) -> None:
        """Take the next line."""
        said = object_in(line)
        self._error = self._error or error_text(said)
        status = one_line(as_text(said.get("status")))
        if status:
            self._last = status
            self._on_progress(status, as_whole(said.get("completed")), as_whole(said.get("total")))

    def finish(self) -> None:
        """Say that no line is left.

        Raises:
            BackendError: the pull failed, or broke off.
        """
        if self._error is not None:
            kind: BackendErrorType = "model_not_found" if "does not exist" in self._error else "server_error"
            raise BackendError(kind, f"{self._model} cannot be pulled: {one_line(self._error)}")
        if self._last != "success":
            raise BackendError("stream_incomplete", f"the pull of {self._model} broke off after {self._last!r}")
