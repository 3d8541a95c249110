"""The calls that mcp-serve makes: handed in by the protocol's thread, made by the main thread as a run makes its own.

There a signal reaches whatever runs, as it does in a run, and so does the end of the client.
"""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from agent.state import ToolResult
from cli.mcp_offer import Offer

_LOOKS_UP_SECONDS = 0.5


@dataclass(frozen=True)
class _Call:
    name: str
    arguments: dict[str, Any]
    result: Future[ToolResult] = field(default_factory=Future)


class Calls:
    """Calls of one server, one at a time: within a run, no tool ever meets itself either."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_making = False
        self._is_over = False

    def hand_in(self, name: str, arguments: dict[str, Any]) -> Future[ToolResult]:
        """A call to be made after those before it. Cancelled before it is begun, it is not made at all."""
        call = _Call(name, arguments)
        self._waiting.put(call)
        return call.result

    def end(self) -> None:
        """From another thread: make no more calls, and break off the one that is being made."""
        with self._lock:
            self._is_over = True
            self._waiting.put(None)
            if self._is_making:
                # Not `raise_signal`: the main thread waits in a system call, which only a signal of its own ends.
                signal.pthread_kill(_ident(threading.main_thread()), signal.SIGINT)

    def make(self) -> None:
        """On the main thread: make the calls, until the end.

        Raises:
            KeyboardInterrupt: a signal.
        """
        try:
            while (call := self._next()) is not None and self._begin():
                try:
                    self._make(call)
                finally:
                    self._finish()
        except KeyboardInterrupt:
            if not self._is_over:
                raise

    def _next(self) -> _Call | None:
        """The next call, None at the end. The kernel may hand a signal to any thread: this one looks up for it."""
        while True:
            with suppress(Empty):
                return self._waiting.get(timeout=_LOOKS_UP_SECONDS)

    def _begin(self) -> bool:
        with self._lock:
            self._is_making = not self._is_over
            return self._is_making

    def _finish(self) -> None:
        with self._lock:
            self._is_making = False

    def _make(self, call: _Call) -> None:
        if not call.result.set_running_or_notify_cancel():
            return
        try:
            call.result.set_result(self._offer.call(call.name, call.arguments))
        except KeyboardInterrupt:
            if not call.result.done():
                ended = ToolResult(success=False, error="mcp-serve has been ended.", error_type="cancelled")
                call.result.set_result(ended)
            raise
        except Exception as bug:  # noqa: BLE001  told where the result is waited for
            call.result.set_exception(bug)


def _ident(thread: threading.Thread) -> int:
    assert thread.ident is not None  # noqa: S101  it has been started; this tells mypy
    return thread.ident
