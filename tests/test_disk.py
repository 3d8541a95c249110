"""Bad folders and full disks: one line that says what to do, and nothing lost."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.errors import StoreError, UsageError
from agent.state import AgentState
from evals.batch import LOCK_NAME
from evals.disk import RESERVE_BYTES
from evals.store import STORE_NAME, TraceStore
from evals.traces import load_all, write_trace
from tests.support_store import ROOT, can_mount, closed, end, entry, in_process, on_a_small_disk, store
from tests.support_traces import genuine

__all__ = ["store"]  # a fixture: used by name, as a parameter


def test_a_file_in_the_folders_place_is_the_persons_to_mend(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("x")
    store = TraceStore(tmp_path / "traces")
    with pytest.raises(UsageError, match="a file stands where a folder has to be"):
        store.begin_batch("first")
    with pytest.raises(UsageError, match="a file stands where a folder has to be"):
        store.write(genuine("completed"))
    with pytest.raises(UsageError, match="a file stands where a folder has to be"):
        TraceStore(tmp_path / "traces" / "deeper").write(genuine("completed"))


@pytest.mark.parametrize("name", [STORE_NAME, LOCK_NAME, ".reserve"])
def test_a_folder_in_a_files_place_is_one_line(name: str, store: TraceStore) -> None:
    (store.folder / name).mkdir(parents=True)
    with pytest.raises(StoreError) as refused:
        store.begin_batch("first")
    assert "\n" not in str(refused.value)
    assert "cannot be written" in str(refused.value)


def test_a_store_from_the_future_is_left_alone(store: TraceStore) -> None:
    store.reserved("run", entry(0))
    store.close()
    db = sqlite3.connect(store.folder / STORE_NAME)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="newer Shoestring"):
        store.reserved("run", entry(1))


def test_a_store_that_is_full_sends_no_further_call_and_takes_the_last_words(store: TraceStore) -> None:
    store.run_started("run", "batch")
    store.reserved("run", entry(0))
    assert (store.folder / ".reserve").stat().st_size == RESERVE_BYTES
    _limit_pages(store, extra=0)
    with pytest.raises(StoreError, match="the disk is full; free some space"):
        _reserve_on(store)
    _limit_pages(store, extra=100)
    with pytest.raises(StoreError, match="the disk is full"):  # there is room again, and a new batch has to say so
        store.reserved("run", entry(200_000))
    store.settled("run", closed(entry(0), 1))
    store.begin_batch("next").release()
    store.reserved("run", entry(200_000))


def _reserve_on(store: TraceStore) -> None:
    for place in range(1, 10_000):
        store.reserved("run", entry(place))


def _limit_pages(store: TraceStore, *, extra: int) -> None:
    """SQLite's own cap on its file: what it raises then is what it raises on a full disk."""
    db = store._db
    assert db is not None
    pages = int(db.execute("PRAGMA page_count").fetchone()[0])
    db.execute(f"PRAGMA max_page_count = {pages + extra}")


@pytest.mark.skipif(not can_mount(), reason="a small file system needs Linux and user namespaces")
def test_on_a_full_disk_the_run_under_way_is_kept_and_no_other_begins(tmp_path: Path) -> None:
    trace, refused, whole, next_batch, kept = on_a_small_disk(tmp_path, genuine("completed"), mebibytes=3)
    assert trace.startswith("trace ")
    assert trace.endswith(" False")
    assert "the disk is full" in refused
    assert whole == f"whole 1 (1, {genuine('completed').ledger[0].settled_microusd})"
    assert "the disk is full" in next_batch
    assert kept == "kept 1"


FILE_TOO_LARGE = """
    import resource, sys
    from pathlib import Path
    from agent.errors import StoreError
    from agent.state import AgentState
    from evals.store import TraceStore
    state = AgentState.model_validate_json(sys.stdin.read())
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        TraceStore(Path(sys.argv[1])).write(state)
    except StoreError as error:
        print(error)
"""


def test_a_trace_that_cannot_be_written_leaves_the_old_one_and_nothing_else(store: TraceStore) -> None:
    state = genuine("completed")
    path = store.write(state)
    before = path.read_bytes()
    state.answer = "another"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FILE_TOO_LARGE), str(store.folder)],
        cwd=ROOT,
        input=state.model_dump_json(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "cannot be written (File too large)" in done.stdout
    assert path.read_bytes() == before
    assert list(store.folder.iterdir()) == [path]


def test_a_folder_that_may_not_be_written_is_one_line() -> None:
    code = """
        import os, sys
        from pathlib import Path
        from agent.errors import StoreError
        from evals.store import TraceStore
        if os.geteuid() == 0:  # root may write anywhere
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            TraceStore(Path(sys.argv[1])).begin_batch("first")
        except StoreError as error:
            print(error)
    """
    with TemporaryDirectory() as folder:  # pytest's own are closed to the user that root becomes here
        Path(folder).chmod(0o555)
        said, failed = end(in_process(code, folder))
    assert failed == ""
    assert "cannot be written (Permission denied); check its owner, or set TRACES_DIR" in said


def test_reading_traces_leaves_nothing_behind(tmp_path: Path) -> None:
    write_trace(tmp_path, genuine("completed"))
    before = sorted(tmp_path.iterdir())
    assert [state.status for state in load_all(tmp_path)] == ["completed"]
    TraceStore(tmp_path).close()
    assert sorted(tmp_path.iterdir()) == before


def test_agent_state_is_all_a_trace_holds() -> None:
    assert set(json.loads(genuine("completed").model_dump_json())) == set(AgentState.model_fields)
