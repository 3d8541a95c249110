"""One request on a real socket: the deadline covers everything, and nobody has to guess whether a request was sent."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import BackendError, NotSentError, UsageError
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import Call, Server, is_loopback
from tests.support_wire import (
    HOSTILE_FRAMES,
    Answer,
    ResetError,
    Seen,
    always,
    chunk,
    chunked_head,
    http_reply,
    serving,
)


def get(deadline_seconds: float = 5.0, *, streamed: bool = False, silence_seconds: float | None = None) -> Call:
    return Call("GET", "/api/tags", deadline_seconds, streamed=streamed, silence_seconds=silence_seconds)


def dripping(*first: bytes, piece: bytes = b"x") -> Answer:
    def answer(_: Seen) -> Iterator[bytes]:
        yield from first
        for _n in range(500):
            time.sleep(0.02)
            yield piece

    return answer


def silent(*first: bytes) -> Answer:
    def answer(_: Seen) -> Iterator[bytes]:
        yield from first
        time.sleep(0.3)

    return answer


def failing(answer: Answer, call: Call) -> BackendError:
    with serving(answer) as wire, pytest.raises(BackendError) as caught:
        Transport(wire.url).send(call)
    assert not isinstance(caught.value, NotSentError)
    return caught.value


def test_a_reply_comes_back_as_it_was_sent() -> None:
    with serving(always(http_reply('{"a": "é"}', status=418, content_type="text/odd"))) as wire:
        reply = Transport(wire.url).send(get())
    assert (reply.status, reply.content_type, reply.body) == (418, "text/odd", '{"a": "é"}')
    assert reply.endpoint == "/api/tags"
    assert 0 < reply.seconds < 5


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silent(), id="nothing"),
        pytest.param(dripping(), id="a status line that drips"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\n", piece=b"A: b\r\n"), id="headers without end"),
        pytest.param(silent(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), id="no body"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"), id="a body that drips"),
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\n\r\n"), id="a body without length that drips"),
        pytest.param(dripping(chunked_head(), piece=chunk(b"{}\n")), id="chunks that drip"),
        pytest.param(dripping(chunked_head(), b"fff0\r\n"), id="one chunk that drips"),
        pytest.param(dripping(chunked_head(), piece=b"0"), id="a chunk's size that drips"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_the_deadline_covers_every_stage(answer: Answer, streamed: bool) -> None:
    started = time.monotonic()
    with serving(answer) as wire, pytest.raises(BackendError) as caught:
        Transport(wire.url).send(get(0.15, streamed=streamed))
    # The server may take a moment longer to notice that nobody listens; the caller does not.
    assert time.monotonic() - started < 2.5
    assert (caught.value.error_type, caught.value.retry) == ("deadline", False)
    assert not isinstance(caught.value, NotSentError)


def test_the_caller_is_free_at_the_deadline() -> None:
    with serving(dripping(chunked_head(), piece=chunk(b"{}\n"))) as wire:
        started = time.monotonic()
        with pytest.raises(BackendError, match=r"no whole reply within 0\.1 s"):
            Transport(wire.url).send(get(0.1, streamed=True))
        assert 0.09 < time.monotonic() - started < 2.5  # the server goes on for ten


def test_silence_can_end_a_call_long_before_its_deadline() -> None:
    error = failing(silent(chunked_head(), chunk(b"{}\n")), get(60, streamed=True, silence_seconds=0.1))
    assert (error.error_type, str(error)[-20:]) == ("deadline", "said nothing for 0.1 s"[-20:])


def test_nothing_was_sent_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotSentError, match=r"127.0.0.1:\d+ cannot be reached \(Connection refused\)") as caught:
        Transport(f"http://127.0.0.1:{port}").send(get())
    assert (caught.value.error_type, caught.value.retry) == ("unreachable", False)


def test_nothing_was_sent_where_the_name_is_unknown() -> None:
    with pytest.raises(NotSentError, match="cannot be reached"):
        Transport("http://no-such-host.invalid:1").send(get())


def test_nothing_was_sent_where_tls_fails() -> None:
    with serving(always(b"I speak no TLS\r\n")) as wire, pytest.raises(NotSentError):
        Transport(wire.url.replace("http:", "https:")).send(get())


def test_a_handshake_without_end_is_over_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = time.monotonic()
        with pytest.raises(NotSentError, match=r"no connection within 0\.1 s|cannot be reached"):
            Transport(f"https://127.0.0.1:{listener.getsockname()[1]}").send(get(0.1))
    assert time.monotonic() - started < 2


def reset_after(*first: bytes) -> Answer:
    def answer(_: Seen) -> Iterator[bytes]:
        yield from first
        raise ResetError

    return answer


@pytest.mark.parametrize(
    ("answer", "error_type", "retry"),
    [
        pytest.param(always(), "server_error", True, id="hangs up"),
        pytest.param(reset_after(), "server_error", True, id="resets"),
        pytest.param(always(b"HTTP/1.1 2"), "bad_reply", False, id="hangs up in the status line"),
        pytest.param(always(b"SSH-2.0-OpenSSH_9\r\n"), "bad_reply", False, id="speaks something else"),
        pytest.param(always(b"\x00\xff\r\n\r\n"), "bad_reply", False, id="sends rubbish"),
        pytest.param(always(http_reply("{}")[:-1]), "stream_incomplete", True, id="hangs up inside the body"),
        pytest.param(
            always(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"), "stream_incomplete", True, id="counts too much"
        ),
        pytest.param(always(chunked_head(), b"ff\r\n{"), "stream_incomplete", True, id="hangs up inside a chunk"),
        pytest.param(always(chunked_head(), b"zz\r\n{"), "stream_incomplete", True, id="miscounts a chunk"),
        pytest.param(always(chunked_head(), chunk(b"{}")), "stream_incomplete", True, id="never ends its chunks"),
        pytest.param(
            always(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n{}"), "bad_reply", False, id="is no gzip"
        ),
    ],
)
def test_a_broken_reply_is_never_taken_for_an_unsent_request(answer: Answer, error_type: str, retry: bool) -> None:
    error = failing(answer, get())
    assert (error.error_type, error.retry) == (error_type, retry)


@pytest.mark.parametrize("answer", HOSTILE_FRAMES.values(), ids=HOSTILE_FRAMES)
def test_what_stands_around_a_reply_is_bounded_and_read_as_it_is_meant(answer: Answer) -> None:
    started = time.monotonic()
    assert failing(answer, get()).error_type in {"bad_reply", "stream_incomplete"}
    with serving(answer) as wire, contextlib.suppress(BackendError):
        # A stream that breaks off is judged by what it says up to there.
        assert len(Transport(wire.url).send(get(streamed=True)).body) < 10
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("cookie", [b"a=b; max-age", b"a=b; expires=" + b" " * 20_000, b"=;" * 10_000])
def test_cookies_are_not_read(cookie: bytes) -> None:
    with serving(always(b"HTTP/1.1 200 OK\r\nSet-Cookie: " + cookie + b"\r\nContent-Length: 2\r\n\r\n{}")) as wire:
        assert Transport(wire.url).send(get()).body == "{}"


@pytest.mark.parametrize(
    "end", [always(chunked_head(), chunk(b'{"a":1}\n')), reset_after(chunked_head(), chunk(b'{"a":1}\n'))]
)
def test_a_stream_that_breaks_off_is_judged_by_what_it_says(end: Answer) -> None:
    with serving(end) as wire:
        reply = Transport(wire.url).send(get(streamed=True))
    assert reply.body in ('{"a":1}\n', "")  # a reset may throw away what was not read yet


def test_a_packed_body_is_unpacked_though_none_was_asked_for() -> None:
    packed = gzip.compress(b'{"a":1}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    with serving(always(head, packed)) as wire:
        assert Transport(wire.url).send(get()).body == '{"a":1}'
        assert wire.seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_without_bounds_is_refused(packed: bool) -> None:
    def answer(_: Seen) -> Iterator[bytes]:
        if packed:
            data = gzip.compress(b"x" * (70 << 20), compresslevel=1)
            yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + data
            return
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        for _n in range(70):
            yield b"x" * (1 << 20)

    error = failing(answer, get(30))
    assert (error.error_type, "67,108,864 bytes" in str(error)) == ("bad_reply", True)


def test_lines_come_one_by_one_however_the_network_cuts_them() -> None:
    body = '{"a":"é"}\n\n{"b":2}\r\n{"c":3}'.encode()
    pieces = [chunk(body[n : n + 1]) for n in range(len(body))]
    lines: list[bytes] = []
    with serving(always(chunked_head(), *pieces, chunk(b""))) as wire:
        reply = Transport(wire.url).send(get(streamed=True), lines.append)
    assert lines == ['{"a":"é"}'.encode(), b"", b'{"b":2}\r', b'{"c":3}']
    assert reply.body.encode() == body


def test_a_line_is_told_while_the_reply_still_runs() -> None:
    told = threading.Event()

    def answer(_: Seen) -> Iterator[bytes]:
        yield chunked_head() + chunk(b'{"a":1}\n')
        assert told.wait(5)
        yield chunk(b'{"b":2}\n') + chunk(b"")

    with serving(answer) as wire:
        reply = Transport(wire.url).send(get(streamed=True), lambda _: told.set())
    assert reply.body == '{"a":1}\n{"b":2}\n'


def test_what_the_listener_raises_is_not_the_servers_fault() -> None:
    def broken_terminal(_: bytes) -> None:
        raise BrokenPipeError

    with serving(always(chunked_head(), chunk(b"{}\n"), chunk(b""))) as wire, pytest.raises(BrokenPipeError):
        Transport(wire.url).send(get(streamed=True), broken_terminal)


def test_closing_hangs_up_what_is_under_way() -> None:
    def answer(_: Seen) -> Iterator[bytes]:
        threading.Timer(0.05, transport.close).start()
        time.sleep(0.5)
        yield http_reply("{}")

    with serving(answer) as wire:
        transport = Transport(wire.url)
        with pytest.raises(BackendError, match="broken off from here"):
            transport.send(get())
        transport.close()


def test_redirections_are_not_followed() -> None:
    with serving(always(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")) as wire:
        assert Transport(wire.url).send(get()).status == 302
        assert len(wire.seen) == 1


def test_every_call_has_a_connection_of_its_own() -> None:
    with serving(always(http_reply("{}"))) as wire:
        transport = Transport(wire.url)
        for _ in range(3):
            transport.send(get())
        assert [seen.headers["connection"] for seen in wire.seen] == ["close"] * 3


def test_a_key_is_sent_and_never_shown() -> None:
    with serving(always(http_reply("{}"))) as wire:
        transport = Transport(wire.url, bearer="sk-hush")
        transport.send(get())
        assert wire.seen[0].headers["authorization"] == "Bearer sk-hush"
    assert "hush" not in repr(transport) + repr(vars(transport))


@pytest.mark.parametrize("key", ["sk hush", "hush\n", "hush\r\nX: y", "hüsh", "hush\x00"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="LLM_API_KEY") as caught:
        Transport("http://127.0.0.1:1", bearer=key)
    assert "hush" not in str(caught.value)


def test_nothing_is_taken_from_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login someone password hush\n", encoding="ascii")
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(always(http_reply("{}"))) as wire:
        monkeypatch.setenv("HTTP_PROXY", wire.url)
        Transport("http://models.example.test").send(get())
        assert "authorization" not in wire.seen[0].headers


def test_proxies_are_for_other_machines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(always(http_reply("direct"))) as server, serving(always(http_reply("proxied"))) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert Transport(server.url).send(get()).body == "direct"
        assert Transport(server.url.replace("127.0.0.1", "localhost")).send(get()).body == "direct"
        assert Transport("http://models.example.test:8080").send(get()).body == "proxied"
        assert proxy.seen[0].path == "http://models.example.test:8080/api/tags"


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost.example.com", False),
        ("host.docker.internal", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_what_cannot_be_anything_else(host: str, here: bool) -> None:
    assert is_loopback(host) == here
    shown = f"[{host}]" if ":" in host else host
    assert Server(f"http://{shown}:1").uses_proxies != here
