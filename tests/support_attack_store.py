"""Attacks on what is kept: kills, other processes, full disks; and the writes of tools under kills."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from evals.store import TraceStore
from evals.traces import load_all
from tests.support_store import ROOT, WRITER, can_mount, end, in_process, on_a_small_disk
from tests.support_traces import genuine

if TYPE_CHECKING:
    from tests.support_attack_runs import Outcome
    from tests.support_attacks import World

# Forks a writer again and again and kills it when it has said so much; prints what it was told is kept.
KILLED = """
    import os, random, signal, sys
    from pathlib import Path
    from agent.state import AgentState, LedgerEntry
    from evals.store import TraceStore

    def write(folder, name, state):
        store = TraceStore(folder)
        state.run_id = name
        for number in range(100_000):
            e = LedgerEntry(index=number, purpose="act", prompt_tokens_bound=1, bound_kind="exact",
                            max_completion_tokens=64, prompt_microusd_per_1k=10_000,
                            completion_microusd_per_1k=30_000, reserved_microusd=100)
            if number == 0:
                store.run_started(name, name)
            store.reserved(name, e)
            e.settled_microusd, e.settled_as = 60, "counted"
            store.settled(name, e)
            store.write(state)
            os.write(1, f"{name} {number}\\n".encode())

    folder, times, dice = Path(sys.argv[1]), int(sys.argv[2]), random.Random(5)
    state = AgentState.model_validate_json(Path(sys.argv[3]).read_text())
    for turn in range(times):
        read, wrote = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(wrote, 1)
            write(folder, f"batch-{turn}", state)
        os.close(wrote)
        with os.fdopen(read) as said:
            for _ in range(dice.randint(1, 6)):
                line = said.readline()
            os.kill(child, signal.SIGKILL)
            rest = [each for each in said.read().splitlines(keepends=True) if each.endswith("\\n")]
        os.waitpid(child, 0)
        print((rest[-1] if rest else line).strip(), flush=True)
"""
WRITES = """
import sys
from pathlib import Path
from agent.state import ToolCall
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset
tools = ToolRegistry(toolset("fs"), ToolContext(workspace=Path(sys.argv[1])))
print("writing", flush=True)
while True:
    for content in (sys.argv[3], "old"):
        assert tools.execute(ToolCall(name="write_file", arguments={"path": sys.argv[2], "content": content})).success
"""


def packed(text: str) -> str:
    """A text in the other forms in which it leaves a program."""
    return f"{base64.b64encode(text.encode()).decode()} {quote(text, safe='')} {json.dumps(text)}"


def kills(folder: Path, fixture: str) -> tuple[str, list[str]]:
    """Everything that was said to be kept is there after the kill, and whole."""
    times = re.search(r"kill -9 x(\d+)", fixture)
    source = folder.parent / "source.txt"
    source.write_text(genuine("completed").model_dump_json())
    said, failed = end(in_process(KILLED, folder, times[1] if times else 10, source))
    found = [failed] if failed else []
    with TraceStore(folder) as store:
        for line in said.splitlines():
            batch, last = line.split()
            calls, spent = store.spent(batch)
            if calls <= int(last) or not 0 <= spent - 60 * calls <= 40:
                found.append(f"{line}: {calls} calls and {spent} micro-dollars are left")
    runs = {state.run_id for state in load_all(folder)}  # raises where one is torn
    found += [f"the trace of {line} is lost" for line in said.splitlines() if line.split()[0] not in runs]
    return f"{len(runs)} writers were killed", found


def writers(folder: Path, fixture: str) -> tuple[str, list[str]]:
    """Several processes on one batch's budget: no entry is lost."""
    count = re.search(r"(\d+) writers", fixture)
    number, each = int(count[1]) if count else 2, 40
    processes = [in_process(WRITER, folder, f"run-{place}", "batch", each) for place in range(number)]
    found = [failed for process in processes if (failed := end(process)[1])]
    with TraceStore(folder) as store:
        spent = store.spent("batch")
    due = (number * each, 60 * number * each)
    return f"{spent}", [*found, *([f"{spent} of {due} are there"] if spent != due else [])]


def full_disk(folder: Path, fixture: str) -> tuple[str, list[str]]:
    """The run under way is kept whole, no call is admitted, the next batch does not begin; old data stay."""
    if not can_mount():
        pytest.skip("trace-enospc: a small file system needs Linux and user namespaces")
    size = re.search(r"(\d+) MiB", fixture)
    said = on_a_small_disk(folder, genuine("completed"), int(size[1]) if size else 3)
    due = (r"trace \d+ False", "refused .*disk is full", r"whole 1 .*", "next .*disk is full", "kept 1")
    met = len(said) == len(due) and all(re.match(pattern, line) for pattern, line in zip(due, said, strict=True))
    return "\n".join(said), [] if met else [f"it went otherwise: {said}"]


EVENTS: dict[str, Callable[[Path, str], tuple[str, list[str]]]] = {
    "kill": kills,
    "two processes": writers,
    "disk full": full_disk,
}


def killed_writes(made: World) -> Outcome:
    """A tool that writes, killed in the middle: the file holds the old text or the new one."""
    from tests.support_attack_runs import Outcome  # noqa: PLC0415  it imports this file

    name, new = str(made.case.args["path"]), str(made.case.args.get("content", ""))
    path, found = made.workspace / name, []
    for _ in range(min(made.kills, 5)):
        command = [sys.executable, "-c", WRITES, str(made.workspace), name, new * 5000]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            before = path.stat().st_mtime_ns
            while path.stat().st_mtime_ns == before and writer.poll() is None:
                pass
            writer.send_signal(signal.SIGKILL)
        if path.read_text() not in (new * 5000, "old"):
            found.append(f"half of a text: {len(path.read_text())} characters")
    return Outcome(success=True, text=path.read_text()[:20], limit=60.0, harm=found)
