"""What one HTTP request is: the server it goes to, and what is asked of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from agent.llm.backends.base import ChatRequest

MAX_BODY_BYTES = 64 * 1024 * 1024
# A streamed token comes in an object of about 150 bytes, with probabilities beside it in some thousand.
_BODY_BYTES_PER_TOKEN = 4096
_BODY_BYTES_BESIDE = 1024 * 1024
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

    `max_body_bytes` is more than an honest reply can have; a server that sends more is hung up on.
    `silence_seconds` is how long the server may say nothing, where that is shorter than the deadline.
    """

    method: str
    endpoint: str
    deadline_seconds: float
    body: dict[str, Any] | None = None
    streamed: bool = False
    silence_seconds: float | None = None
    max_body_bytes: int = MAX_BODY_BYTES


def generating(endpoint: str, request: ChatRequest, body: dict[str, Any]) -> Call:
    """The call that asks for a reply: its body can be no larger than so many tokens make it, streamed or not."""
    largest = _BODY_BYTES_BESIDE + _BODY_BYTES_PER_TOKEN * request.max_completion_tokens
    return Call(
        "POST",
        endpoint,
        request.deadline_seconds,
        body,
        streamed=request.stream,
        max_body_bytes=min(MAX_BODY_BYTES, largest),
    )


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, without brackets or port) is this machine by definition."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
