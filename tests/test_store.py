"""The store keeps its word through kills, full disks, other processes and bad folders."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.errors import StoreError, UsageError
from agent.state import SCHEMA_VERSION, AgentState, LedgerEntry
from evals.batch import LOCK_NAME
from evals.disk import RESERVE_BYTES
from evals.store import STORE_NAME, TraceStore
from evals.traces import load, load_all, slug, trace_name, write_trace
from tests.support_runs import act, answer, run_script
from tests.support_traces import GENUINE, genuine, judged

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TraceStore]:
    with TraceStore(tmp_path / "traces") as made:
        yield made


def entry(index: int, reserved: int = 100) -> LedgerEntry:
    return LedgerEntry(
        index=index,
        purpose="act",
        prompt_tokens_bound=10,
        bound_kind="exact",
        max_completion_tokens=64,
        reserved_microusd=reserved,
    )


def closed(opened: LedgerEntry, charged: int, settled_as: str = "counted") -> LedgerEntry:
    return opened.model_copy(update={"settled_microusd": charged, "settled_as": settled_as})


def in_process(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process with the checkout on its path; it may be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=60)
    finally:
        process.kill()


# -- trace files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GENUINE)
def test_a_trace_reads_back_as_it_was(kind: str, store: TraceStore) -> None:
    state = judged(genuine(kind), case_id=kind)
    assert load(store.write(state)) == state


def test_a_trace_is_ascii_readable_by_all_and_alone(store: TraceStore) -> None:
    state = genuine("completed")
    state.answer = "é \u2028 \U0001f600"
    path = store.write(state)
    assert path.read_bytes().isascii()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [item.name for item in store.folder.iterdir()] == [path.name]


def test_a_private_umask_does_not_hide_the_results(store: TraceStore) -> None:
    before = os.umask(0o077)
    try:
        path = store.write(genuine("completed"))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_half_a_character_from_a_model_is_kept(store: TraceStore) -> None:
    state = genuine("completed")
    state.answer = "\ud83d and \udc00"
    state.steps[0].actions[0].arguments["nan"] = float("nan")
    path = store.write(state)
    assert load(path).answer == state.answer
    assert "NaN" not in path.read_text("ascii")


def test_writing_a_run_again_replaces_its_trace(store: TraceStore) -> None:
    state = genuine("completed")
    first = store.write(state)
    state.answer = "another"
    assert store.write(state) == first
    assert [s.answer for s in load_all(store.folder)] == ["another"]


@pytest.mark.parametrize(
    "case_id",
    ["../../etc/passwd", "/", "", "..", ".hidden", "a\x00b", "x" * 500, "\ud800", "A b/C\\d", "con.json", "é"],
)
def test_no_id_leads_out_of_the_folder(case_id: str, store: TraceStore) -> None:
    state = judged(genuine("completed"), case_id="x")
    state.case_id = state.run_id = state.strategy = state.task = case_id
    path = store.write(state)
    assert path.parent == store.folder
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}-[a-z0-9-]{1,20}-[0-9a-f]{10}\.json", path.name)
    assert path.is_file()


def test_runs_of_one_case_have_files_of_their_own() -> None:
    first, second = judged(genuine("completed"), case_id="same"), judged(genuine("completed"), case_id="same")
    second.run_id += "!"
    assert trace_name(first) != trace_name(second)
    assert trace_name(first).startswith("same-react-")
    assert slug("Café in 2 Words!") == "caf-in-2-words"


def test_traces_come_in_the_order_the_runs_began(store: TraceStore) -> None:
    for number, case_id in enumerate(("c", "a", "b")):
        state = judged(genuine("completed"), case_id=case_id, batch_id=f"batch-{number % 2}")
        state.started_at = f"2026-01-05T10:00:0{number}.000+00:00"
        store.write(state)
    assert [state.case_id for state in load_all(store.folder)] == ["c", "a", "b"]
    assert [state.case_id for state in load_all(store.folder, "batch-0")] == ["c", "b"]
    assert load_all(store.folder, "no such") == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "line 1, column 1: not JSON"),
        (b'{"run_id": "x",\n', "line 2, column 1: not JSON"),
        (b"[1]", "is not a trace"),
        (b'{"cases": []}', "is not a trace"),
        (b'{"run_id": "x", "seconds": NaN}', "it holds NaN"),
        (b'{"run_id": "x", "seconds": -Infinity}', "it holds -Infinity"),
        (b'{"run_id": "x", "schema_version": 99}', f"reads up to {SCHEMA_VERSION}"),
        (b'{"run_id": "x"}', "is not a valid trace: task: Field required (and "),
        (b"\xff\xfe", "is not UTF-8 (byte 0)"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "cannot be a trace"),
    ],
)
def test_what_is_no_trace_is_named_in_one_line(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        load(path)
    assert word in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            load(path)


def test_a_surprising_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(genuine("completed").model_dump() | {"surprise": 1}))
    with pytest.raises(UsageError, match="surprise: Extra inputs are not permitted"):
        load(path)


# -- the ledger -------------------------------------------------------------------------------------------------------


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


WRITER = """
    import sys
    from pathlib import Path
    from agent.state import LedgerEntry
    from evals.store import TraceStore
    name, batch, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
    store = TraceStore(Path(sys.argv[1]))
    for number in range(count):
        e = LedgerEntry(index=number, purpose="act", prompt_tokens_bound=1, bound_kind="exact",
                        max_completion_tokens=64, reserved_microusd=100)
        if number == 0:
            store.run_started(name, batch)
        store.reserved(name, e)
        print("reserved", number, flush=True)
        e.settled_microusd, e.settled_as = 60, "counted"
        store.settled(name, e)
        print("settled", number, flush=True)
"""


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


# -- batches ----------------------------------------------------------------------------------------------------------


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


# -- bad folders and full disks ---------------------------------------------------------------------------------------


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


SMALL_DISK = """
    import sys
    from pathlib import Path
    from agent.errors import StoreError
    from agent.state import AgentState, LedgerEntry
    from evals.store import TraceStore
    from evals.traces import load_all
    folder = Path(sys.argv[1]) / "traces"
    state = AgentState.model_validate_json(Path(sys.argv[2]).read_text())

    def fill():
        with open(Path(sys.argv[1]) / "filler", "ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    with TraceStore(folder) as store, store.begin_batch("batch"):
        store.run_started(state.run_id, "batch")
        store.reserved(state.run_id, state.ledger[0])
        fill()
        written = store.write(state)
        print("trace", written.stat().st_size, (folder / ".reserve").exists())
        try:
            store.reserved(state.run_id, state.ledger[1])
        except StoreError as error:
            print("refused", error)
        store.settled(state.run_id, state.ledger[0])
        store.run_finished(state)
    print("whole", len(load_all(folder)), store.spent("batch"))
    store.close()
    fill()
    try:
        TraceStore(folder).begin_batch("next")
    except StoreError as error:
        print("next", error)
    print("kept", len(load_all(folder)))
"""


def _can_mount() -> bool:
    try:
        command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.mark.skipif(not _can_mount(), reason="a small file system needs Linux and user namespaces")
def test_on_a_full_disk_the_run_under_way_is_kept_and_no_other_begins(tmp_path: Path) -> None:
    source = tmp_path / "source.txt"
    source.write_text(genuine("completed").model_dump_json())
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=3m none "$1" && exec "$2" -c "$3" "$1" "$4"'
    arguments = [str(tmp_path / "disk"), sys.executable, textwrap.dedent(SMALL_DISK), str(source)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    trace, refused, whole, next_batch, kept = done.stdout.splitlines()
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
