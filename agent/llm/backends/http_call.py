"""What one HTTP request is: the server it goes to, and what is asked of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

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


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, without brackets or port) is this machine by definition."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
