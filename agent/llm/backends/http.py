"""One HTTP request within a deadline that covers everything: connecting, waiting and every byte of the body.

A connection is used once. A kept one may have been closed by the server in the meantime, and then nobody can tell
whether a request that failed was read; opening one costs a fraction of a millisecond on loopback. Looking up a
host's name is the one thing that cannot be interrupted.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.errors import UsageError
from agent.llm.backends.base import RawReply

if TYPE_CHECKING:
    from agent.llm.backends.watched import Watch

OnLine = Callable[[bytes], None]


@dataclass(frozen=True)
class Server:
    """Where requests go: an address that may hold a path, and its key if it wants one.

    Proxies are passed by for loopback and honoured elsewhere. Reading HTTP_PROXY, NO_PROXY and the certificates'
    place is left to `requests`: they are the machine's settings for every program, none of ours.
    """

    url: str
    bearer: str | None = field(default=None, repr=False)

    @property
    def uses_proxies(self) -> bool:
        """Whether the machine's proxy settings hold for this server."""
        return not is_loopback(urlsplit(self.url).hostname or "")


@dataclass(frozen=True)
class Call:
    """One request. `endpoint` is its path below the server's address; `body` is sent as JSON.

    `silence_seconds` is how long the server may say nothing, where that is shorter than the deadline.
    """

    method: str
    endpoint: str
    deadline_seconds: float
    body: dict[str, Any] | None = None
    streamed: bool = False
    silence_seconds: float | None = None


class Transport:
    """Sends requests to one server, from any number of threads."""

    def __init__(self, url: str, *, bearer: str | None = None) -> None:
        if bearer is not None and not (bearer.isascii() and bearer.isprintable() and " " not in bearer):
            raise UsageError("LLM_API_KEY holds characters that cannot stand in an HTTP header; copy it again")
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
            body=body.decode("utf-8", "replace"),
            streamed=call.streamed,
            seconds=time.monotonic() - started,
        )

    def close(self) -> None:
        """Hang up whatever is under way, from any thread. Harmless when called twice; requests may follow."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.hang_up()


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, without brackets or port) is this machine by definition."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
