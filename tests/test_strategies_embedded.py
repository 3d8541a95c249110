"""Every strategy on the real model in the box: whatever it says, runs end within their budget, their traces keep their
promises, and no prompt is read anew that an earlier one began.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.budget import Limits
from agent.config import EMBEDDED_MODEL
from agent.llm.backends.embedded import EmbeddedBackend
from agent.strategies.registry import STRATEGIES
from evals.plan import ASKS_FOR_EVIDENCE
from evals.replay import why_not
from evals.verify import verify
from tests.support_cache import cache_lines
from tests.support_runs import finished, new_run

WINDOW = 2048
# Few and short calls, because each of its tokens is real work; EMBEDDED_CALLS=10 spends a whole budget.
MAX_CALLS = int(os.environ.get("EMBEDDED_CALLS") or 4)
MAX_TOKENS = 24
MAX_COST = 200_000  # micro-dollars
LEAST_CACHED = 0.95
TASKS: dict[str, dict[str, Any]] = {
    "core": {
        "task": "A crate holds 48 bottles. How many bottles do 17 crates hold? Calculate it with a tool.",
        "follow_ups": ("Now calculate half of that.",),
        "tools_named": "core",
        "tools_offered": ["calculate_math"],
    },
    "fs": {
        "task": "Read the file notes.txt and tell me which day it names.",
        "tools_named": "fs",
        "tools_offered": ["read_file"],
    },
}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    backend = EmbeddedBackend(EMBEDDED_MODEL, WINDOW, log_path=tmp_path_factory.mktemp("embedded") / "llama.log")
    yield backend
    backend.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("given", TASKS.values(), ids=TASKS)
def test_a_run_ends_within_its_budget_and_its_cache_holds(
    backend: EmbeddedBackend, strategy: str, given: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("The bins go out on Thursday.\n", encoding="utf-8")
    run = new_run(
        backend,
        **given,
        strategy_name=strategy,
        evidence=strategy in ASKS_FOR_EVIDENCE,
        limits=Limits(MAX_CALLS, MAX_COST),
        max_completion_tokens=MAX_TOKENS,
        num_ctx=WINDOW,
        workspace=tmp_path,
        corpus=tmp_path,
    )
    state = finished(run, tmp_path)
    assert state.status in ("completed", "budget_exhausted", "loop_detected"), state.status_reason
    assert state.status_reason
    assert 0 < state.calls_used <= MAX_CALLS
    assert state.cost_microusd <= MAX_COST
    assert verify(state) == []
    assert why_not(state) is None, "verified means replayed too"
    lines = cache_lines(state, backend)
    table = "\n".join(map(str, lines))
    assert all(line.share >= LEAST_CACHED for line in lines), table
