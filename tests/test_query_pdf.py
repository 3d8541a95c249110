"""query_pdf: the right parts of a document by their pages, and hostile documents that end in a typed error in time."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader, PdfWriter

from agent.sandbox.base import SandboxError
from agent.sandbox.ladder import Isolation
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.query_pdf import CHUNK_CHARS, MAX_PDF_BYTES, QueryPdf
from agent.tools.registry import ToolRegistry, toolset
from tests import support_pdf as pdf


@pytest.fixture(autouse=True, scope="module")
def _isolated() -> None:
    try:
        Isolation().sandbox()
    except SandboxError as error:
        pytest.skip(str(error))


FILLER = "The garden was quiet and nothing of any note took place that day. " * 12
WHALE = "The blue whale weighs up to 199 tonnes and is the largest animal known."
HARBOUR = "The harbour closes at nine in the evening, except on Sundays."


class Shelf:
    """A workspace with documents in it."""

    def __init__(self, folder: Path, tool: QueryPdf | None = None, **lent: Any):
        self.folder = folder
        self.tools = ToolRegistry([tool or QueryPdf()], ToolContext(workspace=folder, **lent))

    def put(self, name: str, data: bytes) -> str:
        (self.folder / name).write_bytes(data)
        return name

    def ask(self, path: str, query: str | None = None) -> ToolResult:
        arguments = {"path": path} if query is None else {"path": path, "query": query}
        return self.tools.execute(ToolCall(name="query_pdf", arguments=arguments))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_the_toolset_offers_it_and_says_what_it_does() -> None:
    (tool,) = toolset("pdf")
    assert (tool.name, tool.effect) == ("query_pdf", "read")


def test_the_part_that_answers_comes_first_with_its_page_and_how_it_was_found(shelf: Shelf) -> None:
    name = shelf.put("animals.pdf", pdf.of_texts(FILLER, FILLER + HARBOUR, WHALE))
    result = shelf.ask(name, "how much does a blue whale weigh?")
    assert result.success, result.error
    first, *parts = result.data.split("\n\n")
    assert first == "animals.pdf: 3 pages; the parts that fit best by keyword:"
    assert parts == [f"[page 3] {WHALE}"]


def test_at_most_three_parts_of_500_characters_cut_between_words(shelf: Shelf) -> None:
    text = " ".join(f"word{number} garden" for number in range(400))
    parts = shelf.ask(shelf.put("long.pdf", pdf.of_texts(text, text)), "garden").data.split("\n\n")[1:]
    assert len(parts) == 3
    for part in parts:
        shown = part.removeprefix("[page 1] ").removeprefix("[page 2] ")
        assert len(shown) <= CHUNK_CHARS
        assert set(shown.split()) <= set(text.split())


def test_without_a_query_the_document_is_shown_from_its_beginning(shelf: Shelf) -> None:
    result = shelf.ask(shelf.put("harbour.pdf", pdf.of_texts(HARBOUR, WHALE)))
    assert result.data == f"harbour.pdf: 2 pages; its beginning:\n\n[page 1] {HARBOUR}\n\n[page 2] {WHALE}"


def test_a_run_that_lends_an_embed_is_answered_by_meaning(tmp_path: Path) -> None:
    def counts(texts: Sequence[str]) -> list[list[float]]:  # "mammal" and "whale" mean the same to it
        meanings = (("mammal", "whale"), ("port", "harbour"))
        return [[float(sum(text.lower().count(word) for word in words)) for words in meanings] for text in texts]

    shelf = Shelf(tmp_path, embed=counts)
    result = shelf.ask(shelf.put("a.pdf", pdf.of_texts(HARBOUR, WHALE)), "which mammal")
    assert "by meaning" in result.data
    assert result.data.index(WHALE) < result.data.index(HARBOUR)
    assert Shelf(tmp_path).ask("a.pdf", "which mammal").error_type == "empty"  # the twin: by words there is none


@pytest.mark.parametrize(("query", "error_type"), [("zebra", "empty"), ("?!", "bad_args")])
def test_a_query_that_finds_nothing_or_has_no_word_says_so(shelf: Shelf, query: str, error_type: str) -> None:
    assert shelf.ask(shelf.put("a.pdf", pdf.of_texts(WHALE)), query).error_type == error_type


def test_a_query_is_words_and_never_a_search_expression(shelf: Shelf) -> None:
    name = shelf.put("a.pdf", pdf.of_texts(WHALE, HARBOUR))
    assert WHALE in shelf.ask(name, 'whale" OR text MATCH "*) NEAR(').data


def encrypted(password: str) -> bytes:
    writer, out = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf.of_texts(WHALE)))), io.BytesIO()
    writer.encrypt(user_password=password, owner_password="owner", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def test_a_document_with_a_password_is_refused_and_one_that_anybody_may_open_is_read(shelf: Shelf) -> None:
    assert shelf.ask(shelf.put("locked.pdf", encrypted("secret")), "whale").error_type == "encrypted"
    assert WHALE in shelf.ask(shelf.put("open.pdf", encrypted("")), "whale").data


@pytest.mark.parametrize(
    ("data", "error_type"),
    [
        (pdf.of_contents([pdf.stream(b"0 0 m 9 9 l S")]), "no_text"),
        (pdf.unended_picture(), "no_text"),
        (pdf.cyclic(), "broken"),
        (b"", "broken"),
        (b"Only text, whatever its name says.", "broken"),
        (pdf.of_texts(WHALE)[:300], "broken"),
    ],
    ids=["a-scan", "picture-without-end", "cyclic-pages", "nothing", "text", "cut-off"],
)
def test_what_cannot_be_read_says_why(shelf: Shelf, data: bytes, error_type: str) -> None:
    result = shelf.ask(shelf.put("odd.pdf", data), "whale")
    assert result.error_type == error_type, result
    assert "odd.pdf" in (result.error or "")


def test_a_file_of_another_kind_is_no_broken_pdf(shelf: Shelf) -> None:
    assert shelf.ask(shelf.put("notes.txt", b"Only text."), "whale").error == (
        "notes.txt is not a PDF. Name a PDF; other files are read with read_file."
    )
    assert shelf.ask(shelf.put("cut.pdf", pdf.of_texts(WHALE)[:300]), "whale").error == (
        "cut.pdf is a PDF that cannot be read: it is broken."
    )
    assert shelf.ask(shelf.put("late.pdf", b"\n" * 900 + pdf.of_texts(WHALE)), "whale").success


def test_a_bomb_is_too_large_and_its_small_twin_is_read(shelf: Shelf) -> None:
    assert shelf.ask(shelf.put("bomb.pdf", pdf.flate_bomb()), "whale").error_type == "too_large"
    assert shelf.ask(shelf.put("spark.pdf", pdf.flate_bomb(1)), "whale").error_type == "no_text"


def test_work_without_end_is_stopped_in_time(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, QueryPdf(parse_seconds=2.0))
    started = time.monotonic()
    result = shelf.ask(shelf.put("loop.pdf", pdf.endless()), "whale")
    assert result.error_type == "timeout", result
    assert time.monotonic() - started < 10


def test_a_file_that_is_too_long_is_not_read_at_all(shelf: Shelf) -> None:
    with (shelf.folder / "long.pdf").open("wb") as file:
        file.truncate(MAX_PDF_BYTES + 1)
    assert shelf.ask("long.pdf", "whale").error_type == "too_large"


@pytest.mark.parametrize("path", ["../outside.pdf", "/etc/passwd", "link.pdf"])
def test_nothing_outside_of_the_workspace_is_opened(tmp_path: Path, path: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside.pdf").write_bytes(pdf.of_texts(WHALE))
    (tmp_path / "inside" / "link.pdf").symlink_to(tmp_path / "outside.pdf")
    assert Shelf(tmp_path / "inside").ask(path, "whale").error_type == "refused"


def test_text_without_blanks_is_cut_all_the_same(shelf: Shelf) -> None:
    result = shelf.ask(shelf.put("a.pdf", pdf.of_texts("x" * 1200)))
    assert [len(part.removeprefix("[page 1] ")) for part in result.data.split("\n\n")[1:]] == [500, 500, 200]
