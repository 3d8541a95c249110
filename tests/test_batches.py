"""One suite batch at a time on a folder, and the older traces moved out of its way whole."""

from __future__ import annotations

import os
import re

import pytest

from agent.errors import StoreError, UsageError
from evals.batch import LOCK_NAME
from evals.store import STORE_NAME, TraceStore
from evals.traces import load_all
from tests.support_store import end, entry, in_process, line_of, store
from tests.support_traces import genuine, judged

__all__ = ["store"]  # a fixture: used by name, as a parameter


def test_a_new_batch_moves_the_older_traces_away_whole(store: TraceStore) -> None:
    with store.begin_batch("first"):
        kept = store.write(judged(genuine("completed"), case_id="a", batch_id="first"))
    single = store.write(genuine("looped"))
    before = {path.name: path.read_bytes() for path in (kept, single)}
    with store.begin_batch("second"):
        assert list(store.folder.glob("*.json")) == []
        moved = store.folder / "history" / "first"
        assert {path.name: path.read_bytes() for path in moved.iterdir()} == before
        store.write(judged(genuine("completed"), case_id="a", batch_id="second"))
    assert [state.batch_id for state in load_all(store.folder)] == ["second"]


def test_a_batch_id_leads_nowhere_and_history_is_never_overwritten(store: TraceStore) -> None:
    for content in ("one", "two"):
        with store.begin_batch("../../x"):
            (store.folder / "same.json").write_text(content)
        with store.begin_batch(f"after-{content}"):
            pass
    moved = store.folder / "history" / "x"
    assert {path.name: path.read_text() for path in moved.iterdir()} == {"same.json": "one", "same-2.json": "two"}


def test_traces_of_an_unknown_batch_are_moved_by_the_time(store: TraceStore) -> None:
    store.write(genuine("completed"))
    with store.begin_batch("first"):
        (folder,) = (store.folder / "history").iterdir()
    assert re.fullmatch(r"until-\d{8}t\d{6}z", folder.name)
    assert len(list(folder.iterdir())) == 1


def test_a_batch_that_goes_on_keeps_its_traces(store: TraceStore) -> None:
    for _ in range(2):
        with store.begin_batch("same"):
            store.write(judged(genuine("completed"), case_id="a", batch_id="same"))
    assert len(load_all(store.folder)) == 1


def test_a_single_task_moves_nothing(store: TraceStore) -> None:
    with store.begin_batch("batch"):
        store.write(judged(genuine("completed"), case_id="a"))
    with TraceStore(store.folder) as other:
        other.run_started("single")
        other.write(genuine("looped"))
    assert len(load_all(store.folder)) == 2
    assert not (store.folder / "history").exists()


HOLDER = """
    import sys, time
    from pathlib import Path
    from evals.store import TraceStore
    with TraceStore(Path(sys.argv[1])).begin_batch("held"):
        print("ready", flush=True)
        time.sleep(60)
"""


def test_a_second_batch_is_refused_by_the_firsts_process_id_and_a_single_task_is_not(store: TraceStore) -> None:
    kept = store.write(genuine("completed"))
    holder = in_process(HOLDER, store.folder)
    try:
        assert line_of(holder) == "ready"
        moved = next((store.folder / "history").rglob(kept.name))
        with pytest.raises(UsageError, match=rf"process {holder.pid}\).*TRACES_DIR"):
            store.begin_batch("second")
        assert moved.is_file()
        store.run_started("single")
        store.reserved("single", entry(0))
        assert store.write(genuine("looped")).is_file()
    finally:
        holder.kill()
        end(holder)
    with store.begin_batch("second"):  # the lock went with its process
        assert (store.folder / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_the_lock_holds_inside_one_process_too(store: TraceStore) -> None:
    with store.begin_batch("first"), pytest.raises(UsageError, match=f"process {os.getpid()}"):
        store.begin_batch("second")
    store.begin_batch("third").release()


def test_a_batch_that_cannot_start_moves_nothing_and_lets_go(store: TraceStore) -> None:
    path = store.write(genuine("completed"))
    (store.folder / STORE_NAME).write_bytes(b"this is no database, whatever its name says" * 50)
    for _ in range(2):
        with pytest.raises(StoreError, match="is damaged"):
            store.begin_batch("first")
    assert path.is_file()
    (store.folder / STORE_NAME).unlink()
    store.begin_batch("first").release()


def test_leftovers_of_killed_writers_go_when_they_are_old(store: TraceStore) -> None:
    store.folder.mkdir()
    old, young = store.folder / ".a.0123.tmp", store.folder / ".b.0123.tmp"
    for path in (old, young):
        path.write_text("x")
    os.utime(old, (1, 1))
    store.begin_batch("first").release()
    assert not old.exists()
    assert young.exists()


def test_nothing_but_traces_ends_in_json(store: TraceStore) -> None:
    with store.begin_batch("first"):
        store.run_started("run", "first")
        store.reserved("run", entry(0))
        path = store.write(genuine("completed"))
    assert list(store.folder.rglob("*.json")) == [path]
