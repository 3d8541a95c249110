"""A run's workspace: a fresh folder with the case's files in it, and what stands in it before and after the run.

The folder is gone when the run has ended; what asserts look at is its record in the trace.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from agent.errors import StoreError
from agent.state import WorkspaceFile

MAX_FILES = 200  # that a record lists
MAX_TEXT_BYTES = 32 * 1024  # of one file whose text is kept
MAX_TEXTS_BYTES = 256 * 1024  # of all texts together
MAX_READ_BYTES = 16 * 1024 * 1024
MAX_NAME = 200


def checked_name(name: str) -> str:
    """A fixture's path, relative to the workspace.

    Raises:
        ValueError: it would lead out of the workspace, or is no plain path; the message says what it must be.
    """
    parts = PurePosixPath(name).parts
    if not name or len(name) > MAX_NAME or "\0" in name or "\\" in name or not name.isprintable():
        raise ValueError(f"a file's name must be 1 to {MAX_NAME} printable characters, without a backslash")
    if name.startswith("/") or ".." in parts or str(PurePosixPath(name)) != name or not parts:
        raise ValueError("a file's name must be a plain path below the workspace (notes/today.txt), without '..'")
    return name


@contextmanager
def fresh_workspace(files: Mapping[str, str]) -> Iterator[Path]:
    """A new folder that holds these texts, by path; removed with all that is in it at the end.

    Raises:
        StoreError: the disk does not take it.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="shoestring-workspace-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StoreError(f"no workspace could be made ({error.strerror}); free some disk space") from None
    with folder as name:
        root = Path(name).resolve()
        try:
            for path, text in files.items():
                target = root / checked_name(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text.encode("utf-8"))
        except OSError as error:
            raise StoreError(f"the workspace could not be filled ({error.strerror}); free some disk space") from None
        yield root


def listed(root: Path) -> list[WorkspaceFile]:
    """The ordinary files below `root` by path; links are not followed, and what is no file is left out."""
    found: list[WorkspaceFile] = []
    room = MAX_TEXTS_BYTES
    for path in sorted(_paths(root))[:MAX_FILES]:
        data = _read(root / path)
        if data is None:
            continue
        text = _text(data) if len(data) <= min(MAX_TEXT_BYTES, room) else None
        room -= len(data) if text is not None else 0
        found.append(WorkspaceFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), text=text))
    return found


def _paths(root: Path) -> Iterator[str]:
    for place, _, names in os.walk(root):
        yield from (Path(place, name).relative_to(root).as_posix() for name in names)


def _read(path: Path) -> bytes | None:
    """The file's bytes; None for what is no ordinary file, is gone, or is too large to be a result."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        return file.read() if stat.S_ISREG(about.st_mode) and about.st_size <= MAX_READ_BYTES else None


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
