"""query_pdf: the parts of a PDF of the workspace that say most about a query.

The file is opened here, beneath the workspace; what is in it is read isolated. Parts are ranked by meaning where the
run has an embedding model and its budget allows the call, else by the words that they share with the query.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import BudgetExceededError
from agent.redaction import redacted
from agent.sandbox.base import Limits, SandboxError
from agent.sandbox.parsing import parsed
from agent.tools.base import INSTALL_EXTRAS, Embed, Params, Tool, ToolContext, ToolError
from agent.tools.corpus import clean, query_terms
from agent.tools.workspace import MAX_PATH_CHARS, faults_told, opened_file, place_of, read_bytes

MAX_PDF_BYTES = 20 << 20
MAX_PAGES = 5000
MAX_TEXT_CHARS = 2_000_000
CHUNK_CHARS = 500
MAX_CHUNKS_SHOWN = 3
# Of a longer document (some 25 pages) those parts are compared by meaning that share most words with the query, and, as
# far as there is room, those from its beginning: every text that is sent is paid for and stands in the trace.
MAX_EMBEDDED = 128
PARSE_SECONDS = 15.0
_MAGIC = b"%PDF-"
_BEGINNING_BYTES = 1024  # in which it has to stand: readers allow something before it
_JSON_BYTES_A_CHAR = 6  # a character as an escape

_PROBLEMS = {
    "encrypted": "is encrypted with a password, and cannot be read.",
    "too_large": "unpacks to more than is read here. Use a smaller document.",
    "broken": "is a PDF that cannot be read: it is broken.",
}


class PdfText(BaseModel):
    """What the parser answers: it comes out of the sandbox, and is believed no further than this form."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pages: list[str] = Field(default_factory=list, max_length=MAX_PAGES)
    count: int = Field(0, ge=0)
    problem: Literal["encrypted", "too_large", "broken"] | None = None


@dataclass(frozen=True)
class Chunk:
    """A part of a page, cut between words."""

    page: int
    text: str


class QueryPdfParams(Params):
    """What query_pdf takes."""

    path: str = Field(
        min_length=1, max_length=MAX_PATH_CHARS, description="The PDF, relative to the workspace, with its folders."
    )
    query: str = Field("", max_length=400, description="The words to look for; none for the beginning of the document.")


class QueryPdf(Tool[QueryPdfParams]):
    """A scanned document has no text: this says so, and reads no pictures."""

    name = "query_pdf"
    description = "Looks in one PDF and returns the parts that fit a query best, with their pages."
    effect = "read"
    timeout_seconds = PARSE_SECONDS  # of its parsing; a call for vectors has the time of a call to a model
    self_timed = True
    compares_by_meaning = True
    max_chars = 2000
    free_text = "query"
    keywords = ("pdf", "the document", "the paper", "the manual", "the report", "which page", "on what page")
    params = QueryPdfParams

    def __init__(self, parse_seconds: float = PARSE_SECONDS):
        self._limits = Limits(seconds=parse_seconds, output=MAX_TEXT_CHARS * _JSON_BYTES_A_CHAR + (1 << 20))
        self._vectors: dict[str, list[float]] = {}  # of this run's texts, so that none is paid for twice

    def run(self, params: QueryPdfParams, context: ToolContext) -> str:
        """At most three parts of 500 characters, the best first.

        Raises:
            ToolError: missing_extra; what keeps the file from being opened; too_large, encrypted, broken, no_text,
                bad_args (no word in the query) or empty; what keeps it from being parsed isolated.
            StoreError: the disk fails.
            BackendError, CancelledRunError: from the call for vectors.
        """
        if importlib.util.find_spec("pypdf") is None:
            raise ToolError("missing_extra", f"PDFs need one more package. Install it with: {INSTALL_EXTRAS}")
        if params.query.strip() and not query_terms(params.query):
            raise ToolError("bad_args", "The query holds no word to look for.")
        path, data = _bytes_of(params.path, context)
        if _MAGIC not in data[:_BEGINNING_BYTES]:
            raise ToolError("broken", f"{path} is not a PDF. Name a PDF; other files are read with read_file.")
        pdf = self._parsed(path, data, context)
        chunks = _chunks(_without_secrets(pdf.pages, context.secrets))
        if not chunks:
            raise ToolError("no_text", f"{path} holds no text: its pages are pictures, such as scans.")
        best, how = self._best(params.query, chunks, context.embed)
        if not best:
            raise ToolError("empty", f"No part of {path} holds a word of the query. Try other words.")
        read = f", of which the first {len(pdf.pages)} were read" if len(pdf.pages) < pdf.count else ""
        parts = [f"[page {chunk.page}] {chunk.text}" for chunk in best]
        return "\n\n".join([f"{path}: {pdf.count} pages{read}; {how}:", *parts])

    def _best(self, query: str, chunks: list[Chunk], embed: Embed | None) -> tuple[list[Chunk], str]:
        """The parts to show, best first, and in words what makes them the best."""
        if not query.strip():
            return chunks[:MAX_CHUNKS_SHOWN], "its beginning"
        if embed is None:
            return _by_keyword(query, chunks, MAX_CHUNKS_SHOWN), "the parts that fit best by keyword"
        try:
            return self._by_meaning(query, chunks, embed), "the parts that fit best by meaning"
        except BudgetExceededError:
            found = _by_keyword(query, chunks, MAX_CHUNKS_SHOWN)
            return found, "the parts that fit best by keyword (no call was left to compare them by meaning)"

    def _by_meaning(self, query: str, chunks: list[Chunk], embed: Embed) -> list[Chunk]:
        """The parts whose vectors point most nearly where the query's does."""
        compared = _compared(query, chunks)
        if new := [text for text in (query, *(chunk.text for chunk in compared)) if text not in self._vectors]:
            self._vectors |= zip(new, embed(new), strict=True)
        wanted = self._vectors[query]
        nearest = sorted(compared, key=lambda chunk: -_cosine(wanted, self._vectors[chunk.text]))
        return nearest[:MAX_CHUNKS_SHOWN]

    def close(self) -> None:
        """Forget the vectors."""
        self._vectors.clear()

    def _parsed(self, path: str, data: bytes, context: ToolContext) -> PdfText:
        request = {"max_pages": MAX_PAGES, "max_chars": MAX_TEXT_CHARS}
        try:
            sandbox = context.isolation.sandbox()
            pdf = PdfText.model_validate(
                parsed(sandbox, "agent.tools.parsers.pdf_text", request, data, limits=self._limits)
            )
        except SandboxError as error:
            raise ToolError(error.error_type, f"{path} was not read: {error}.") from None
        except ValidationError:
            raise ToolError("tool_crashed", f"{path} was not read: it is broken.") from None
        if pdf.problem is not None:
            raise ToolError(pdf.problem, f"{path} {_PROBLEMS[pdf.problem]}")
        return pdf


def _bytes_of(path: str, context: ToolContext) -> tuple[str, bytes]:
    """The file's path and bytes."""
    with place_of(context, path) as place, opened_file(place) as handle, faults_told(place.path):
        if os.fstat(handle).st_size > MAX_PDF_BYTES:
            raise ToolError("too_large", f"{place.path} has over {MAX_PDF_BYTES:,} bytes. Use a smaller document.")
        return place.path, read_bytes(handle, MAX_PDF_BYTES)


def _without_secrets(pages: list[str], secrets: tuple[str, ...]) -> list[str]:
    """Each page on one line, without the secrets that stand in it or go on over its end."""
    lines = "\n".join(page.replace("\n", " ") for page in pages)
    return redacted(lines, secrets, is_cut=True, keep_lines=True).split("\n")


def _chunks(pages: list[str]) -> list[Chunk]:
    """The pages' text in parts of at most 500 characters; no part spans two pages."""
    return [Chunk(number, text) for number, page in enumerate(pages, 1) for text in _parts(clean(page))]


def _parts(text: str) -> Iterator[str]:
    """The text cut at its last blank within each 500 characters; a longer word is cut, too."""
    start = 0
    while start < len(text):
        end = start + CHUNK_CHARS
        if end < len(text) and (blank := text.rfind(" ", start, end + 1)) > start:
            end = blank
        yield text[start:end]
        start = end + 1 if text[end : end + 1] == " " else end


def _by_keyword(query: str, chunks: list[Chunk], most: int) -> list[Chunk]:
    """The parts that hold any word of the query, by bm25; equal ranks in the order of the document."""
    match = " OR ".join(f'"{term}"' for term in query_terms(query))  # quoted words are never FTS5 syntax
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE chunks USING fts5(text, tokenize='porter unicode61')")
        rows = ((number, chunk.text) for number, chunk in enumerate(chunks))
        connection.executemany("INSERT INTO chunks (rowid, text) VALUES (?, ?)", rows)
        found = connection.execute(
            "SELECT rowid FROM chunks WHERE chunks MATCH ? ORDER BY bm25(chunks), rowid LIMIT ?", (match, most)
        )
        return [chunks[number] for (number,) in found]


def _compared(query: str, chunks: list[Chunk]) -> list[Chunk]:
    """The parts that are compared by meaning, each text once."""
    distinct = list({chunk.text: chunk for chunk in reversed(chunks)}.values())[::-1]
    if len(distinct) <= MAX_EMBEDDED:
        return distinct
    likely = dict.fromkeys(_by_keyword(query, distinct, MAX_EMBEDDED))
    return list(likely | dict.fromkeys(distinct))[:MAX_EMBEDDED]


def _cosine(one: list[float], other: list[float]) -> float:
    length = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / length if length else 0.0
