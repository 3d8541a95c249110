"""A server made of bytes: what a test wants on the wire, piece by piece, from a real socket on loopback."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.errors import BackendError, ModelError, ToolCallError
from agent.llm.backends.base import ChatRequest
from agent.llm.replies import Reply
from agent.state import Message, ToolCall


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Seen], Iterable[bytes]]


class ResetError(Exception):
    """Raised by an Answer: end the connection with a reset instead of an ordinary close."""


@dataclass
class Wire:
    """A running server. `seen` holds every request that was read whole."""

    port: int
    seen: list[Seen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[Wire]:
    """Serve `answer` on an ephemeral port; each connection takes one request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = Wire(listener.getsockname()[1])
        threads: list[threading.Thread] = []
        acceptor = threading.Thread(target=_accept, args=(listener, answer, wire, threads), daemon=True)
        acceptor.start()
        try:
            yield wire
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join(5)
            for thread in threads:
                thread.join(5)


def _accept(listener: socket.socket, answer: Answer, wire: Wire, threads: list[threading.Thread]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        thread = threading.Thread(target=_serve, args=(connection, answer, wire), daemon=True)
        threads.append(thread)
        thread.start()


def _serve(connection: socket.socket, answer: Answer, wire: Wire) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = _read_request(connection)
        if request is None:
            return
        wire.seen.append(request)
        try:
            for piece in answer(request):
                connection.sendall(piece)
        except ResetError:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _read_request(connection: socket.socket) -> Seen | None:
    with connection.makefile("rb") as stream:
        first = stream.readline().decode("latin-1").split()
        if len(first) != 3 or not first[2].startswith("HTTP/"):  # the beginning of TLS, for one
            return None
        headers = {}
        while line := stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", 0)))
    return Seen(first[0], first[1], headers, body)


def http_reply(body: bytes | str, *, status: int = 200, content_type: str = "application/json") -> bytes:
    """A whole reply with a Content-Length."""
    data = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status} Any Words\r\nContent-Type: {content_type}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def chunked_head(*, status: int = 200, content_type: str = "application/x-ndjson") -> bytes:
    """The head of a reply that comes in chunks."""
    return f"HTTP/1.1 {status} OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """One chunk; an empty one ends the body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def always(*pieces: bytes) -> Answer:
    """An Answer that says the same to everybody."""
    return lambda _: pieces


def _without_end(*first: bytes, piece: bytes) -> Answer:
    """An Answer that goes on until it is hung up on, or has sent 32 MiB."""
    return lambda _: itertools.chain(first, itertools.repeat(piece, (32 << 20) // len(piece)))


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = chunked_head(content_type="text/plain")
_PARTS = b'Content-Type: multipart/x; a="'
# Replies that lead a reader astray by what stands around their bodies: none of them is one.
HOSTILE_FRAMES: dict[str, Answer] = {
    **{
        f"a chunk of {size!r}": _without_end(_CHUNKED, size + b"\r\n", piece=b"x" * 65536)
        for size in (b"-1", b"-5", b"-0", b"+5", b"0x5", b"1_0", b"5 5", b" 5", b"", b"f" * 17, b"\xb2")
    },
    "chunks with long extensions": _without_end(_CHUNKED, piece=b"1;" + b"e" * 9000 + b"\r\nx\r\n"),
    "an extension without end": _without_end(_CHUNKED, b"1;", piece=b"e" * 65536),
    "trailers without end": _without_end(_CHUNKED, b"0\r\n", piece=b"X: y\r\n"),
    "a head without end": _without_end(_OK, piece=b"X: y\r\n"),
    "a header without end": _without_end(_OK, b"X: ", piece=b"y" * 65536),
    "a folded header without end": _without_end(_OK, b"X: y\r\n", piece=b" y" * 30_000 + b"\r\n"),
    "heads without end": _without_end(piece=b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a head that is read for hours": always(_OK, _PARTS, (b";" * 60_000 + b"\r\n ") * 90, b"\r\n\r\n"),
    "a message inside a header, and so on": always(
        _OK, b"X: y\r" + b"Content-Type: message/rfc822\r\r" * 500, b"\r\n\r\n"
    ),
}


def ask(**changes: Any) -> ChatRequest:
    """A request with small, ordinary values."""
    plain: dict[str, Any] = {
        "messages": (Message(role="user", content="Hello"),),
        "max_completion_tokens": 64,
        "temperature": 0.0,
        "seed": 7,
        "num_ctx": 2048,
        "deadline_seconds": 5.0,
    }
    return ChatRequest(**{**plain, **changes})


# -- cases and recordings --------------------------------------------------------------------------------------------

FIXTURES = Path(__file__).parent / "fixtures" / "wire"


def tool_definition(tool: dict[str, Any]) -> dict[str, Any]:
    """A case's tool (name, params with type and required) in the form that servers take."""
    params = tool["params"]
    schema = {
        "type": "object",
        "properties": {name: {"type": given["type"]} for name, given in params.items()},
        "required": [name for name, given in params.items() if given["required"]],
    }
    return {"type": "function", "function": {"name": tool["name"], "parameters": schema}}


def body_in_pieces(data: bytes, pieces: list[bytes], *, status: int, content_type: str) -> list[bytes]:
    """A reply whose body arrives cut as in `pieces`; without any, in one go."""
    if not pieces:
        return [http_reply(data, status=status, content_type=content_type)]
    return [chunked_head(status=status, content_type=content_type), *map(chunk, pieces), chunk(b"")]


def seen_as(reply: Reply) -> Any:
    """A reply in the form in which cases say what they expect."""
    if reply.outcomes:
        return [
            {"tool": found.name, "args": found.arguments} if isinstance(found, ToolCall) else fault_seen_as(found)
            for found in reply.outcomes
        ]
    return {"answer": reply.answer}


def fault_seen_as(error: ModelError | BackendError) -> dict[str, Any]:
    """An error in the form in which cases say what they expect."""
    seen: dict[str, Any] = {"error_type": error.error_type, "detail": error.detail, "retry": error.retry}
    if isinstance(error, ToolCallError):
        seen |= {"tool": error.tool, "missing": list(error.missing), "suggest": error.suggest}
    return seen


def meets(seen: Any, expected: Any) -> bool:
    """Whether what was seen is what a case expects; an expected error says only some of what an error tells."""
    if isinstance(expected, list):
        return isinstance(seen, list) and len(seen) == len(expected) and all(map(meets, seen, expected))
    if not isinstance(seen, dict):
        return False
    if "error_type" not in expected:
        return bool(seen == expected)
    return all(key in seen and seen[key] == value for key, value in expected.items())
