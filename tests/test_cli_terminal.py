"""What a terminal and a pipe are sent by the real scripts, and what Ctrl-C and a gone reader leave behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support_cli import CALCULATE, MULTIPLY, Desk, answer

HOSTILE = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\u202e\x9b2J[red]PASS"
ACTIVE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def on_a_terminal(desk: Desk, *args: str, script: str = "main.py", **settings: str) -> str:
    """What a command writes to a real (pseudo-)terminal."""
    ours, theirs = pty.openpty()
    environment = desk.environment(TERM="xterm-256color", COLUMNS="100", **settings)
    command = desk.command(script, *args)
    process = subprocess.Popen(command, cwd=desk.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side is gone
            piece = b""
        if not piece:
            break
        written += piece
    os.close(ours)
    process.wait(timeout=30)
    return written.decode("utf-8")


def test_a_terminal_is_coloured_and_a_hostile_model_is_not_obeyed(desk: Desk) -> None:
    replies = desk.script([{"content": CALCULATE}, {"content": answer(HOSTILE, thought=HOSTILE)}])
    output = on_a_terminal(desk, "x", "--backend", "scripted", "--scripted", replies)
    assert "\x1b[35mACT" in output
    left = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert not ACTIVE.search(left)
    assert "[red]PASS" in left


def test_the_live_table_of_a_suite_obeys_no_model_either(desk: Desk) -> None:
    suite = {"cases": [{"id": "x", "task": "x", "asserts": [{"type": "answer_contains", "value": "nowhere"}]}]}
    (desk.folder / "s.yaml").write_text(json.dumps(suite), encoding="utf-8")
    replies = desk.script([{"content": CALCULATE}, {"content": answer(HOSTILE, thought=HOSTILE)}])
    flags = ["s.yaml", "--backend", "scripted", "--scripted", replies]
    output = on_a_terminal(desk, *flags, script="run_tests.py")
    assert "fail" in output
    left = re.sub(r"\x1b\[(\??[0-9;]*[mlhAH]|2K)", "", output)  # what rich draws a live table with
    assert not ACTIVE.search(left)
    assert "\x1b" not in on_a_terminal(desk, *flags, "--no-color", script="run_tests.py")


def test_no_color_and_a_pipe_are_plain(desk: Desk) -> None:
    replies = desk.script(MULTIPLY)
    command = ["x", "--backend", "scripted", "--scripted", replies]
    assert "\x1b" not in on_a_terminal(desk, *command, "--no-color")
    assert "\x1b" not in on_a_terminal(desk, *command, NO_COLOR="1")
    assert "\x1b" not in desk.main(*command, FORCE_COLOR="1", TERM="xterm-256color").out


def test_an_ascii_terminal_gets_escapes_instead_of_a_crash(desk: Desk) -> None:
    replies = [{"content": CALCULATE}, {"content": answer("6 \u00d7 7 = \U0001f389")}]
    done = desk.scripted("x", replies=replies, PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert r"6 \xd7 7 = \U0001f389" in done.out


def test_a_reader_that_goes_away_does_not_end_a_run_that_is_paid_for(desk: Desk) -> None:
    replies = desk.script([{"content": CALCULATE, "seconds": 0.3}, {"content": answer("42")}])
    command = desk.command("main.py", "x", "--backend", "scripted", "--scripted", replies)
    process = subprocess.Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert json.loads(desk.traces()[0].read_text("utf-8"))["status"] == "completed"


def test_a_reader_that_has_seen_enough_is_no_error(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    for command in (["show", str(desk.traces()[0]), "--md"], ["verify", "traces"]):
        process = subprocess.Popen(
            desk.command("main.py", *command),
            cwd=desk.folder,
            env=desk.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, b"")


def test_ctrl_c_ends_with_what_was_done(desk: Desk) -> None:
    replies = desk.script([{"content": CALCULATE}, {"content": answer("late"), "seconds": 30}])
    command = desk.command("main.py", "x", "--backend", "scripted", "--scripted", replies)
    process = subprocess.Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    desk.wait_for_entries(2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; what was done is kept" in err
    assert "PARTIAL" in out
    trace = json.loads(desk.traces()[0].read_text("utf-8"))
    assert (trace["status"], len(trace["ledger"])) == ("cancelled", 2)
    assert desk.main("verify", "traces").code == 0
