"""A folder of text files as a search engine: SQLite FTS5 in memory, ranked by bm25, the same order every time.

An index is built once a process for each state of a folder (paths, sizes, times) and shared by all its threads. It
holds no secret, so that no excerpt holds a part of one. The folder belongs to the person who wrote the suite, so what
is wrong with it is a UsageError; the query is the model's.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from agent.errors import UsageError
from agent.redaction import redacted

MAX_FILES = 2000
MAX_FILE_BYTES = 1_000_000
MAX_TOTAL_BYTES = 32_000_000
MAX_TERMS = 32
SNIPPET_TOKENS = 48  # about 300 characters of English
_SUFFIXES = (".txt", ".md")
_MAX_TITLE = 80
_MAX_INDEXES = 16

# Words that are in every text would make every document a hit.
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by did do does for from had has have how i in is it its of on or that the their this to "
        "was were what when where which who whose why will with",
    )
)

_Fingerprint = tuple[tuple[str, int, int], ...]
_Key = tuple[Path, tuple[str, ...]]  # a folder, and the secrets that its index was made without


@dataclass(frozen=True)
class Hit:
    """One document that matched, without control characters. `snippet` is the part of `body` that matches best."""

    title: str
    source: str
    snippet: str
    body: str = ""


class Corpus:
    """The index of one folder as it was when it was opened. Safe to use from several threads."""

    def __init__(self, folder: Path, names: list[str], secrets: tuple[str, ...] = ()):
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        try:
            self._connection.execute(
                "CREATE VIRTUAL TABLE docs USING fts5"
                "(title, body, source UNINDEXED, tokenize='porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"this Python's SQLite cannot search text ({error}): use a Python built with FTS5"
            ) from error
        documents = (_document(folder, name, secrets) for name in names)
        self._connection.executemany("INSERT INTO docs VALUES (?, ?, ?)", documents)

    def search(self, query: str, limit: int) -> list[Hit]:
        """The documents that hold any word of the query, best first; equal ranks in the order of their names."""
        terms = query_terms(query)
        if not terms:
            return []
        match = " OR ".join(f'"{term}"' for term in terms)  # quoted words are never FTS5 syntax
        with self._lock:
            rows = self._connection.execute(
                "SELECT title, source, snippet(docs, 1, '', '', '\u2026', ?), body FROM docs WHERE docs MATCH ?"
                " ORDER BY bm25(docs, 4.0, 1.0), source LIMIT ?",
                (SNIPPET_TOKENS, match, limit),
            ).fetchall()
        return [Hit(*row) for row in rows]


def query_terms(query: str) -> list[str]:
    """The words of a query, each once and in order; function words only where there is nothing else."""
    words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))
    return ([word for word in words if word not in _FUNCTION_WORDS] or words)[:MAX_TERMS]


def clean(text: str) -> str:
    """The text on one line, without control, direction or other unprintable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


_indexes: dict[_Key, tuple[_Fingerprint, Corpus]] = {}
_indexes_lock = threading.Lock()


def open_corpus(folder: Path, secrets: tuple[str, ...] = ()) -> Corpus:
    """The index of the .txt and .md files in the folder and below, without the secrets in them; links that lead out of
    it are not followed.

    Raises:
        UsageError: no such folder, nothing in it, too much in it, or a file that is not UTF-8 text.
    """
    root = folder.resolve()
    key = root, secrets
    with _indexes_lock:
        fingerprint = _fingerprint(root)
        known = _indexes.get(key)
        if known and known[0] == fingerprint:
            return known[1]
        corpus = Corpus(root, [name for name, _, _ in fingerprint], secrets)
        _indexes.pop(key, None)
        _indexes[key] = (fingerprint, corpus)
        while len(_indexes) > _MAX_INDEXES:
            del _indexes[next(iter(_indexes))]
        return corpus


def _fingerprint(root: Path) -> _Fingerprint:
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder: a corpus is a folder of .txt or .md files")
    found: list[tuple[str, int, int]] = []
    for parent, _, names in os.walk(root):
        for name in names:
            path = Path(parent, name)
            if not name.lower().endswith(_SUFFIXES) or not path.resolve().is_relative_to(root) or not path.is_file():
                continue
            stat = path.stat()
            if stat.st_size > MAX_FILE_BYTES:
                raise UsageError(f"{path}: larger than {MAX_FILE_BYTES:,} bytes: split it")
            found.append((path.relative_to(root).as_posix(), stat.st_size, stat.st_mtime_ns))
            if len(found) > MAX_FILES or sum(size for _, size, _ in found) > MAX_TOTAL_BYTES:
                raise UsageError(
                    f"{root}: more than {MAX_FILES:,} files or {MAX_TOTAL_BYTES:,} bytes: use a smaller corpus"
                )
    if not found:
        raise UsageError(f"{root}: no .txt or .md file in it: a corpus is a folder of text files")
    return tuple(sorted(found))


def _document(folder: Path, name: str, secrets: tuple[str, ...]) -> tuple[str, str, str]:
    path = folder / name
    try:
        text = path.read_bytes()[: MAX_FILE_BYTES + 1].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8 text") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    first, _, rest = redacted(text, secrets).strip().partition("\n")
    heading = clean(first.lstrip("# "))
    if not 0 < len(heading) <= _MAX_TITLE:
        return clean(path.stem), clean(text), clean(name)
    return heading, clean(rest) or heading, clean(name)
