"""Runs the real scripts as a person would: a process of their own, an empty environment, a folder of their own."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import main
import run_tests
from agent.config import Settings
from cli.outcome import exit_code

ROOT = Path(__file__).resolve().parent.parent
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there
# A reply of the react contract that multiplies.
CALCULATE = {
    "progress_check": "on_track",
    "thought": "I multiply.",
    "action": {"tool": "calculate_math", "args": {"expression": "6 * 7"}},
    "final_answer": None,
}


def answer(text: str, thought: str = "I know it now.") -> dict[str, Any]:
    """A reply of the react contract that finishes the run."""
    return {"progress_check": "on_track", "thought": thought, "action": None, "final_answer": text}


MULTIPLY = [{"content": CALCULATE}, {"content": answer("It is 42.")}]


@dataclass(frozen=True)
class Outcome:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of stderr; fails where there is none, or a second one."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


@dataclass(frozen=True)
class Desk:
    """A working folder with nothing in it, where commands are typed."""

    folder: Path

    def environment(self, **settings: str) -> dict[str, str]:
        """No more than a shell needs; whatever this machine sets is not seen."""
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "OLLAMA_HOST": NOBODY, **settings}

    def command(self, script: str, *args: str) -> list[str]:
        """The command line that runs a script of this checkout."""
        return [sys.executable, str(ROOT / script), *args]

    def run(self, script: str, *args: str, stdin: bytes = b"", **settings: str) -> Outcome:
        """Run a script to its end."""
        done = subprocess.run(
            self.command(script, *args),
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self.environment(**settings),
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))

    def inside(self, *args: str, **settings: str) -> Outcome:
        """`python main.py ...` in this very process, for what needs no process of its own: it is ten times as fast."""
        return self._inside(main.run, args, settings)

    def inside_suite(self, *args: str, **settings: str) -> Outcome:
        """`python run_tests.py ...` in this very process."""
        return self._inside(run_tests.run, args, settings)

    def _inside(
        self, command: Callable[[Sequence[str]], int], args: Sequence[str], settings: dict[str, str]
    ) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            for name in Settings.model_fields:
                patch.delenv(name.upper(), raising=False)
            for name, value in {"OLLAMA_HOST": NOBODY, **settings}.items():
                patch.setenv(name, value)
            code = exit_code(lambda: command(args))
        return Outcome(code, out.getvalue(), err.getvalue())

    def main(self, *args: str, stdin: bytes = b"", **settings: str) -> Outcome:
        """`python main.py ...`"""
        return self.run("main.py", *args, stdin=stdin, **settings)

    def scripted(self, *args: str, replies: Any, stdin: bytes = b"", **settings: str) -> Outcome:
        """`python main.py ...` with these replies in place of a model."""
        flags = ("--backend", "scripted", "--scripted", self.script(replies))
        return self.main(*args, *flags, stdin=stdin, **settings)

    def script(self, replies: Any, name: str = "replies.json") -> str:
        """A file of replies, as --scripted takes it."""
        path = self.folder / name
        path.write_text(json.dumps(replies), encoding="utf-8")
        return str(path)

    def traces(self, folder: str = "traces") -> list[Path]:
        """The traces that stand in a folder."""
        return sorted((self.folder / folder).glob("*.json"))

    def wait_for_entries(self, count: int) -> None:
        """Until so many reservations stand in the store, ten seconds at most: the call of the last one is under way."""
        self._wait(lambda: self._entries() >= count)

    def _entries(self) -> int:
        if not (self.folder / "traces" / ".store.sqlite3").exists():
            return 0
        with closing(sqlite3.connect(f"file:{self.folder}/traces/.store.sqlite3?mode=ro", uri=True)) as store:
            if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone():
                return 0
            return int(store.execute("SELECT count(*) FROM entries").fetchone()[0])

    def _wait(self, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not there():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.02)
