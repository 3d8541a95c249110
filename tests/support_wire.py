"""A server made of bytes: what a test wants on the wire, piece by piece, from a real socket on loopback."""

from __future__ import annotations

import contextlib
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
        if len(first) != 3:
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
