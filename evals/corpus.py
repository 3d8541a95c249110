"""A case's search corpus: a folder of text files below its suite, the same for every run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agent.errors import UsageError
from agent.tools.corpus import open_corpus

MAX_NAME = 500


def find_corpus(name: str, folder: Path) -> Path:
    """The folder that a suite in `folder` calls `name`, once it is known that it can be searched.

    Raises:
        ValueError: it is not there, not below the suite, or holds what cannot be searched.
    """
    if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError("must be a folder below the suite file, without '..' and not from '/'")
    if len(name) > MAX_NAME:
        raise ValueError(f"may have at most {MAX_NAME} characters")
    base = folder.resolve()
    try:
        corpus = (base / name).resolve()
        is_folder = corpus.is_dir()
    except (OSError, RuntimeError) as error:  # a part too long for the disk; a link that leads to itself
        why = error.strerror if isinstance(error, OSError) else "its links go round in a circle"
        raise ValueError(f"cannot be looked for ({why})") from None
    if not corpus.is_relative_to(base) or corpus == base:
        raise ValueError("must be a folder below the suite file")
    if not is_folder:
        raise ValueError(f"there is no folder {corpus}")
    # A link could show a model any file of the machine; its target is also no part of the suite.
    for path in _walk(corpus):
        if path.is_symlink():
            raise ValueError(f"holds a link, {path.relative_to(corpus)}; copy the file instead")
    try:
        open_corpus(corpus)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return corpus


def corpus_files(corpus: Path) -> list[tuple[str, bytes]]:
    """Every file by its name below the corpus, in the names' order.

    Raises:
        UsageError: one of them cannot be read.
    """
    try:
        return sorted((path.relative_to(corpus).as_posix(), path.read_bytes()) for path in _walk(corpus))
    except OSError as error:
        raise UsageError(f"the corpus {corpus} cannot be read: {error.strerror}") from None


def _walk(corpus: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(corpus):
        yield from (
            path for name in (*folders, *names) if not (path := Path(place, name)).is_dir() or path.is_symlink()
        )
