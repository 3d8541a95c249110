"""The programs and libraries that tests of the tools use: who lacks one skips those tests, and in CI none may lack.

A CI machine that cannot have a part says so: `CI_WITHOUT=landlock,chromium`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.sandbox.ladder import Asked, tried
from agent.tools.browser_process import NAMES
from tests.support_store import can_mount

ROOT = Path(__file__).resolve().parent.parent
IN_CI = bool(os.environ.get("CI"))
WITHOUT = set(filter(None, os.environ.get("CI_WITHOUT", "").split(",")))


def rung(level: Asked) -> str:
    """What is wrong with a rung of the ladder here; nothing where it holds."""
    return "; ".join(f"{each.level}: {each.why}" for each in tried(level) if each.sandbox is None)


def program(*names: str) -> str:
    return "" if any(map(shutil.which, names)) else f"{names[0]} is not installed"


def module(name: str) -> str:
    return "" if importlib.util.find_spec(name) else f"{name} is not installed: make dev"


PARTS: dict[str, Callable[[], str]] = {
    "bubblewrap": lambda: rung("bubblewrap"),
    "landlock": lambda: rung("landlock"),
    "ripgrep": lambda: program("rg"),
    "node": lambda: program("node"),
    "chromium": lambda: program(*NAMES),
    "openssl": lambda: program("openssl"),
    "namespaces": lambda: "" if can_mount() else "no small file system can be made",
    "web": lambda: module("trafilatura"),
    "pdf": lambda: module("pypdf"),
    "browser": lambda: module("playwright"),
    "mcp": lambda: module("mcp"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_there(part: str) -> None:
    lacking = PARTS[part]()
    if lacking and (not IN_CI or part in WITHOUT):
        pytest.skip(f"{part}: {lacking}")
    assert lacking == ""


def test_only_parts_can_be_done_without() -> None:
    assert not WITHOUT - PARTS.keys()


def test_ci_installs_what_has_a_package() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    for package in ("bubblewrap", "ripgrep", "nodejs", "chromium", "openssl"):
        assert f"parts+=({package})" in script


def test_ci_is_told_that_it_is_ci(tmp_path: Path) -> None:
    """`make` and `apt-get` are stood in for: what the script hands on is looked at, and nothing is installed."""
    for name, script in (("make", 'echo "make $1 with CI=$CI"'), ("apt-get", ":")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        (tmp_path / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "make test with CI=true"
