"""The proxy for programs that connect by themselves: the judged address or none, and nothing it is told breaks it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from agent.egress.fetch import Reach
from agent.egress.intranet import Intranet
from agent.egress.proxy import MAX_CONNECTIONS, PinningProxy
from agent.egress.target import read_url
from tests.support_pages import Site, html, site

HELLO = b"\x05\x01\x00"
WELCOME = b"\x05\x00"


@pytest.fixture
def served() -> Iterator[Site]:
    with site() as found:
        found.routes["/"] = html("<p>Here")
        yield found


@pytest.fixture
def proxy(served: Site) -> Iterator[PinningProxy]:
    found = PinningProxy(Reach(Intranet.of(f"pub.test:{served.port}"), lambda host, port: ["127.0.0.1"]))
    yield found
    found.close()


def told(proxy: PinningProxy, request: bytes) -> tuple[socket.socket, bytes]:
    """A connection that has said hello and asked, and the answer."""
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    client.sendall(HELLO)
    assert client.recv(2) == WELCOME
    client.sendall(request)
    return client, client.recv(10)


def by_name(host: str, port: int) -> bytes:
    return b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + port.to_bytes(2, "big")


def test_a_host_that_may_be_reached_is_talked_to(proxy: PinningProxy, served: Site) -> None:
    client, answer = told(proxy, by_name("pub.test", served.port))
    with client:
        assert answer[:2] == b"\x05\x00"
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        page = b""
        while piece := client.recv(4096):
            page += piece
    assert b"<p>Here" in page
    assert proxy.fault(read_url(f"http://pub.test:{served.port}/")) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "other.test", "::1", "[::1]", "0x7f.1"])
def test_any_other_is_refused_and_why_is_known(proxy: PinningProxy, served: Site, host: str) -> None:
    client, answer = told(proxy, by_name(host, served.port))
    client.close()
    assert answer[:2] == b"\x05\x01"
    shown = f"[{host}]" if host.startswith(":") else host
    fault = proxy.fault(read_url(f"http://{shown}:{served.port}/"))
    assert fault is not None
    assert fault.error_type == "blocked_address"
    assert served.asked == []


def test_addresses_as_bytes_are_judged_too(proxy: PinningProxy, served: Site) -> None:
    port = served.port.to_bytes(2, "big")
    for request in (b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port, b"\x05\x01\x00\x04" + b"\x00" * 15 + b"\x01" + port):
        client, answer = told(proxy, request)
        client.close()
        assert answer[:2] == b"\x05\x01"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: pub.test\r\n\r\n",  # another kind of proxy
        b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50",  # to listen
        b"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50",  # datagrams
        b"\x05\x01\x00\x07\x7f\x00\x00\x01\x00\x50",  # no such kind of address
        b"\x05\x01\x00\x03\x00\x00\x50",  # no host
    ],
)
def test_what_is_not_understood_is_hung_up_on_or_refused_and_the_next_is_served(
    proxy: PinningProxy, served: Site, request_: bytes
) -> None:
    try:
        client, answer = told(proxy, request_)
        client.close()
    except ConnectionError:
        answer = b""
    assert answer[:2] in (b"", b"\x05\x01")
    client, answer = told(proxy, by_name("pub.test", served.port))
    client.close()
    assert answer[:2] == b"\x05\x00"


def test_there_are_so_many_connections_at_a_time_and_no_more(proxy: PinningProxy) -> None:
    held = []
    try:
        for _ in range(MAX_CONNECTIONS):
            held.append(socket.create_connection(("127.0.0.1", proxy.port), timeout=5))
            held[-1].sendall(HELLO)
            assert held[-1].recv(2) == WELCOME
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as one_more:
            assert one_more.recv(2) == b""
    finally:
        for client in held:
            client.close()


def test_who_hangs_up_leaves_its_place_though_the_server_never_answers(proxy: PinningProxy, served: Site) -> None:
    released = threading.Event()
    served.routes["/silent"] = lambda: (released.wait(30), html(""))[1]
    try:
        for _ in range(MAX_CONNECTIONS + 1):
            client, answer = told(proxy, by_name("pub.test", served.port))
            with client:
                assert answer[:2] == b"\x05\x00"
                client.sendall(b"GET /silent HTTP/1.0\r\n\r\n")
                client.shutdown(socket.SHUT_WR)
                assert client.recv(1) == b""
    finally:
        released.set()


def test_when_it_closes_everybody_is_hung_up_on(served: Site) -> None:
    proxy = PinningProxy(Reach(Intranet.of(f"pub.test:{served.port}"), lambda host, port: ["127.0.0.1"]))
    client, answer = told(proxy, by_name("pub.test", served.port))
    proxy.close()
    with client:
        assert answer[:2] == b"\x05\x00"
        assert client.recv(10) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def test_who_asks_drop_by_drop_is_hung_up_on(served: Site) -> None:
    proxy = PinningProxy(Reach(Intranet.of(f"pub.test:{served.port}"), lambda host, port: ["127.0.0.1"]), 0.3)
    started = time.monotonic()
    with closing(proxy), socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
        client.sendall(b"\x05\xff")  # as many ways to say who one is follow
        client.settimeout(0.05)
        hung_up = False
        while not hung_up:
            try:
                client.sendall(b"\x00")
                hung_up = not client.recv(1)
            except TimeoutError:
                assert time.monotonic() - started < 5
            except ConnectionError:
                hung_up = True
