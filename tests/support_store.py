"""A store in a fresh folder, ledger entries, and other processes that use the same folder."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.state import LedgerEntry
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
