"""What a disk can do to us, said in one line each: who may mend it, and how."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import StoreError, UsageError

RESERVE_BYTES = 1024 * 1024  # kept back for the last records of runs on a disk that has filled up
_RESERVE = ".reserve"
_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_disk_full(error: OSError | sqlite3.Error) -> bool:
    """True where freeing space would help."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def make_folder(folder: Path) -> None:
    """Make a folder where there is none.

    Raises:
        UsageError: a file stands in its place.
        StoreError: it cannot be made.
    """
    if folder.is_dir():
        return
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def make_reserve(folder: Path) -> None:
    """Keep some space back for the last records of runs.

    Raises:
        OSError: there is not even that much; nothing is left behind then.
    """
    path = folder / _RESERVE
    if path.exists() and path.stat().st_size == RESERVE_BYTES:
        return
    try:
        path.write_bytes(os.urandom(RESERVE_BYTES))  # random: a file system that compresses would keep no space
    except OSError:
        path.unlink(missing_ok=True)
        raise


def free_reserve(folder: Path) -> None:
    """Give the space back to whoever has to write its last words now."""
    (folder / _RESERVE).unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the system or SQLite raises about `path` into one line that says what to do.

    Raises:
        UsageError: a file stands where a folder has to be.
        StoreError: anything else that keeps us from writing.
    """
    try:
        yield
    except (FileExistsError, NotADirectoryError):
        raise UsageError(
            f"{path}: a file stands where a folder has to be; move it away or name another folder"
        ) from None
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # a bug of ours, no fault of the disk
    except OSError as error:
        raise StoreError(_system_line(path, error)) from error
    except sqlite3.Error as error:
        raise StoreError(_sqlite_line(path, error)) from error


def _system_line(path: Path, error: OSError) -> str:
    if is_disk_full(error):
        return f"{path}: the disk is full ({error.strerror}); free some space and run again"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{path}: cannot be written ({error.strerror}); check its owner, or set TRACES_DIR to another folder"
    return f"{path}: cannot be written ({error.strerror or error}); check the disk, or set TRACES_DIR to another folder"


def _sqlite_line(path: Path, error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code; the rest only narrows it
    if code == sqlite3.SQLITE_FULL:
        return f"{path}: the disk is full; free some space and run again"
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return f"{path}: is damaged ({error}); move it away (only what killed batches had spent is lost) and run again"
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return f"{path}: another process has kept it locked; end that process and run again"
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return f"{path}: cannot be written ({error}); check its owner, or set TRACES_DIR to another folder"
    return f"{path}: the store failed ({error}); check the disk, or set TRACES_DIR to another folder"
