"""What happens on the wire during one call, and whose fault it is where it goes wrong.

Imports `requests`; it is itself imported when the first request is made.
"""

from __future__ import annotations

import json
from typing import Any

import requests
from urllib3.exceptions import DecodeError, HTTPError, ReadTimeoutError

from agent.errors import BackendError, NotSentError
from agent.llm.backends.http_call import Call, OnLine, Server
from agent.llm.backends.watched import Watch, WatchedAdapter
from agent.llm.strict_json import whole_characters

CONNECT_SECONDS = 10.0
_PIECE_BYTES = 64 * 1024


def exchange(server: Server, call: Call, watch: Watch, on_line: OnLine | None) -> tuple[int, str, bytes]:
    """Send one request and read its reply: (status, content type, body).

    Raises:
        NotSentError, BackendError: see `Transport.send`.
    """
    with requests.Session() as session:
        session.trust_env = server.uses_proxies
        session.mount("http://", WatchedAdapter())
        session.mount("https://", WatchedAdapter())
        try:
            response = _open(session, server, call, watch)
        except (requests.RequestException, HTTPError, OSError, UnicodeError) as error:
            raise _fault(error, server, call, watch) from None
        with response:
            body = _read(response, server, call, watch, on_line)
        return response.status_code, response.headers.get("Content-Type", ""), body


def _open(session: requests.Session, server: Server, call: Call, watch: Watch) -> requests.Response:
    """Send the request and read the head of the reply.

    The adapter is used directly: a session would follow redirections, or at least read them.
    """
    data = None
    headers = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "shoestring"}
    if call.body is not None:
        data = whole_characters(json.dumps(call.body, ensure_ascii=False, allow_nan=False)).encode()
        headers["Content-Type"] = "application/json"

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        # Called without a key too: else `requests` would take a password from ~/.netrc.
        if server.bearer is not None:
            request.headers["Authorization"] = f"Bearer {server.bearer}"
        return request

    request = session.prepare_request(
        requests.Request(call.method, server.url + call.endpoint, headers=headers, data=data, auth=sign)
    )
    url = str(request.url)
    options: Any = session.merge_environment_settings(url, {}, True, None, None)
    timeout = (min(CONNECT_SECONDS, watch.seconds_left()), call.silence_seconds or call.deadline_seconds)
    return session.get_adapter(url).send(request, timeout=timeout, **options)


def _read(response: requests.Response, server: Server, call: Call, watch: Watch, on_line: OnLine | None) -> bytes:
    body, lines = bytearray(), _Lines(on_line)
    while piece := _piece(response, server, call, watch):
        body += piece
        if len(body) > call.max_body_bytes:
            raise BackendError("bad_reply", f"{server.url} sent more than the {call.max_body_bytes:,} bytes it may")
        lines.feed(piece)
    lines.end()
    return bytes(body)


def _piece(response: requests.Response, server: Server, call: Call, watch: Watch) -> bytes:
    """The next bytes of the body, as soon as there are any; none at its end."""
    try:
        piece: bytes = response.raw.read1(_PIECE_BYTES, decode_content=True)
    except (HTTPError, OSError) as error:
        if watch.hung_up or not call.streamed or isinstance(error, ReadTimeoutError | DecodeError):
            raise _fault(error, server, call, watch, began=True) from None
        return b""  # the stream broke off; what it says up to here tells whether it was finished
    if watch.hung_up:  # to the reader this looks like an ordinary end
        raise _fault(None, server, call, watch)
    return piece


def _fault(error: Exception | None, server: Server, call: Call, watch: Watch, *, began: bool = False) -> BackendError:
    """The typed error for what `requests` met; `began` says that a reply had begun to come."""
    cause = _root(error)
    if not watch.connected:
        why = f"no connection within {call.deadline_seconds:g} s" if watch.hung_up else _words(cause)
        return NotSentError("unreachable", f"{server.url} cannot be reached ({why}); is the server running?")
    if watch.hung_up and not watch.is_over:
        return BackendError("unreachable", f"the call to {server.url} was broken off from here")
    timed_out = isinstance(error, requests.Timeout | ReadTimeoutError)
    if timed_out and not watch.hung_up and call.silence_seconds is not None:
        return BackendError("deadline", f"{server.url} said nothing for {call.silence_seconds:g} s")
    if timed_out or watch.hung_up:
        return BackendError("deadline", f"{server.url} gave no whole reply within {call.deadline_seconds:g} s")
    if isinstance(error, DecodeError):
        return BackendError("bad_reply", f"{server.url} sent a body that does not unpack")
    if began:
        why = f"the connection broke inside the reply ({_words(cause)})"
        return BackendError("stream_incomplete", f"{server.url}: {why}", retry=True)
    if isinstance(cause, OSError):  # http.client's RemoteDisconnected is one
        return BackendError("server_error", f"{server.url} hung up without a reply ({_words(cause)})", retry=True)
    return BackendError("bad_reply", f"{server.url} sent what is no HTTP reply ({_words(cause)})")


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
