"""One connection to an address that was judged, on which no wait is longer than the deadline.

http.client, and not a library above it: it looks nothing up by itself, follows nothing, keeps nothing, and reads
neither proxies nor passwords from the environment.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from ipaddress import IPv6Address
from typing import Literal

from agent.egress.addresses import Address
from agent.egress.deadline import Deadline
from agent.egress.faults import FetchError
from agent.egress.strict_http import StrictResponse
from agent.egress.target import Target

CONNECT_SECONDS = 5.0  # for one address, so that a host whose first does not answer is reached by its next
MAX_ADDRESSES_TRIED = 4


@contextmanager
def connected(target: Target, addresses: Sequence[Address], deadline: Deadline) -> Iterator[HTTPConnection]:
    """A connection to the first of the addresses that takes one, closed at the end.

    Raises:
        FetchError: network or timeout.
    """
    with plain_socket(target, addresses, deadline) as plain, _secured(plain, target, deadline) as sock:
        connection = HTTPConnection(target.host, target.port)
        connection.response_class = StrictResponse
        connection.sock = _TimedSocket(sock, deadline)
        yield connection


def plain_socket(target: Target, addresses: Sequence[Address], deadline: Deadline) -> socket.socket:
    """A TCP connection to the first of the addresses that takes one.

    Raises:
        FetchError: network or timeout.
    """
    for address in addresses[:MAX_ADDRESSES_TRIED]:
        family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(min(CONNECT_SECONDS, deadline.left()))
            sock.connect((str(address), target.port))
        except OSError:
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    deadline.left()
    raise FetchError("network", f"{target.host} does not take the connection.")


def _secured(sock: socket.socket, target: Target, deadline: Deadline) -> socket.socket:
    """The socket, for https with TLS on it: the certificate must be the name's, though we connected to an address."""
    if target.scheme == "http":
        return sock
    sock.settimeout(deadline.left())
    try:
        return ssl.create_default_context().wrap_socket(sock, server_hostname=target.host.rstrip("."))
    except ssl.SSLCertVerificationError as error:
        raise FetchError(
            "network", f"The certificate of {target.host} cannot be trusted: {error.verify_message}."
        ) from None
    except ssl.SSLError:
        raise FetchError("network", f"{target.host} does not speak TLS as it should.") from None


class _TimedSocket:
    """What http.client needs of a socket. Closing it is left to whoever opened the socket."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def makefile(self, mode: Literal["rb"]) -> io.BufferedReader:  # noqa: ARG002 http.client reads in no other mode
        return io.BufferedReader(_TimedReader(self._sock, self._deadline))

    def close(self) -> None:
        pass


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # narrower than any buffer
        self._sock.settimeout(self._deadline.left())
        return self._sock.recv_into(buffer)
