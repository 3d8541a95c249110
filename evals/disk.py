"""What a disk can do to us, said in one line each: who may mend it, and how."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.errors import StoreError, UsageError

RESERVE_BYTES = 1024 * 1024  # kept back for the last records of runs on a disk that has filled up
LEAST_BYTES = 128 * 1024  # SQLite's shared index grows by 32 KiB at a time, a transaction by some pages
_RESERVE = ".reserve"
_FULL = {errno.ENOSPC, errno.EDQUOT}


def is_disk_full(error: OSError | sqlite3.Error, folder: Path) -> bool:
    """True where freeing space in `folder` would help.

    SQLite says so itself only of its main file; what it cannot write beside that is an I/O error like any other.
    """
    if isinstance(error, OSError):
        return error.errno in _FULL
    code = _primary_code(error)
    if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
        return folder.is_dir() and shutil.disk_usage(folder).free < LEAST_BYTES
    return code == sqlite3.SQLITE_FULL


def _primary_code(error: sqlite3.Error) -> int:
    """The kind of error; the bits above only narrow it. 0 where SQLite itself did not raise it."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


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


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock that was needed."""
    return _primary_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _full_line(path: Path) -> str:
    return f"{path}: the disk is full; free some space and run again"


def _system_line(path: Path, error: OSError) -> str:
    if is_disk_full(error, path.parent):
        return _full_line(path)
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{path}: cannot be written ({error.strerror}); check its owner, or set TRACES_DIR to another folder"
    return f"{path}: cannot be written ({error.strerror or error}); check the disk, or set TRACES_DIR to another folder"


def _sqlite_line(path: Path, error: sqlite3.Error) -> str:
    code = _primary_code(error)
    if is_disk_full(error, path.parent):
        return _full_line(path)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return f"{path}: is damaged ({error}); move it away (only what killed batches had spent is lost) and run again"
    if is_busy(error):
        return f"{path}: another process has kept it locked; end that process and run again"
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return f"{path}: cannot be written ({error}); check its owner, or set TRACES_DIR to another folder"
    return f"{path}: the store failed ({error}); check the disk, or set TRACES_DIR to another folder"
