"""A suite that is killed at any moment leaves whole, valid traces only, and the store knows what was spent."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

from agent.state import AgentState
from evals.store import TraceStore
from evals.traces import load_all, trace_paths
from evals.verify import verify
from tests.support_cli import CALCULATE, Desk, answer

KILLS = 10
CASES = 12
SECONDS_A_REPLY = 0.02


def suite(folder: Path) -> None:
    cases = [
        f"  - id: case-{number}\n    task: What is 6 * 7?\n    asserts: [{{type: answer_contains, value: '42'}}]"
        for number in range(CASES)
    ]
    (folder / "many.yaml").write_text("cases:\n" + "\n".join(cases), encoding="utf-8")


def test_killed_at_ten_random_moments(tmp_path: Path) -> None:
    dice, desk = random.Random(11), Desk(tmp_path)
    suite(tmp_path)
    replies = [{"content": content, "seconds": SECONDS_A_REPLY} for content in (CALCULATE, answer("It is 42."))]
    command = desk.command(
        "run_tests.py", "many.yaml", "--backend", "scripted", "--scripted", desk.script(replies), "--jobs", "2"
    )
    cut_short = 0
    for _ in range(KILLS):
        victim = subprocess.Popen(
            command, cwd=tmp_path, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert victim.stdout is not None
        victim.stdout.readline()  # the first case is done; from here on it may end anywhere
        time.sleep(dice.random() * SECONDS_A_REPLY * CASES)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        states = check_what_is_left(tmp_path / "traces")
        cut_short += len(states) < CASES
    assert cut_short, "every kill came after the end"


def check_what_is_left(folder: Path) -> list[AgentState]:
    """Every trace is whole and verifies; the store has at least what the traces say."""
    states = load_all(folder)  # raises where one is torn
    assert len(states) == len(trace_paths(folder))
    assert len({state.batch_id for state in states}) <= 1
    for state in states:
        assert verify(state) == []
    if states:
        batch = states[0].batch_id
        assert batch is not None
        with TraceStore(folder) as store:
            calls, microusd = store.spent(batch)
        assert calls >= sum(state.calls_used for state in states)
        assert microusd >= sum(state.cost_microusd for state in states)
    return states
