"""One HTTP request within a deadline that covers everything: connecting, waiting and every byte of the body.

A connection is used once. A kept one may have been closed by the server in the meantime, and then nobody can tell
whether a request that failed was read; opening one costs a fraction of a millisecond on loopback. Looking up a
host's name is the one thing that cannot be interrupted.
"""

from __future__ import annotations

import ipaddress
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.errors import BackendError, NotSentError, UsageError
from agent.llm.backends.base import RawReply
from agent.llm.strict_json import whole_characters

if TYPE_CHECKING:
    import requests

    from agent.llm.backends.watched import Watch

MAX_BODY_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 10.0
_PIECE_BYTES = 64 * 1024

OnLine = Callable[[bytes], None]


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
    """Sends requests to the server at `base_url` (which may hold a path), with its key in `bearer` if it wants one.

    Proxies are passed by for loopback and honoured elsewhere. Reading HTTP_PROXY, NO_PROXY and the certificates'
    place is left to `requests`: they are the machine's settings for every program, none of ours.
    """

    def __init__(self, base_url: str, *, bearer: str | None = None) -> None:
        if bearer is not None and not (bearer.isascii() and bearer.isprintable() and " " not in bearer):
            raise UsageError("LLM_API_KEY holds characters that cannot stand in an HTTP header; copy it again")
        self._base_url = base_url.rstrip("/")
        self._bearer = bearer
        self._trust_env = not is_loopback(urlsplit(base_url).hostname or "")
        self._watches: set[Watch] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Transport({self._base_url!r})"

    def send(self, call: Call, on_line: OnLine | None = None) -> RawReply:
        """Make one request. `on_line` is given every line of a streamed body as it comes, without its end.

        A streamed body that breaks off is handed back as far as it came: whether it is whole, its content says.

        Raises:
            NotSentError: no connection could be made.
            BackendError: deadline; or the server hung up, sent no HTTP, or more than 64 MiB.
        """
        from agent.llm.backends.watched import Watch

        started = time.monotonic()
        with Watch(call.deadline_seconds) as watch:
            self._register(watch)
            try:
                status, content_type, body = self._exchange(call, watch, on_line)
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

    def _register(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)

    def _exchange(self, call: Call, watch: Watch, on_line: OnLine | None) -> tuple[int, str, bytes]:
        import requests
        from urllib3.exceptions import HTTPError

        from agent.llm.backends.watched import WatchedAdapter

        with requests.Session() as session:
            session.trust_env = self._trust_env
            session.mount("http://", WatchedAdapter())
            session.mount("https://", WatchedAdapter())
            try:
                response = self._open(session, call, watch)
            except (requests.RequestException, HTTPError, OSError, UnicodeError) as error:
                raise self._fault(error, watch, call) from None
            with response:
                body = self._read(response, call, watch, on_line)
            return response.status_code, response.headers.get("Content-Type", ""), body

    def _open(self, session: requests.Session, call: Call, watch: Watch) -> requests.Response:
        """Send the request and read the head of the reply.

        The adapter is used directly: a session would follow, or at least read, redirections.
        """
        import requests

        data = None
        headers = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "shoestring"}
        if call.body is not None:
            data = whole_characters(json.dumps(call.body, ensure_ascii=False, allow_nan=False)).encode()
            headers["Content-Type"] = "application/json"
        request = session.prepare_request(
            requests.Request(call.method, self._base_url + call.endpoint, headers=headers, data=data, auth=self._sign)
        )
        url = str(request.url)
        options: Any = session.merge_environment_settings(url, {}, True, None, None)
        silence = min(watch.seconds_left(), call.silence_seconds or call.deadline_seconds)
        timeout = (min(CONNECT_SECONDS, watch.seconds_left()), silence)
        return session.get_adapter(url).send(request, timeout=timeout, **options)

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Our own way to sign, even without a key: else `requests` would take a password from ~/.netrc."""
        if self._bearer is not None:
            request.headers["Authorization"] = f"Bearer {self._bearer}"
        return request

    def _read(self, response: requests.Response, call: Call, watch: Watch, on_line: OnLine | None) -> bytes:
        from urllib3.exceptions import HTTPError

        body, lines = bytearray(), _Lines(on_line)
        try:
            while piece := response.raw.read1(_PIECE_BYTES, decode_content=True):
                body += piece
                lines.feed(piece)
                if len(body) > MAX_BODY_BYTES:
                    raise BackendError("bad_reply", f"{self._base_url} sent more than {MAX_BODY_BYTES >> 20} MiB")
        except (HTTPError, OSError) as error:
            if watch.hung_up or not call.streamed:
                raise self._fault(error, watch, call, began=True) from None
        if watch.hung_up:  # to the reader this looks like an ordinary end
            raise self._fault(None, watch, call)
        lines.end()
        return bytes(body)

    def _fault(self, error: Exception | None, watch: Watch, call: Call, *, began: bool = False) -> BackendError:
        import requests
        from urllib3.exceptions import ReadTimeoutError

        cause = _root(error)
        if not watch.connected:
            why = f"no connection within {call.deadline_seconds:g} s" if watch.hung_up else _words(cause)
            return NotSentError("unreachable", f"{self._base_url} cannot be reached ({why}); is the server running?")
        if watch.hung_up and watch.seconds_left() > 0.01:
            return BackendError("unreachable", f"the call to {self._base_url} was broken off from here")
        if watch.hung_up or isinstance(error, requests.Timeout | ReadTimeoutError):
            silence = call.silence_seconds or call.deadline_seconds
            seconds = call.deadline_seconds if watch.hung_up else silence
            return BackendError("deadline", f"{self._base_url} gave no whole reply within {seconds:g} s")
        if began:
            why = "the connection broke inside the reply"
            return BackendError("stream_incomplete", f"{self._base_url}: {why} ({_words(cause)})", retry=True)
        if isinstance(cause, OSError):  # RemoteDisconnected is one too
            why = f"hung up without a reply ({_words(cause)})"
            return BackendError("server_error", f"{self._base_url} {why}", retry=True)
        return BackendError("bad_reply", f"{self._base_url} sent what is no HTTP reply ({_words(cause)})")


class _Lines:
    """Cuts a body into lines as it comes, whatever the network's own cuts."""

    def __init__(self, on_line: OnLine | None) -> None:
        self._on_line = on_line
        self._pending = bytearray()

    def feed(self, piece: bytes) -> None:
        if self._on_line is None:
            return
        self._pending += piece
        if b"\n" in piece:
            *lines, self._pending = self._pending.split(b"\n")
            for line in lines:
                self._on_line(bytes(line))

    def end(self) -> None:
        if self._on_line is not None and self._pending:
            self._on_line(bytes(self._pending))


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, without brackets or port) is this machine by definition."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _root(error: BaseException | None) -> BaseException | None:
    """The innermost reason of an error that libraries wrapped several times."""
    for _ in range(8):
        inner = getattr(error, "reason", None) or next(
            (arg for arg in reversed(getattr(error, "args", ())) if isinstance(arg, BaseException)), None
        )
        inner = inner if isinstance(inner, BaseException) else getattr(error, "__cause__", None)
        if inner is None:
            break
        error = inner
    return error


def _words(error: BaseException | None) -> str:
    """What went wrong in a few words that hold neither a header nor an address with a password in it."""
    said = getattr(error, "strerror", None) if isinstance(error, OSError) else None
    return said if isinstance(said, str) and said else type(error).__name__
