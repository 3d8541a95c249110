"""The sandboxes that this machine has, and what is left of a process when it should be gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.sandbox.base import Sandbox
from agent.sandbox.ladder import Asked, Isolation, tried

RUNGS: tuple[Asked, ...] = ("bubblewrap", "landlock")


def isolation(level: Asked) -> Isolation:
    """What a run is lent to be isolated by this rung; skips the test where this machine does not have it."""
    if level != "external":
        for rung in tried(level):
            if rung.sandbox is None:
                pytest.skip(f"{level} does not work on this machine: {rung.why}")
    return Isolation(level)


def sandbox(level: Asked) -> Sandbox:
    return isolation(level).sandbox()


def gone(marker: str, within: float = 5.0) -> bool:
    """Whether no process has this word in its command line any more."""
    end = time.monotonic() + within
    while any(_has(process, marker) for process in Path("/proc").glob("[0-9]*")):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _has(process: Path, marker: str) -> bool:
    try:
        state = (process / "stat").read_bytes().rpartition(b") ")[2][:1]
        return state != b"Z" and marker.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False
