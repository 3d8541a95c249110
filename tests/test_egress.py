"""The one fetcher: what may be reached is decided on the address that is connected to, and everything has a bound."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.egress.addresses import is_public, system_resolver
from agent.egress.faults import FetchError
from agent.egress.fetch import MAX_REDIRECTS, Page, Reach, Wanted, fetch
from agent.egress.intranet import Intranet
from agent.egress.target import read_redirect, read_url
from agent.errors import UsageError
from tests.support_web import Names, encoded, reach, redirect, site
from tests.support_wire import (
    HOSTILE_FRAMES,
    Answer,
    ResetError,
    Seen,
    Wire,
    always,
    chunk,
    chunked_head,
    http_reply,
    serving,
)

TEXT = Wanted(accept=("text/*", "application/json"), deadline_seconds=5.0)
HELLO = http_reply("hello", content_type="text/plain")
PACKED = gzip.compress(b"hello", mtime=0)  # the same bytes in every process that collects these tests
PUBLIC = "93.184.215.14"


def refusal(url: str, to: Reach | None = None, wanted: Wanted = TEXT) -> str:
    with pytest.raises(FetchError) as refused:
        fetch(url, wanted, to or Reach())
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300
    return refused.value.error_type


# -- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),  # noqa: S104 not to bind to
        *("169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.170", "192.0.2.1", "192.88.99.1"),
        *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe"),
        *("64:ff9b:1::1", "64:ff9b:1:808:808::", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1", "2001:2::1"),
        *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1", "3ffe::1", "fc00::1", "fd00:ec2::254"),
        *("fe80::1", "fe80::1%lo", "fec0::1", "ff02::1", "100::1", "5f00::1", "4000::1"),
        *("2600::5efe:7f00:1", "2600::200:5efe:a00:1"),
    ],
)
def test_an_address_that_is_not_of_the_public_internet(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.1"),
        *("2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808"),
        *("2002:808:808::1", "2600::5efe:808:808"),
    ],
)
def test_an_address_that_is(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_no_address_is_public_that_python_calls_private_or_special(address: object) -> None:
    judged = ip_address(str(address))
    if judged.is_private or judged.is_multicast or judged.is_reserved or judged.is_loopback or judged.is_link_local:
        assert not is_public(judged)
        assert not is_public(ip_address(f"::ffff:{judged}"))


# -- spellings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:11434", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost"),  # noqa: S104 not to bind to
        *("\u2460\u2461\u2466.\u24ea.\u24ea.\u2460", "127\u30020\u30020\u30021", "[::1]", "[::127.0.0.1]"),
        *("[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "169.254.169.254", "100.64.0.1", "10.0.0.1", "224.0.0.1"),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "LOCALHOST", "0"),
    ],
)
def test_no_spelling_of_an_inner_address_is_let_through(host: str) -> None:
    assert refusal(f"http://{host}/") == "blocked_address"


@pytest.mark.parametrize(
    ("url", "error_type"),
    [
        ("http://127.0.0.1:6666\\@1.1.1.1/", "blocked_url"),
        ("http://example.com\\.evil.test/", "blocked_url"),
        ("http://exam ple.com/", "blocked_url"),
        ("http://example.com/a b", "blocked_url"),
        (" http://example.com/", "blocked_url"),
        ("http://example.com/\n", "blocked_url"),
        ("http://example.com/\x00", "blocked_url"),
        ("http://example.com/\u200b", "blocked_url"),
        ("http://example.com@127.0.0.1/", "blocked_url"),
        ("http://user:word@example.com/", "blocked_url"),
        ("http://[fe80::1%25eth0]/", "blocked_url"),
        ("gopher://127.0.0.1:6379/_FLUSHALL", "blocked_scheme"),
        ("file:///etc/passwd", "blocked_scheme"),
        ("ftp://example.com/", "blocked_scheme"),
        ("data:text/html,hello", "blocked_scheme"),
        ("jar:http://example.com/a.jar!/", "blocked_scheme"),
        ("view-source:http://example.com/", "blocked_scheme"),
        ("javascript:alert(1)", "blocked_scheme"),
        ("example.com/page", "bad_url"),
        ("//example.com/page", "bad_url"),
        ("http:/example.com", "bad_url"),
        ("http://", "bad_url"),
        ("http:///path", "bad_url"),
        ("http://:80/", "bad_url"),
        ("http://a:b/", "bad_url"),
        ("http://a:0/", "bad_url"),
        ("http://a:65536/", "bad_url"),
        ("http://a:80:80/", "bad_url"),
        ("http://a..b/", "bad_url"),
        ("http://-a/", "bad_url"),
        ("http://a%2eb/", "bad_url"),
        ("http://[::1/", "bad_url"),
        ("http://[1.2.3.4]/", "bad_url"),
        (f"http://{'a' * 64}/", "bad_url"),
        (f"http://a/{'b' * 2048}", "bad_url"),
        ("", "bad_url"),
    ],
)
def test_an_address_that_could_be_read_in_two_ways_or_in_none_is_refused(url: str, error_type: str) -> None:
    assert refusal(url) == error_type


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("https://example.com:443/a?b=c#d", "https://example.com/a?b=c"),
        ("http://example.com:8080?q", "http://example.com:8080/?q"),
        ("http://b\xfccher.example/\xe4?\xf6", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
        ("http://[2606:4700:0::1111]:80/", "http://[2606:4700::1111]/"),
        ("http://a_b.example/%41%zz/../x", "http://a_b.example/%41%zz/../x"),
    ],
)
def test_an_ordinary_address_is_read(url: str, read: str) -> None:
    assert str(read_url(url)) == read


@given(st.text(max_size=60) | st.text("htps:/[]@.%#?\\0123456789af\u3002\u2460", max_size=40).map("http://".__add__))
def test_any_text_is_read_or_refused_and_what_is_read_reads_the_same_again(text: str) -> None:
    try:
        target = read_url(text)
    except FetchError:
        return
    assert read_url(str(target)) == target
    assert str(target).isascii()


# -- resolving --------------------------------------------------------------------------------------------------


def test_a_host_is_looked_up_once_and_the_judged_address_is_the_one_connected_to() -> None:
    """The second answer is loopback, where a server waits; it must never be asked for."""
    names = Names(rebind_test=[[PUBLIC], ["127.0.0.1"]])
    with serving(always(HELLO)) as wire:
        wanted = Wanted(accept=("text/*",), deadline_seconds=0.5)
        assert refusal(f"http://rebind.test:{wire.port}/", Reach(resolver=names), wanted) in {"network", "timeout"}
        assert names.asked == ["rebind.test"]
        assert wire.seen == []


def test_a_name_that_now_leads_inside_is_refused_before_anything_is_sent() -> None:
    with serving(always(HELLO)) as wire:
        assert refusal(f"http://rebind.test:{wire.port}/", Reach(resolver=Names(rebind_test=[["127.0.0.1"]]))) == (
            "blocked_address"
        )
        assert wire.seen == []


@pytest.mark.parametrize("answers", [[PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], [PUBLIC, "2606:4700::1", "::1"]])
def test_one_inner_address_among_public_ones_refuses_them_all(answers: list[str]) -> None:
    assert refusal("http://mixed.test/", Reach(resolver=Names(mixed_test=[answers]))) == "blocked_address"


@pytest.mark.parametrize("answers", [[], ["nonsense"]])
def test_a_host_without_addresses_is_said_so(answers: list[str]) -> None:
    assert refusal("http://none.test/", Reach(resolver=Names(none_test=[answers]))) == "network"


def test_an_unknown_host_is_said_so() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    assert refusal("http://none.test/", Reach(resolver=unknown)) == "network"


def test_a_lookup_that_hangs_ends_with_the_deadline() -> None:
    over = threading.Event()

    def hangs(host: str, port: int) -> list[str]:
        over.wait(20)
        return [PUBLIC]

    started = time.monotonic()
    try:
        wanted = Wanted(accept=("text/*",), deadline_seconds=0.2)
        assert refusal("http://slow.test/", Reach(resolver=hangs), wanted) == "timeout"
    finally:
        over.set()
    assert time.monotonic() - started < 5


def test_the_machines_own_resolver_gives_addresses() -> None:
    assert "127.0.0.1" in system_resolver("localhost", 80)


# -- a person's own hosts ---------------------------------------------------------------------------------------


def test_a_host_that_the_person_named_is_reached_and_no_other_port_of_it() -> None:
    with serving(always(HELLO)) as wire, serving(always(HELLO)) as other:
        to = reach(wire, "wiki.test")
        assert fetch(f"http://wiki.test:{wire.port}/a", TEXT, to).body == b"hello"
        assert refusal(f"http://wiki.test:{other.port}/", to) == "blocked_address"
        assert refusal(f"http://127.0.0.1:{wire.port}/", to) == "blocked_address"
        assert other.seen == []
        assert wire.seen[0].headers["host"] == f"wiki.test:{wire.port}"


def test_a_host_named_without_a_port_is_reached_on_all() -> None:
    with serving(always(HELLO)) as wire:
        assert fetch(f"http://127.0.0.1:{wire.port}/", TEXT, Reach(Intranet.of(" 127.0.0.1 , x "))).status == 200


@pytest.mark.parametrize("text", ["http://wiki.test/", "a b", "a:99999", "user@host", "*.corp", "a/b"])
def test_what_is_no_host_in_the_persons_list_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match="INTRANET_HOSTS"):
        Intranet.of(text)


def test_ports_of_other_services_are_refused_on_public_hosts() -> None:
    to = Reach(resolver=Names(pub_test=[[PUBLIC]]))
    assert refusal("http://pub.test:25/", to) == "blocked_port"
    assert refusal("https://pub.test:22/", to) == "blocked_port"


# -- redirects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "error_type"),
    [
        ("file:///etc/passwd", "blocked_scheme"),
        ("ftp://pub.test/", "blocked_scheme"),
        ("http://127.0.0.1:1/", "blocked_address"),
        ("http://169.254.169.254/latest/meta-data/", "blocked_address"),
        ("//127.0.0.1:1/", "blocked_address"),
        ("http://user@pub.test/", "blocked_url"),
        ("http:\\\\127.0.0.1", "blocked_url"),
        ("http://[::1", "bad_url"),
    ],
)
def test_every_redirect_is_judged_like_the_first_address(location: str, error_type: str) -> None:
    with serving(always(redirect(location))) as wire:
        assert refusal(f"http://pub.test:{wire.port}/", reach(wire, "pub.test")) == error_type
        assert len(wire.seen) == 1


def test_redirects_are_followed_and_kept() -> None:
    pages = {"/a": redirect("b/c?d=e", 301), "/b/c?d=e": redirect("/\xe9", 308), "/\xe9": HELLO}
    with serving(site(pages)) as wire:
        page = fetch(f"http://pub.test:{wire.port}/a", TEXT, reach(wire, "pub.test"))
    base = f"http://pub.test:{wire.port}"
    assert (page.url, page.redirects, page.body) == (f"{base}/%C3%A9", (f"{base}/a", f"{base}/b/c?d=e"), b"hello")


def test_a_host_is_looked_up_and_judged_again_at_each_redirect() -> None:
    with serving(lambda seen: [redirect(f"http://moves.test:{wire.port}/")]) as wire:
        names = Names(pub_test=[["127.0.0.1"]], moves_test=[["10.0.0.1"]])
        assert refusal(f"http://pub.test:{wire.port}/", reach(wire, "pub.test", resolver=names)) == "blocked_address"
        assert names.asked == ["pub.test", "moves.test"]


def test_redirects_end() -> None:
    with serving(always(redirect("/again"))) as wire:
        assert refusal(f"http://pub.test:{wire.port}/", reach(wire, "pub.test")) == "too_many_redirects"
        assert len(wire.seen) == MAX_REDIRECTS + 1


def test_where_one_origin_is_asked_for_no_other_is_gone_to_and_none_is_told_the_key() -> None:
    with serving(always(HELLO)) as other, serving(lambda _: [redirect(f"{other.url}/")]) as wire:
        wanted = Wanted(accept=("text/*",), deadline_seconds=5.0, same_origin=True, bearer="a-key")
        to = Reach(Intranet.of(f"127.0.0.1:{wire.port},127.0.0.1:{other.port}"))
        assert refusal(f"{wire.url}/", to, wanted) == "blocked_redirect"
        assert wire.seen[0].headers["authorization"] == "Bearer a-key"
        assert other.seen == []


def test_a_key_is_for_one_origin() -> None:
    with pytest.raises(ValueError, match="one origin"):
        Wanted(accept=("text/*",), deadline_seconds=1.0, bearer="a-key")


def test_a_relative_redirect_stays_on_its_host() -> None:
    base = read_url("https://example.com:8443/a/b?c")
    assert str(read_redirect(base, "../d")) == "https://example.com:8443/d"
    assert str(read_redirect(base, "?e")) == "https://example.com:8443/a/b?e"


# -- what is sent -----------------------------------------------------------------------------------------------


def test_nothing_of_this_machine_is_sent_and_no_proxy_of_its_environment_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine pub.test login me password word\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    pages = {"/": b"HTTP/1.1 302 Go\r\nSet-Cookie: a=b\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n", "/b": HELLO}
    with serving(site(pages)) as wire:
        assert fetch(f"http://pub.test:{wire.port}/", TEXT, reach(wire, "pub.test")).body == b"hello"
    assert {name for seen in wire.seen for name in seen.headers} == {
        *("host", "user-agent", "accept", "accept-encoding", "connection")
    }
    assert wire.seen[1].headers["user-agent"] == "Shoestring"


# -- what comes back --------------------------------------------------------------------------------------------


def test_a_page_comes_with_its_type_and_charset() -> None:
    with serving(always(http_reply("{}", content_type='Text/Plain; charset="ISO-8859-1"'))) as wire:
        page = fetch(f"{wire.url}/", TEXT, reach(wire))
    assert page == Page(f"{wire.url}/", 200, "text/plain", "iso-8859-1", b"{}", truncated=False, redirects=())


@pytest.mark.parametrize(
    ("header", "kind", "charset"),
    [
        ("text/html", "text/html", None),
        ("TEXT/HTML;Charset=UTF-8", "text/html", "utf-8"),
        ("text/plain ; a=b; charset='koi8-r'", "text/plain", "koi8-r"),
        ("text/plain; charset=", "text/plain", None),
        ("nonsense", "", None),
        ("text/html/x", "", None),
        ("", "", None),
        ('text/html; a="' + ";" * 30_000, "text/html", None),
    ],
)
def test_the_type_is_read_in_no_time(header: str, kind: str, charset: str | None) -> None:
    with serving(always(http_reply("x", content_type=header))) as wire:
        started = time.monotonic()
        page = fetch(f"{wire.url}/", TEXT, reach(wire))
    assert (page.content_type, page.charset) == (kind, charset)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "video/mp4", "application/pdf"])
def test_other_types_are_not_read(kind: str) -> None:
    with serving(always(http_reply("x", content_type=kind))) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "unsupported_type"


@pytest.mark.parametrize("status", [204, 304, 400, 404, 500, 599, 799])
def test_a_status_that_brings_no_page_is_told(status: int) -> None:
    with serving(always(http_reply("\x1b[31mhostile", status=status, content_type="text/plain"))) as wire:
        if status == 204:
            assert fetch(f"{wire.url}/", TEXT, reach(wire)).body == b""
            return
        with pytest.raises(FetchError, match=str(status)) as refused:
            fetch(f"{wire.url}/", TEXT, reach(wire))
    assert (refused.value.error_type, refused.value.status) == ("http_status", status)


def test_a_redirect_without_a_place_is_a_status_like_others() -> None:
    with serving(always(b"HTTP/1.1 302 Go\r\nContent-Length: 0\r\n\r\n")) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "http_status"


def test_chunks_are_put_together() -> None:
    pieces = [chunked_head(content_type="text/plain"), chunk(b"hel"), chunk(b"lo"), chunk(b"")]
    with serving(always(*pieces)) as wire:
        assert fetch(f"{wire.url}/", TEXT, reach(wire)).body == b"hello"


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(PACKED, "gzip"), (PACKED, "X-GZip"), (zlib.compress(b"hello"), "deflate")],
)
def test_one_layer_is_unpacked(body: bytes, encoding: str) -> None:
    with serving(always(encoded(body, encoding))) as wire:
        assert fetch(f"{wire.url}/", TEXT, reach(wire)).body == b"hello"


def test_a_bomb_goes_no_further_than_the_bound() -> None:
    bomb = gzip.compress(bytes(100 * 1024 * 1024))
    wanted = Wanted(accept=("text/*",), deadline_seconds=5.0, max_bytes=100_000)
    with serving(always(encoded(bomb, "gzip"))) as wire:
        page = fetch(f"{wire.url}/", wanted, reach(wire))
    assert (len(page.body), page.truncated) == (100_000, True)


def test_an_endless_page_is_cut_at_the_bound() -> None:
    def endless(_: Seen) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
        while True:
            yield b"a" * 65536

    wanted = Wanted(accept=("text/*",), deadline_seconds=5.0, max_bytes=100_000)
    with serving(endless) as wire:
        page = fetch(f"{wire.url}/", wanted, reach(wire))
    assert (page.body, page.truncated) == (b"a" * 100_000, True)


@pytest.mark.parametrize("size", [99_999, 100_000, 100_001])
def test_only_what_is_over_the_bound_is_cut(size: int) -> None:
    wanted = Wanted(accept=("text/*",), deadline_seconds=5.0, max_bytes=100_000)
    with serving(always(encoded(gzip.compress(bytes(size)), "gzip"))) as wire:
        page = fetch(f"{wire.url}/", wanted, reach(wire))
    assert (len(page.body), page.truncated) == (min(size, 100_000), size > 100_000)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,deflate", "br", "zstd", "compress", "none"])
def test_layers_and_other_packings_are_refused(encoding: str) -> None:
    body = gzip.compress(gzip.compress(bytes(1024)))
    with serving(always(encoded(body, encoding))) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "refused_encoding"


def test_two_headers_are_two_layers() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"
    with serving(always(head)) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "refused_encoding"


def test_a_packing_of_the_transfer_is_refused() -> None:
    with serving(always(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "refused_encoding"


def test_what_is_not_packed_as_it_says_is_refused() -> None:
    with serving(always(encoded(b"hello there", "gzip"))) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "refused_encoding"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 50\r\n\r\nhalf"],
        [chunked_head(content_type="text/plain"), chunk(b"half")],
        [encoded(PACKED[:-6], "gzip")],
        [b"\x00\x01\x02 no HTTP\r\n\r\n"],
        [b""],
        [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"],
        [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"],
        [chunked_head(content_type="text/plain"), b"zz\r\nhello\r\n"],
    ],
)
def test_a_page_that_breaks_off_or_is_no_http_is_no_page(pieces: list[bytes]) -> None:
    with serving(always(*pieces)) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "network"


@pytest.mark.parametrize("answer", HOSTILE_FRAMES.values(), ids=HOSTILE_FRAMES)
def test_what_stands_around_a_page_is_bounded_and_read_as_it_is_meant(answer: Answer) -> None:
    sent = 0

    def counted(seen: Seen) -> Iterator[bytes]:
        nonlocal sent
        for piece in answer(seen):
            yield piece
            sent += len(piece)

    started = time.monotonic()
    with serving(counted) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "network"
    assert time.monotonic() - started < 2
    assert sent < 16 << 20  # what the sockets hold, and little of it was read


@pytest.mark.parametrize("size", [b"5", b"0005", b"5;a=b", b"5 ; a", b"5  "])
def test_a_chunk_may_say_its_size_with_more_than_that(size: bytes) -> None:
    pieces = [chunked_head(content_type="text/plain"), size + b"\r\nhello\r\n", b"0\r\nX: y\r\n\r\n"]
    with serving(always(*pieces)) as wire:
        assert fetch(f"{wire.url}/", TEXT, reach(wire)).body == b"hello"


@pytest.mark.parametrize("letter", [b'"', b";", b"\\", b" ", b'\\";'])
def test_the_longest_head_is_read_in_little_time(letter: bytes) -> None:
    head = b'HTTP/1.1 200 OK\r\nContent-Type: multipart/x; a="' + letter * (32_000 // len(letter)) + b"\r\n\r\n"
    started = time.monotonic()
    with serving(always(head)) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "unsupported_type"
    assert time.monotonic() - started < 5  # 0.7 s where nothing else is done


def test_a_connection_that_is_reset_is_said_so() -> None:
    def answer(_: Seen) -> Iterable[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        raise ResetError

    with serving(answer) as wire:
        assert refusal(f"{wire.url}/", reach(wire)) == "network"


def test_nobody_there_is_said_so() -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        wire = Wire(taken.getsockname()[1])
        assert refusal(f"{wire.url}/", reach(wire)) == "network"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
        chunked_head(content_type="text/plain"),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
    ],
    ids=["head", "body", "chunk", "continue"],
)
def test_a_drip_does_not_outlive_the_deadline(head: bytes) -> None:
    over = threading.Event()

    def drips(_: Seen) -> Iterator[bytes]:
        yield head
        while not over.wait(0.02):
            yield b"1"

    started = time.monotonic()
    with serving(drips) as wire:
        wanted = Wanted(accept=("text/*",), deadline_seconds=0.3)
        assert refusal(f"{wire.url}/", reach(wire), wanted) == "timeout"
        seconds = time.monotonic() - started
        over.set()
    assert 0.3 <= seconds < 2


def test_redirects_share_one_deadline() -> None:
    pause = threading.Event()

    def slow(_: Seen) -> Iterator[bytes]:
        pause.wait(0.15)
        yield redirect("/again")

    with serving(slow) as wire:
        wanted = Wanted(accept=("text/*",), deadline_seconds=0.3)
        assert refusal(f"{wire.url}/", reach(wire), wanted) == "timeout"
        pause.set()


# -- TLS --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for pub.test, trusted by nobody, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, which makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=pub.test"]
    command += ["-addext", "subjectAltName=DNS:pub.test"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[Wire]:
    """A server with TLS that takes connections one after the other; `seen` is left empty."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(plain, server_side=True) as connection:
                        connection.recv(65536)
                        connection.sendall(HELLO)
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Wire(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_the_certificate_must_be_trusted(secure: Wire) -> None:
    assert refusal(f"https://pub.test:{secure.port}/", reach(secure, "pub.test")) == "network"


def test_the_certificate_is_held_against_the_name_though_an_address_is_connected_to(
    secure: Wire, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    to = reach(secure, "pub.test", "other.test")
    assert fetch(f"https://pub.test:{secure.port}/", TEXT, to).body == b"hello"
    with pytest.raises(FetchError, match=r"certificate of other\.test cannot be trusted"):
        fetch(f"https://other.test:{secure.port}/", TEXT, to)


def test_a_server_that_speaks_no_tls_is_said_so() -> None:
    with serving(always(HELLO)) as wire:
        assert refusal(f"https://127.0.0.1:{wire.port}/", reach(wire)) == "network"


def test_a_handshake_that_hangs_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        wire = Wire(silent.getsockname()[1])
        wanted = Wanted(accept=("text/*",), deadline_seconds=0.2)
        assert refusal(f"{wire.url.replace('http', 'https')}/", reach(wire), wanted) == "timeout"


def test_json_is_taken_as_it_is() -> None:
    with serving(always(http_reply(json.dumps({"a": 1})))) as wire:
        assert json.loads(fetch(f"{wire.url}/", TEXT, reach(wire)).body) == {"a": 1}
