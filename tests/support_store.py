"""A store in a fresh folder, ledger entries, and other processes that use the same folder."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.state import AgentState, LedgerEntry
from evals.store import TraceStore

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
        prompt_microusd_per_1k=10_000,
        completion_microusd_per_1k=30_000,
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


# -- programs for such processes ---------------------------------------------------------------------------------------

# Reserves and settles on and on, and says so: `WRITER folder run batch count`.
WRITER = """
    import sys
    from pathlib import Path
    from agent.state import AgentState, LedgerEntry
    from evals.store import TraceStore
    name, batch, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
    store = TraceStore(Path(sys.argv[1]))
    for number in range(count):
        e = LedgerEntry(index=number, purpose="act", prompt_tokens_bound=1, bound_kind="exact",
                        max_completion_tokens=64, prompt_microusd_per_1k=10_000,
                        completion_microusd_per_1k=30_000, reserved_microusd=100)
        if number == 0:
            store.run_started(name, batch)
        store.reserved(name, e)
        print("reserved", number, flush=True)
        e.settled_microusd, e.settled_as = 60, "counted"
        store.settled(name, e)
        print("settled", number, flush=True)
"""

# Fills its disk in the middle of a batch: `SMALL_DISK folder trace`.
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


def can_mount() -> bool:
    """Whether a small file system can be made here: that needs Linux and user namespaces."""
    try:
        command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def on_a_small_disk(folder: Path, state: AgentState, mebibytes: int) -> list[str]:
    """The lines that SMALL_DISK prints: the trace's size, the refusal, what is whole, the next batch, what was kept."""
    source = folder / "source.txt"
    source.write_text(state.model_dump_json())
    (folder / "disk").mkdir()
    script = f'mount -t tmpfs -o size={mebibytes}m none "$1" && exec "$2" -c "$3" "$1" "$4"'
    arguments = [str(folder / "disk"), sys.executable, textwrap.dedent(SMALL_DISK), str(source)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()
