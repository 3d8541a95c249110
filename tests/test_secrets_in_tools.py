"""No part of a secret leaves by a tool: not in what it sends, and not in what it shows of a text that it cuts."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.sandbox.base import SandboxError
from agent.sandbox.ladder import Isolation
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext, WebAccess
from agent.tools.registry import ToolRegistry, toolset
from agent.tools.workspace import MAX_FILE_BYTES
from tests import support_pdf
from tests.support_secrets import KEY_LINES, PEM, TOKEN, seen_of
from tests.support_web import reach
from tests.support_wire import always, http_reply, serving

SECRETS = (TOKEN, PEM)
needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


@pytest.fixture(scope="module")
def sandbox() -> None:
    """For tools that run or parse something isolated."""
    try:
        Isolation().sandbox()
    except SandboxError as error:
        pytest.skip(str(error))


isolated = pytest.mark.usefixtures("sandbox")


class Desk:
    """All tools of a workspace, in a run with secrets."""

    def __init__(self, root: Path, **lent: Any) -> None:
        self.root = root
        tools = toolset("fs,core,web,code,pdf")
        self.tools = ToolRegistry(tools, ToolContext(workspace=root, secrets=SECRETS, **lent))

    def put(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def run(self, name: str, **arguments: Any) -> ToolResult:
        return self.tools.execute(ToolCall(name=name, arguments=arguments))

    def shown(self, name: str, **arguments: Any) -> str:
        """What a call that succeeds shows; no part of a secret may be in it."""
        result = self.run(name, **arguments)
        assert result.success, result.error
        return whole(result.data)


def whole(text: str | None) -> str:
    """The text, in which no part of a secret may be."""
    assert text is not None
    assert {piece for secret in SECRETS for piece in seen_of(secret, text)} == set()
    return text


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    desk.put("notes.txt", f"hello\nAPI={TOKEN}\nend\n{PEM}bye\n")
    yield desk
    desk.tools.close()


# -- the workspace ----------------------------------------------------------------------------------------------------


def test_lines_that_are_found_or_read_hold_no_part_of_a_secret(desk: Desk) -> None:
    assert desk.shown("search", query="API=") == "1 match:\nnotes.txt:2: API=[redacted]"
    assert desk.shown("search", query="bye") == f"1 match:\nnotes.txt:{4 + PEM.count(chr(10))}: bye"
    assert desk.shown("search", query=TOKEN[:20]) == "no match"  # nor can it be guessed at, piece by piece
    for number in range(1, 12):
        chunk = desk.shown("read_file_chunk", path="notes.txt", start_line=number, end_line=number)
        assert chunk.startswith(f"[notes.txt: lines {number} to {number} of {4 + PEM.count(chr(10))} lines]\n")
        assert chunk.count("\n") == 1
    inside = desk.shown("read_file_chunk", path="notes.txt", start_line=5, end_line=6)
    assert inside.endswith("\n[redacted]\n[redacted]")


def test_short_lines_of_a_secret_that_is_whole_in_its_file_are_not_shown_alone(tmp_path: Path) -> None:
    secret = "first piece\nsecond piece\nthird piece"
    (tmp_path / "notes.txt").write_text(f"a\n{secret}\nb\n")
    tools = ToolRegistry(toolset("fs"), ToolContext(workspace=tmp_path, secrets=(secret,)))
    call = ToolCall(name="read_file_chunk", arguments={"path": "notes.txt", "start_line": 3, "end_line": 5})
    assert tools.execute(call).data == "[notes.txt: lines 3 to 5 of 5 lines]\n[redacted]\n[redacted]\nb"
    assert tools.execute(ToolCall(name="search", arguments={"query": "piece"})).data == "no match"


@pytest.mark.parametrize("secret", SECRETS, ids=["token", "key"])
def test_what_stands_where_a_long_file_is_cut_is_not_shown_in_part(desk: Desk, secret: str) -> None:
    for kept in (13, 100, 200):
        desk.put("big.txt", "needle\n" + "x" * (MAX_FILE_BYTES - kept - 8) + f"\n{secret}\n" + "y\n" * 5000)
        desk.shown("read_file", path="big.txt")
        found = desk.shown("search", query=secret[:12], path="big.txt")
        assert found.startswith("no match")
    desk.put("big.txt", "x" * 7890 + f"\n{secret}\n" + "y\n" * 2000)
    desk.shown("read_file", path="big.txt")


def test_some_lines_of_a_long_file_are_read_without_the_secrets_around(desk: Desk) -> None:
    filler = "".join(f"line {number}\n" for number in range(20_000))
    desk.put("long.txt", filler + PEM + filler)
    assert desk.shown("read_file_chunk", path="long.txt", start_line=20_002, end_line=20_003).endswith(
        "\n[redacted]\n[redacted]"
    )
    last = desk.shown("read_file_chunk", path="long.txt", start_line=20_000, end_line=20_001)
    assert last.endswith("\nline 19999\n[redacted]")


@needs_ripgrep
@isolated
def test_source_code_is_shown_without_parts_of_secrets(desk: Desk) -> None:
    desk.put("wide.py", f"{'x' * 100} = '{TOKEN}'; needle = 1\n{'y' * 200}needle{'z' * 100}{TOKEN}\n")
    desk.put("key.json", json.dumps({"needle": PEM}))
    assert "notes.txt:2: API=[redacted]" in desk.shown("search_codebase", pattern="API")
    assert desk.shown("search_codebase", pattern="needle").count("needle") == 1
    for line in KEY_LINES:
        assert line[:12] not in desk.shown("search_codebase", pattern=line[:8])


@isolated
def test_the_parts_of_a_document_hold_no_part_of_a_secret(desk: Desk) -> None:
    filler = "The garden was quiet that day. " * 12
    lines = " ".join(TOKEN[at : at + 70] for at in range(0, len(TOKEN), 70))
    pages = (filler + f"token {TOKEN} " + filler, f"token {lines} and " + filler + KEY_LINES[0], f"{KEY_LINES[1]} end")
    (desk.root / "a.pdf").write_bytes(support_pdf.of_texts(*pages, f"a token that goes on {TOKEN[:70]}", TOKEN[70:]))
    for query in ("token", "garden", "and", "end", "goes", TOKEN[:20], ""):
        whole(desk.run("query_pdf", path="a.pdf", query=query).data or "")
    assert "[redacted]" in desk.shown("query_pdf", path="a.pdf", query="token")


@isolated
def test_the_end_of_a_programs_output_holds_no_end_of_a_secret(desk: Desk) -> None:
    for after in (1450, 1400, 1200):
        code = f"print({TOKEN!r} + 'x' * {after}); raise SystemExit(3)"
        result = desk.run("execute_code", code=code)
        assert result.error_type == "code_failed"
        assert whole(result.error).startswith("The code failed (exit code 3). Its output ended with:\n")


# -- the web ----------------------------------------------------------------------------------------------------------


@isolated
@pytest.mark.parametrize("tool", ["fetch_url", "fetch_url_markdown"])
@pytest.mark.parametrize("secret", SECRETS, ids=["token", "key"])
def test_pages_are_cut_without_leaving_a_part_of_a_secret(tmp_path: Path, tool: str, secret: str) -> None:
    if tool == "fetch_url_markdown":
        pytest.importorskip("trafilatura", reason="the extra web is not installed")
    for before in (2700, 3600, 7800):
        text = "word " * (before // 5) + secret + " and more" * 2000
        page = (
            f"<html><head><title>{'t' * 190}{secret}</title></head><body><article><p>{text}</p></article></body></html>"
        )
        for reply in (http_reply(text, content_type="text/plain"), http_reply(page, content_type="text/html")):
            with serving(always(reply)) as wire:
                lent = WebAccess(reach=reach(wire, "pub.test"))
                Desk(tmp_path, web=lent).shown(tool, url=f"http://pub.test:{wire.port}/")


def test_search_results_are_shortened_without_leaving_a_part_of_a_secret(tmp_path: Path) -> None:
    row = {
        "title": f"{'t' * 60} {TOKEN}",
        "url": f"http://a.test/{'u' * 60}?k={TOKEN}",
        "content": f"{'c' * 280} {TOKEN}",
    }
    with serving(always(http_reply(json.dumps({"results": [row, row]})))) as wire:
        shown = Desk(tmp_path, web=WebAccess(searxng_url=wire.url), search_provider="searxng").shown(
            "web_search", query="anything"
        )
    assert shown.count("[redacted]") == 6


def test_excerpts_of_a_corpus_hold_no_part_of_a_secret(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    dotted = ".".join(TOKEN[at : at + 5] for at in range(0, len(TOKEN), 5))  # many words to the index
    for number in range(4):
        (folder / f"{number}.md").write_text(f"# Kites\n{'word ' * 300} wingspan {dotted} and {'more ' * 300}\n")
    tools = ToolRegistry(toolset("core"), ToolContext(corpus=folder, search_provider="corpus", secrets=(dotted,)))
    result = tools.execute(ToolCall(name="web_search", arguments={"query": "wingspan"}))
    assert result.data.count("wingspan [redacted]") == 4
    assert dotted[:12] not in result.data


def test_words_of_the_weather_are_shortened_without_leaving_a_part_of_a_secret(tmp_path: Path) -> None:
    now = {"temp_C": "7", "temp_F": "45", "humidity": "81", "windspeedKmph": "11", "winddir16Point": "W"}
    told = {"current_condition": [{**now, "weatherDesc": [{"value": f"{'s' * 30} {TOKEN}"}]}]}
    with serving(always(http_reply(json.dumps(told)))) as wire:
        shown = Desk(tmp_path, web=WebAccess(weather_url=wire.url)).shown("get_weather", location="Oslo")
    assert f"{'s' * 30} [redacted]" in shown


# -- what leaves ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        PEM,
        PEM.replace("\n", "\r\n"),
        " ".join(PEM.split()),
        "\n".join(KEY_LINES),
        KEY_LINES[1],
        json.dumps({"a": json.dumps({"b": PEM})}),
        repr(PEM),
        base64.encodebytes(PEM.encode()).decode(),
        PEM.swapcase(),
        PEM.strip().encode().hex("\n", 20),
    ],
    ids=["plain", "crlf", "one line", "body", "line", "json", "repr", "base64", "other case", "hex"],
)
def test_a_key_is_not_sent_however_its_lines_are_broken(desk: Desk, words: str) -> None:
    for name, arguments in (
        ("web_search", {"query": words[:400]}),
        ("fetch_url", {"url": f"http://a.test/?q={words}"}),
    ):
        refused = desk.run(name, **arguments)
        assert refused.error_type == "secret_in_request", refused.error
        whole(refused.error)
