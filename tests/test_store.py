"""The ledger on disk: what was reserved is never lost, through kills and between processes."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from evals.store import STORE_NAME, TraceStore
from evals.traces import load_all
from tests.support_runs import act, answer, run_script
from tests.support_store import ROOT, WRITER, closed, end, entry, in_process, line_of, store
from tests.support_traces import genuine, judged

__all__ = ["store"]  # a fixture: used by name, as a parameter


def test_a_real_run_is_booked_to_its_batch(store: TraceStore) -> None:
    store.run_started("run-1", "batch", "case")
    state = run_script([act("6*7"), answer("42")], journal=store)
    assert store.spent("batch") == (state.calls_used, state.cost_microusd)
    assert store.spent("other") == (0, 0)


def test_what_was_reserved_and_never_settled_is_spent_in_full(store: TraceStore) -> None:
    first, second, third = entry(0), entry(1), entry(2)
    store.run_started("run", "batch")
    for each in (first, second, third):
        store.reserved("run", each)
    assert store.spent("batch") == (3, 300)
    store.settled("run", closed(first, 40))
    store.settled("run", closed(second, 0, "refunded"))
    assert store.spent("batch") == (2, 140)
    store.close()
    with TraceStore(store.folder) as again:
        assert again.spent("batch") == (2, 140)


def test_the_store_knows_how_each_run_ended(store: TraceStore) -> None:
    state = judged(genuine("completed"), case_id="case", batch_id="batch")
    store.run_started("other", "batch")
    store.reserved("other", entry(0))
    store.run_started(state.run_id, "batch", "case")
    path = store.write(state)
    store.run_finished(state)
    store.close()
    rows = sqlite3.connect(store.folder / STORE_NAME).execute("SELECT run_id, case_id, status, trace FROM runs")
    assert sorted(rows) == [("batch-case-react", "case", "completed", path.name), ("other", None, "running", None)]


def test_settling_what_was_never_reserved_is_our_bug(store: TraceStore) -> None:
    with pytest.raises(RuntimeError, match="without having been reserved"):
        store.settled("run", closed(entry(0), 1))
    store.reserved("run", entry(0))
    with pytest.raises(sqlite3.IntegrityError):
        store.reserved("run", entry(0))


def test_threads_share_a_store(store: TraceStore) -> None:
    def runs(number: int) -> None:
        for place in range(10):
            store.run_started(f"{number}-{place}", "batch")
            store.reserved(f"{number}-{place}", entry(0))
            store.settled(f"{number}-{place}", closed(entry(0), 7))

    threads = [threading.Thread(target=runs, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.spent("batch") == (40, 280)


def test_several_processes_lose_no_entry(store: TraceStore) -> None:
    writers = [in_process(WRITER, store.folder, f"run-{number}", "batch", 30) for number in range(2)]
    for writer in writers:
        assert end(writer)[1] == ""
    assert store.spent("batch") == (60, 60 * 60)


def test_a_killed_process_loses_nothing_that_it_was_told_is_kept(store: TraceStore) -> None:
    dice = random.Random(5)
    for number in range(2):
        writer = in_process(WRITER, store.folder, f"run-{number}", f"batch-{number}", 100_000)
        for _ in range(dice.randint(5, 60)):
            line_of(writer)
        writer.send_signal(signal.SIGKILL)
        said = end(writer)[0].splitlines()
        calls, spent = store.spent(f"batch-{number}")
        last = int(said[-1].split()[1]) if said and said[-1].count(" ") == 1 and said[-1][-1].isdigit() else 0
        assert calls >= last
        assert 0 <= spent - 60 * calls <= 40  # at most the last entry is open, and counts in full


def test_a_kill_while_traces_are_written_leaves_whole_ones_only(store: TraceStore) -> None:
    code = """
        import sys
        from pathlib import Path
        from agent.state import AgentState
        from evals.store import TraceStore
        store = TraceStore(Path(sys.argv[1]))
        state = AgentState.model_validate_json(sys.stdin.read())
        state.steps = state.steps * 50
        for number in range(100_000):
            state.run_id = f"run-{number % 7}"
            store.write(state)
            print(number, flush=True)
    """
    source = genuine("completed").model_dump_json()
    for wait in (0.0, 0.013):
        writer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), str(store.folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdin is not None
        writer.stdin.write(source)
        writer.stdin.close()
        for _ in range(3):
            line_of(writer)
        time.sleep(wait)
        writer.kill()
        writer.wait(10)
        assert writer.stdout is not None
        writer.stdout.close()
        states = load_all(store.folder)
        assert states
        assert all(len(state.steps) == 200 for state in states)
