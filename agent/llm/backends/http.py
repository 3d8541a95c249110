"""One HTTP request within a deadline that covers everything: connecting, waiting and every byte of the body.

A connection is used once. A kept one may have been closed by the server in the meantime, and then nobody can tell
whether a request that failed was read; opening one costs a fraction of a millisecond on loopback. Looking up a
host's name is the one thing that cannot be interrupted.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from agent.errors import UsageError
from agent.llm.backends.base import RawReply
from agent.llm.backends.http_call import Call, OnLine, Server
from agent.redaction import redacted

if TYPE_CHECKING:
    from agent.llm.backends.watched import Watch


class Transport:
    """Sends requests to one server, from any number of threads."""

    def __init__(self, url: str, *, bearer: str | None = None) -> None:
        if bearer is not None and not (bearer.isascii() and bearer.isprintable() and " " not in bearer):
            raise UsageError(
                "LLM_API_KEY (or EMBEDDING_API_KEY) holds characters that cannot stand in an HTTP header; copy it again"
            )
        self._server = Server(url.rstrip("/"), bearer)
        self._watches: set[Watch] = set()
        self._lock = threading.Lock()

    def send(self, call: Call, on_line: OnLine | None = None) -> RawReply:
        """Make one request. `on_line` is given every line of a streamed body as it comes, without its end.

        A streamed body that breaks off is handed back as far as it came: whether it is whole, its content says.

        Raises:
            NotSentError: no connection could be made.
            BackendError: deadline; or the server hung up, sent no HTTP, or more than 64 MiB.
        """
        # requests and what it needs: heavy, and no command but those that call a server should wait for it.
        from agent.llm.backends.exchange import exchange  # noqa: PLC0415  # see above
        from agent.llm.backends.watched import Watch  # noqa: PLC0415  # see above

        started = time.monotonic()
        with Watch(call.deadline_seconds) as watch:
            with self._lock:
                self._watches.add(watch)
            try:
                status, content_type, body = exchange(self._server, call, watch, on_line)
            finally:
                with self._lock:
                    self._watches.discard(watch)
        return RawReply(
            endpoint=call.endpoint,
            status=status,
            content_type=content_type,
            body=redacted(body.decode("utf-8", "replace"), [self._server.bearer or ""]),
            streamed=call.streamed,
            seconds=time.monotonic() - started,
        )

    def close(self) -> None:
        """Hang up whatever is under way, from any thread. Harmless when called twice; requests may follow."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.hang_up()
