"""Cases that somebody names and that cannot be had end the tests in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support_cli import ROOT


@pytest.mark.parametrize(
    ("variable", "content", "said"),
    [
        ("ATTACK_CASES", None, "[Errno 2] No such file or directory: '{path}'"),
        ("WIRE_CASES", "\n", "{path} holds no case"),
        ("WIRE_CASES", "{}\nx", "{path}:2: Expecting value: line 1 column 1 (char 0)"),
        ("WIRE_EXCHANGES", None, "{path} is no folder that holds *.req.json"),
    ],
)
def test_what_cannot_be_had_is_one_line(tmp_path: Path, variable: str, content: str | None, said: str) -> None:
    path = tmp_path / "named"
    if content is not None:
        path.write_text(content)
    command = [sys.executable, "-m", "pytest", "--collect-only", f"--basetemp={tmp_path / 'base'}"]
    environment = {**os.environ, variable: str(path)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    line = f"{variable}: {said.replace('{path}', str(path))}"
    assert (done.returncode, done.stdout) == (pytest.ExitCode.USAGE_ERROR, "")
    assert done.stderr == f"ERROR: {line}\n\n"
