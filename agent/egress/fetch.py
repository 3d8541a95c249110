"""Fetch a page: each hop read, looked up and judged anew, all of it within one deadline and one bound of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from fnmatch import fnmatchcase
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse

from agent.egress.addresses import Address, Resolver, addresses_of, refuse_inner, system_resolver
from agent.egress.connection import connected
from agent.egress.deadline import Deadline
from agent.egress.decoding import Unpacker
from agent.egress.faults import FetchError
from agent.egress.intranet import Intranet
from agent.egress.target import DEFAULT_PORTS, FIRST_FREE_PORT, Target, read_redirect, read_url

USER_AGENT = "Shoestring"
MAX_BYTES = 2 * 1024 * 1024
MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PIECE_BYTES = 64 * 1024
_MAX_CONTENT_TYPE = 300
_MEDIA_TYPE = re.compile(r"\s*([a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60})(?![^\s;])")
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([a-z0-9_.:-]{1,40})")


@dataclass(frozen=True)
class Wanted:
    """What is asked of a server. `accept` are patterns of media types; anything else is not read.

    `max_bytes` bounds both what comes over the wire and what that unpacks to. With `same_origin` a redirect to another
    scheme, host or port is refused. `bearer` is sent as authorization, and needs `same_origin`.

    Raises:
        ValueError: a bearer that a redirect could carry elsewhere; a bug of ours.
    """

    accept: tuple[str, ...]
    deadline_seconds: float
    max_bytes: int = MAX_BYTES
    same_origin: bool = False
    bearer: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.bearer is not None and not self.same_origin:
            raise ValueError("a bearer is for one origin")


@dataclass(frozen=True)
class Reach:
    """Where fetches may go: the public internet as the resolver knows it, and a person's own hosts."""

    intranet: Intranet = field(default_factory=Intranet)
    resolver: Resolver = system_resolver


@dataclass(frozen=True)
class Page:
    """What came. `url` is where it came from in the end; `truncated` says that there was more than `max_bytes`."""

    url: str
    status: int
    content_type: str  # in lower case and without parameters; empty where the server gives none
    charset: str | None
    body: bytes = field(repr=False)
    truncated: bool
    redirects: tuple[str, ...]  # the addresses that led to `url`, the one asked for first


def fetch(url: str, wanted: Wanted, reach: Reach) -> Page:
    """Fetch one page with GET. No cookie, password or proxy of this machine has a part in it.

    Raises:
        FetchError: whatever kept it from being fetched.
    """
    deadline = Deadline(wanted.deadline_seconds)
    target = read_url(url)
    passed: list[str] = []
    while True:
        outcome = _hop(target, wanted, reach, deadline, tuple(passed))
        if isinstance(outcome, Page):
            return outcome
        if wanted.same_origin and outcome.origin != target.origin:
            raise FetchError("blocked_redirect", f"{target.host} sends on to another server, which is not followed.")
        if len(passed) == MAX_REDIRECTS:
            raise FetchError("too_many_redirects", f"The address was sent on more than {MAX_REDIRECTS} times.")
        passed.append(str(target))
        target = outcome


def _hop(target: Target, wanted: Wanted, reach: Reach, deadline: Deadline, passed: tuple[str, ...]) -> Page | Target:
    """The page at a target, or the target that it sends on to."""
    addresses = judged_addresses(target, reach, deadline)
    with _faults_told(target, deadline), connected(target, addresses, deadline) as connection:
        response = _asked(connection, target, wanted)
        if response.status in _REDIRECTS and (location := response.headers["Location"]):
            return read_redirect(target, _as_utf8(location))
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            raise _bad_status(response.status)
        return _page(response, target, wanted, passed)


def judged_addresses(target: Target, reach: Reach, deadline: Deadline) -> list[Address]:
    """The addresses that may be connected to for a target, and no others.

    Raises:
        FetchError: blocked_address, blocked_port, network or timeout.
    """
    addresses = addresses_of(target, reach.resolver, deadline)
    if not reach.intranet.holds(target):
        refuse_inner(target, addresses)
        _refuse_other_services(target)
    return addresses


def _refuse_other_services(target: Target) -> None:
    if target.port < FIRST_FREE_PORT and target.port not in DEFAULT_PORTS.values():
        raise FetchError("blocked_port", f"Port {target.port} is not one of the web.")


def _asked(connection: HTTPConnection, target: Target, wanted: Wanted) -> HTTPResponse:
    connection.putrequest("GET", target.path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", target.authority)
    connection.putheader("User-Agent", USER_AGENT)
    connection.putheader("Accept", ", ".join(wanted.accept))
    connection.putheader("Accept-Encoding", "gzip")
    connection.putheader("Connection", "close")
    if wanted.bearer is not None:
        connection.putheader("Authorization", f"Bearer {wanted.bearer}")
    connection.endheaders()
    return connection.getresponse()


def _page(response: HTTPResponse, target: Target, wanted: Wanted, passed: tuple[str, ...]) -> Page:
    content_type, charset = _content_type(response.headers)
    if content_type and not any(fnmatchcase(content_type, pattern) for pattern in wanted.accept):
        raise FetchError("unsupported_type", f"The page is {content_type}, which is not read here.")
    body, truncated = _body(response, Unpacker(response.headers), wanted.max_bytes)
    return Page(str(target), response.status, content_type, charset, body, truncated, passed)


def _body(response: HTTPResponse, unpacker: Unpacker, max_bytes: int) -> tuple[bytes, bool]:
    """The unpacked body within the bound, and whether there was more."""
    body, came = bytearray(), 0
    while piece := response.read(_PIECE_BYTES):
        came += len(piece)
        body += unpacker.unpack(piece, max_bytes + 1 - len(body))
        if len(body) > max_bytes or came > max_bytes:
            return bytes(body[:max_bytes]), True
    if response.length or (came and not unpacker.is_whole):
        raise FetchError("network", "The page broke off before its end.")
    return bytes(body), False


@contextmanager
def _faults_told(target: Target, deadline: Deadline) -> Iterator[None]:
    """Turn the faults of sockets and of HTTP into one that says what to make of them."""
    try:
        yield
    except TimeoutError:
        raise deadline.over() from None
    except (OSError, HTTPException):
        raise FetchError("network", f"{target.host} hung up, or does not speak HTTP as it should.") from None


def _bad_status(status: int) -> FetchError:
    try:
        words = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        words = str(status)
    return FetchError("http_status", f"The server answered {words}.", status=status)


def _content_type(headers: Message) -> tuple[str, str | None]:
    """The media type, empty where there is none, and the charset. Message's own reading of them can take seconds."""
    text = headers.get("Content-Type", "")[:_MAX_CONTENT_TYPE].lower()
    kind, charset = _MEDIA_TYPE.match(text), _CHARSET.search(text)
    return kind[1] if kind else "", charset[1] if charset else None


def _as_utf8(header: str) -> str:
    """A header's text, which http.client reads as Latin-1, as servers mean it."""
    return header.encode("latin-1").decode("utf-8", "replace")
