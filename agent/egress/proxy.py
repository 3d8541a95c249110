"""A SOCKS5 proxy on loopback for a program that connects by itself: each host is looked up once, judged, and connected
to at the judged address, as the fetcher does it. So nothing that a page does to names or redirects leads elsewhere.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from socketserver import BaseRequestHandler, ThreadingTCPServer

from agent.egress.connection import plain_socket
from agent.egress.deadline import Deadline
from agent.egress.faults import FetchError
from agent.egress.fetch import Reach, judged_addresses
from agent.egress.target import Target, read_authority

MAX_CONNECTIONS = 64  # at a time
MAX_BYTES = 256 * 1024 * 1024  # from servers, in all
MAX_FAULTS = 1000  # that are remembered
REQUEST_SECONDS = 10.0  # for what the program asks, the lookup and the connection
IDLE_SECONDS = 120.0
_PIECE_BYTES = 64 * 1024
_VERSION = b"\x05"
_BY_NAME = 3
_ADDRESS_BYTES = {1: 4, 4: 16}
_DONE, _FAILED = b"\x00", b"\x01"
_NO_ADDRESS = b"\x00\x01\x00\x00\x00\x00\x00\x00"


class PinningProxy:
    """Serves from when it is made until it is closed. A connection is to be asked for and made in `request_seconds`."""

    def __init__(self, reach: Reach, request_seconds: float = REQUEST_SECONDS) -> None:
        self.reach = reach
        self.request_seconds = request_seconds
        self._lock = threading.Lock()
        self._faults: dict[tuple[str, int], FetchError] = {}
        self._connections: set[socket.socket] = set()
        self._bytes_left = MAX_BYTES
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="proxy", daemon=True)
        self._thread.start()

    def fault(self, target: Target) -> FetchError | None:
        """Why the latest connection to a target's host was not made; None where it was, or none was asked for."""
        with self._lock:
            return self._faults.get((target.host, target.port))

    def close(self) -> None:
        """Stop, and hang up on everybody."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def connect(self, host: str, port: int, deadline: Deadline) -> socket.socket:
        """A connection to a host that may be reached. What kept it from being made is remembered.

        Raises:
            FetchError: as the fetcher.
        """
        target = Target("http", _read_host(host), port, "/")
        try:
            upstream = plain_socket(target, judged_addresses(target, self.reach, deadline), deadline)
        except FetchError as error:
            self._remember(target, error)
            raise
        self._remember(target, None)
        return upstream

    def _remember(self, target: Target, fault: FetchError | None) -> None:
        with self._lock:
            self._faults.pop((target.host, target.port), None)
            if fault is not None:
                self._faults[target.host, target.port] = fault
            if len(self._faults) > MAX_FAULTS:
                del self._faults[next(iter(self._faults))]

    def admit(self, connection: socket.socket) -> bool:
        """Whether there is room for one more connection, which is held from then on."""
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                return False
            self._connections.add(connection)
            return True

    def release(self, connection: socket.socket) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._connections.discard(connection)

    def has_room(self, came: int) -> bool:
        """Count what came from a server, and say whether more may come."""
        with self._lock:
            self._bytes_left -= came
            return self._bytes_left > 0


def _read_host(host: str) -> str:
    """The host as the fetcher reads it."""
    with suppress(ValueError):
        if isinstance(ip_address(host), IPv6Address):
            host = f"[{host}]"
    return read_authority(host)[0]


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False  # those who are served are hung up on
    proxy: PinningProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Nobody is told of a connection that broke: the program sees for itself."""


class _Handler(BaseRequestHandler):
    request: socket.socket
    server: _Server

    def handle(self) -> None:
        """One connection of the program, from its request to its end."""
        proxy = self.server.proxy
        if not proxy.admit(self.request):
            return
        try:
            with suppress(OSError, FetchError):
                self._serve(proxy, Deadline(proxy.request_seconds))
        finally:
            proxy.release(self.request)

    def _serve(self, proxy: PinningProxy, deadline: Deadline) -> None:
        wanted = self._asked(deadline)
        if wanted is None:
            return
        try:
            upstream = proxy.connect(*wanted, deadline)
        except FetchError:
            self.request.sendall(_VERSION + _FAILED + _NO_ADDRESS)
            return
        with upstream:
            self.request.sendall(_VERSION + _DONE + _NO_ADDRESS)
            _relay(self.request, upstream, proxy)

    def _asked(self, deadline: Deadline) -> tuple[str, int] | None:
        """The host and port that the program wants; None where it does not speak as it should."""
        version, methods = self._read(2, deadline)
        self._read(methods, deadline)
        if version != _VERSION[0]:
            return None
        self.request.sendall(_VERSION + b"\x00")  # nobody has to say who they are
        _, command, _, kind = self._read(4, deadline)
        if command != 1:
            return None
        if kind == _BY_NAME:
            host = self._read(self._read(1, deadline)[0], deadline).decode("ascii", "replace")
        elif kind in _ADDRESS_BYTES:
            host = str(ip_address(self._read(_ADDRESS_BYTES[kind], deadline)))
        else:
            return None
        return host, int.from_bytes(self._read(2, deadline), "big")

    def _read(self, count: int, deadline: Deadline) -> bytes:
        data = b""
        while len(data) < count:
            self.request.settimeout(deadline.left())
            piece = self.request.recv(count - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data


def _relay(client: socket.socket, upstream: socket.socket, proxy: PinningProxy) -> None:
    """Carry bytes both ways until both have ended, or either breaks."""
    for end in (client, upstream):
        end.settimeout(IDLE_SECONDS)
    other_way = threading.Thread(target=_carry, args=(client, upstream, None), name="proxy-upload", daemon=True)
    other_way.start()
    _carry(upstream, client, proxy)
    for end in (client, upstream):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    other_way.join()


def _carry(source: socket.socket, sink: socket.socket, proxy: PinningProxy | None) -> None:
    """Carry one way until the source ends; `proxy` counts what comes. A browser that ends has hung up: it waits for no
    answer any more, and neither does its place among the connections."""
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
            if proxy is not None and not proxy.has_room(len(piece)):
                return
        sink.shutdown(socket.SHUT_RDWR if proxy is None else socket.SHUT_WR)
