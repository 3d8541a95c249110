"""The sandboxes that this machine has, and what is left of a process when it should be gone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from agent.sandbox.base import Sandbox
from agent.sandbox.ladder import Asked, Isolation, tried

RUNGS: tuple[Asked, ...] = ("bubblewrap", "landlock")
T = TypeVar("T")


def isolation(level: Asked) -> Isolation:
    """What a run is lent to be isolated by this rung; skips the test where this machine does not have it."""
    if level != "external":
        for rung in tried(level):
            if rung.sandbox is None:
                pytest.skip(f"{level} does not work on this machine: {rung.why}")
    return Isolation(level)


def sandbox(level: Asked) -> Sandbox:
    return isolation(level).sandbox()


@contextmanager
def open_folder() -> Iterator[Path]:
    """An empty folder that every user may enter, as those above it, in a folder of its own. Nobody else may enter
    pytest's, and each pytest that starts closes them again."""
    with tempfile.TemporaryDirectory(prefix="shoestring-test-") as above:
        Path(above).chmod(0o711)
        folder = Path(above).resolve() / "f"
        folder.mkdir(0o711)
        yield folder


def waited_for(look: Callable[[], T | None], within: float = 20.0) -> T:
    """What a look finds, as soon as it is not None."""
    end = time.monotonic() + within
    while (found := look()) is None:
        assert time.monotonic() < end, "it never came"
        time.sleep(0.001)
    return found


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
