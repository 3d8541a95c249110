"""The one reading of an address: what is judged, what is connected to and what is sent all come from its Target."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Literal
from urllib.parse import quote, urljoin

from agent.egress.faults import FetchError

MAX_URL_CHARS = 2048
DEFAULT_PORTS = {"http": 80, "https": 443}
FIRST_FREE_PORT = 1024  # below it stand other services than the web, which may take a request for one of their own

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*\.?")
_KEPT = "/?:@!$&'()*+,;=-._~%"  # what stays as it is in a path and query; all else is percent-encoded


@dataclass(frozen=True)
class Target:
    """An address of the web. `host` is ASCII in lower case, an IPv6 address without its brackets."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str  # with the query; it begins with a slash

    @property
    def authority(self) -> str:
        """The host as the Host header names it: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def read_url(text: str) -> Target:
    """The target of an absolute http or https URL.

    Raises:
        FetchError: bad_url, blocked_url or blocked_scheme.
    """
    if len(text) > MAX_URL_CHARS:
        raise FetchError("bad_url", f"The address is longer than {MAX_URL_CHARS:,} characters.")
    _refuse_ambiguous(text)
    parts = _URL.match(text)
    scheme = parts or _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() not in DEFAULT_PORTS:
        raise FetchError("blocked_scheme", "Only http and https addresses can be fetched.")
    if parts is None:
        raise FetchError("bad_url", "Give a whole address that begins with https:// or http://.")
    return _target("https" if parts[1].lower() == "https" else "http", parts[2], parts[3])


def read_redirect(base: Target, location: str) -> Target:
    """The target that a server sends us on to, which may be relative to the one that was asked.

    Raises:
        FetchError: as `read_url`.
    """
    _refuse_ambiguous(location)  # before it is joined: urljoin drops some of those characters silently
    try:
        return read_url(urljoin(str(base), location))
    except ValueError:
        raise FetchError("bad_url", "The server sends on to something that is no address.") from None


def read_authority(text: str) -> tuple[str, int | None]:
    """Host and port (None where there is none) of `host`, `host:port`, `[address]` or `[address]:port`.

    Raises:
        FetchError: bad_url or blocked_url.
    """
    if "@" in text:
        raise FetchError("blocked_url", "Addresses with a user name in them are not fetched.")
    parts = _AUTHORITY.fullmatch(text)
    if parts is None or not parts[1]:
        raise FetchError("bad_url", "The address names no host, or its port is no number.")
    port = int(parts[2]) if parts[2] else None
    if port is not None and not 0 < port < 65536:
        raise FetchError("bad_url", "There is no such port.")
    return _host(parts[1]), port


def _refuse_ambiguous(text: str) -> None:
    """Refuse what readers of addresses disagree about, so that nobody behind us can read another host than we do."""
    if "\\" in text or not text.isprintable() or any(char.isspace() for char in text):
        raise FetchError(
            "blocked_url",
            "Addresses with blanks, backslashes or control characters are not fetched. Write a blank as %20.",
        )


def _target(scheme: Literal["http", "https"], authority: str, rest: str) -> Target:
    host, port = read_authority(authority)
    path = rest if rest.startswith("/") else f"/{rest}"
    try:
        return Target(scheme, host, port or DEFAULT_PORTS[scheme], quote(path, safe=_KEPT))
    except UnicodeEncodeError:  # half a surrogate pair
        raise FetchError("blocked_url", "The address holds a character that cannot be sent.") from None


def _host(text: str) -> str:
    if text.startswith("["):
        return _ipv6(text[1:-1])
    try:
        name = text.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise FetchError("bad_url", "The host's name cannot be one.") from None
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise FetchError("bad_url", "The host's name cannot be one.")
    return name


def _ipv6(text: str) -> str:
    try:
        address = IPv6Address(text)
    except AddressValueError:
        raise FetchError("bad_url", "The address in brackets is no IPv6 address.") from None
    if address.scope_id is not None:  # an interface of this machine
        raise FetchError("blocked_url", "Addresses with a zone in them are not fetched.")
    return str(address)
