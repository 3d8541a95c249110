"""One suite batch at a time on a traces folder, and the older traces moved out of its way."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import UsageError
from evals.disk import disk_errors
from evals.traces import slug, sync_folder, trace_paths
from evals.workspaces import KEPT

LOCK_NAME = ".batch.lock"
HISTORY = "history"
STALE_SECONDS = 3600.0  # a temporary file this old belongs to no run that is still writing


class BatchLock:
    """An exclusive hold on a traces folder, gone with the process that has it, however that ends.

    The file stays where it is: only the lock on it means anything. Single tasks do not take it.
    """

    def __init__(self, folder: Path, batch_id: str) -> None:
        """Take the lock.

        Raises:
            UsageError: another batch has it; the message names its process.
            StoreError: the lock file cannot be written.
        """
        self.batch_id = batch_id
        path = folder / LOCK_NAME
        with disk_errors(path):
            self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._handle, 0)
                os.pwrite(self._handle, f"{os.getpid()}\n".encode("ascii"), 0)
            except BlockingIOError:
                holder = _holder(self._handle)
                self.release()
                raise UsageError(
                    f"{folder}: another suite batch is running on it (process {holder}); wait for it or end it,"
                    " or set TRACES_DIR to another folder"
                ) from None
            except BaseException:
                self.release()
                raise

    def release(self) -> None:
        """Let the next batch in. Harmless when called twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _holder(handle: int) -> str:
    text = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return text if text.isdigit() else "unknown"


def archive(folder: Path, batch_id: str | None) -> None:
    """Move the traces of a folder to `history/`, under the batch that left them or, where unknown, the time; and with
    them the workspaces that were kept of their runs.

    A name that is taken there is never overwritten. Call it with the batch lock held.
    """
    older = trace_paths(folder)
    if not older:
        return
    name = slug(batch_id) if batch_id else datetime.now(UTC).strftime("until-%Y%m%dt%H%M%Sz")
    target = folder / HISTORY / name
    target.mkdir(parents=True, exist_ok=True)
    for path in (*older, *(kept for kept in [folder / KEPT] if kept.is_dir())):
        path.rename(_free_name(target / path.name))
    sync_folder(target)
    sync_folder(folder)


def _free_name(path: Path) -> Path:
    free, number = path, 2
    while free.exists():
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return free


def remove_stale_temporaries(folder: Path) -> None:
    """Remove what killed processes were writing. Young files are left: a single task may be writing one now."""
    for path in folder.glob(".*.tmp"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()
