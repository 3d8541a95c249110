"""What survives a kill: the ledger of every run in SQLite, one batch at a time, and the traces beside them.

Reservations are written before a request is sent and settled after; what was never settled counts as spent in full.
A trace is written once, at the end of its run: its presence means that the run is complete.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent.errors import StoreError
from agent.state import AgentState, LedgerEntry
from evals.batch import BatchLock, archive, remove_stale_temporaries
from evals.disk import disk_errors, free_reserve, is_busy, is_disk_full, make_folder, make_reserve
from evals.traces import write_trace

STORE_NAME = ".store.sqlite3"
STORE_VERSION = 1
BUSY_SECONDS = 10.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    batch_id TEXT PRIMARY KEY, pid INTEGER NOT NULL, started_at TEXT NOT NULL, begun INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS runs (
    run_id TEXT PRIMARY KEY, batch_id TEXT, case_id TEXT, started_at TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'running', trace TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_of_batch ON runs (batch_id);
CREATE TABLE IF NOT EXISTS entries (
    run_id TEXT NOT NULL, place INTEGER NOT NULL, reserved INTEGER NOT NULL, settled INTEGER NOT NULL,
    settled_as TEXT NOT NULL, PRIMARY KEY (run_id, place)
) WITHOUT ROWID;
"""
# Replacing gives the row a new place at the end: the last one is the batch whose traces stand in the folder.
_BATCH = "INSERT OR REPLACE INTO batches (batch_id, pid, started_at) VALUES (?, ?, ?)"
_BEGUN = "UPDATE batches SET begun = 1 WHERE batch_id = ?"
_START = "INSERT INTO runs (run_id, batch_id, case_id, started_at) VALUES (?, ?, ?, ?)"
_RESERVE = "INSERT INTO entries VALUES (?, ?, ?, 0, 'open')"
_SETTLE = "UPDATE entries SET settled = ?, settled_as = ? WHERE run_id = ? AND place = ?"
_FINISH = "UPDATE runs SET status = ?, trace = ? WHERE run_id = ?"
_SPENT = """
SELECT count(*) FILTER (WHERE settled_as != 'refunded'),
       coalesce(sum(CASE settled_as WHEN 'open' THEN reserved ELSE settled END), 0)
FROM entries JOIN runs USING (run_id) WHERE batch_id = ?
"""
_SYNCED, _UNSYNCED = "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"

Statement = tuple[str, tuple[object, ...]]


class TraceStore:
    """The traces folder: a Journal for budgets, and the writer of traces. Safe to share between threads.

    Several processes may use one folder; only one of them may hold a batch. `secrets` stand in no trace.
    """

    def __init__(self, folder: Path, secrets: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._secrets = secrets
        self._store = folder / STORE_NAME
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._starting: dict[str, Statement] = {}  # run rows that go in with their first reservation
        self._traces: dict[str, str] = {}  # run id -> file name, between `write` and `run_finished`
        self._full = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database. Harmless when called twice."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    # -- batches ------------------------------------------------------------------------------------------------

    def begin_batch(self, batch_id: str) -> BatchLock:
        """Take the folder for a suite batch, and move the traces that stand in it to `history/`.

        Nothing is moved before the lock is held and the store has taken the batch down. Where the latest batch has
        this id, it goes on: its traces stay.

        Raises:
            UsageError: another batch holds the folder; its process id is named.
            StoreError: the folder or the store cannot be written.
        """
        make_folder(self.folder)
        lock = BatchLock(self.folder, batch_id)
        try:
            before = self._take_down(batch_id)
            with disk_errors(self.folder):
                remove_stale_temporaries(self.folder)
                if before != batch_id:
                    archive(self.folder, before)
            self._run((_BEGUN, (batch_id,)))
        except BaseException:
            lock.release()
            raise
        return lock

    def _take_down(self, batch_id: str) -> str | None:
        """Write the batch into the store; the id of the batch whose traces stand in the folder, if known."""
        with disk_errors(self.folder):
            make_reserve(self.folder)
        self._full = False
        last = self._rows("SELECT batch_id FROM batches WHERE begun ORDER BY rowid DESC LIMIT 1")
        self._run((_BATCH, (batch_id, os.getpid(), _now())))
        return str(last[0][0]) if last else None

    def spent(self, batch_id: str) -> tuple[int, int]:
        """Calls made and micro-dollars spent by a batch so far; what was reserved and never settled counts in full."""
        calls, microusd = self._rows(_SPENT, (batch_id,))[0]
        return calls, microusd

    # -- runs ---------------------------------------------------------------------------------------------------

    def run_started(self, run_id: str, batch_id: str | None = None, case_id: str | None = None) -> None:
        """Take a run down. It reaches the disk together with the run's first reservation."""
        with self._lock:
            self._starting[run_id] = (_START, (run_id, batch_id, case_id, _now()))

    def reserved(self, run_id: str, entry: LedgerEntry) -> None:
        """Write a reservation down, durably, before its request is sent.

        Raises:
            StoreError: it could not be written, or the disk was full before: nothing may be sent.
        """
        if self._full:
            raise StoreError(f"{self.folder}: the disk is full; free some space before another call is made")
        start = self._starting.get(run_id)
        reserve: Statement = (_RESERVE, (run_id, entry.index, entry.reserved_microusd))
        self._run(*([start, reserve] if start else [reserve]))
        self._starting.pop(run_id, None)

    def settled(self, run_id: str, entry: LedgerEntry) -> None:
        """Write down what became of a reservation.

        Raises:
            StoreError: it could not be written; the reservation counts as spent in full then.
        """
        values = (entry.settled_microusd, entry.settled_as, run_id, entry.index)
        # A power cut that takes this away leaves the reservation, which counts in full: too low for an overshoot only.
        synced = entry.settled_microusd > entry.reserved_microusd
        if self._run((_SETTLE, values), last_words=True, synced=synced) != 1:
            raise RuntimeError(f"entry {entry.index} of run {run_id} was settled without having been reserved")

    def write(self, state: AgentState) -> Path:
        """Write the trace of a finished run, whole or not at all. Writing a run again replaces its trace.

        Raises:
            StoreError: it could not be written.
        """
        make_folder(self.folder)
        with disk_errors(self.folder):
            try:
                path = write_trace(self.folder, state, self._secrets)
            except OSError as error:
                if not is_disk_full(error, self.folder):
                    raise
                self._full = True
                free_reserve(self.folder)
                path = write_trace(self.folder, state, self._secrets)
        with self._lock:
            self._traces[state.run_id] = path.name
        return path

    def run_finished(self, state: AgentState) -> None:
        """Mark a run as ended. Call it after `write`, so that a run marked so has its trace.

        Raises:
            StoreError: it could not be written.
        """
        finish: Statement = (_FINISH, (state.status, self._traces.get(state.run_id), state.run_id))
        start = self._starting.get(state.run_id)
        self._run(*([start, finish] if start else [finish]), last_words=True, synced=False)
        with self._lock:
            self._starting.pop(state.run_id, None)
            self._traces.pop(state.run_id, None)

    # -- the database -------------------------------------------------------------------------------------------

    def _run(self, *statements: Statement, last_words: bool = False, synced: bool = True) -> int:
        """Run statements as one transaction; the rows that the last one changed.

        `last_words` may use the space kept back for what has to be said though the disk is full. What is `synced` is
        on the disk when this returns; what is not survives a kill at once, and a power cut from the next that is.
        """
        with self._lock, disk_errors(self._store):
            try:
                return self._transact(statements, synced=synced)
            except sqlite3.OperationalError as error:
                if not is_disk_full(error, self.folder):
                    raise
                self._full = True
                if not last_words:
                    raise
            free_reserve(self.folder)
            return self._transact(statements, synced=synced)

    def _transact(self, statements: tuple[Statement, ...], *, synced: bool) -> int:
        db = self._connection()
        if synced:
            return _in_one(db, statements)
        db.execute(_UNSYNCED)
        try:
            return _in_one(db, statements)
        finally:
            db.execute(_SYNCED)

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock, disk_errors(self._store):
            return self._connection().execute(query, values).fetchall()

    def _connection(self) -> sqlite3.Connection:
        """The one connection, opened at first use so that whoever only reads traces leaves nothing behind."""
        if self._db is None:
            make_folder(self.folder)
            make_reserve(self.folder)
            self._db = _open_patiently(self._store)
        return self._db


def _in_one(db: sqlite3.Connection, statements: tuple[Statement, ...]) -> int:
    if len(statements) == 1:  # a lone writing statement is a transaction that takes the write lock at once
        return db.execute(*statements[0]).rowcount
    db.execute("BEGIN IMMEDIATE")
    try:
        changed = [db.execute(*statement).rowcount for statement in statements]
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return changed[-1]


def _open_patiently(path: Path) -> sqlite3.Connection:
    """Open the store, again where another process makes or recovers it just now: SQLite waits for no such lock."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _open(path)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(_SYNCED)
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > STORE_VERSION:
            raise StoreError(f"{path}: was made by a newer Shoestring (store {version}); update this one")
        if version < STORE_VERSION:
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {STORE_VERSION}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
