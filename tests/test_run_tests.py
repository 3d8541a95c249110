"""run_tests.py as a person types it: suites to traces, a report and an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from cli.board import Board
from cli.suites import chosen
from cli.terminal import make_console
from tests.support_cli import CALCULATE, ROOT, Desk, answer
from tests.test_terminal import Tty

SUITE = """\
cases:
  - id: multiply
    task: What is 6 * 7?
    asserts:
      - {type: answer_contains, value: "42"}
  - id: ../../etc/passwd
    task: What is 1 + 1?
    asserts:
      - {type: answer_contains, value: "2"}
"""
RIGHT = [{"content": CALCULATE}, {"content": answer("It is 42.")}]
WRONG = [{"content": CALCULATE}, {"content": answer("I can not say.")}]
REFUSED = [{"status": 403, "body": ""}]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "two.yaml").write_text(SUITE, encoding="utf-8")
    return Desk(tmp_path)


def flags(desk: Desk, **replies: object) -> list[str]:
    """`two.yaml` played from these replies, by case id."""
    return ["two.yaml", "--backend", "scripted", "--scripted", desk.script({"*": RIGHT, **replies})]


def test_all_passed_is_0_with_traces_and_a_report(desk: Desk) -> None:
    done = desk.run("run_tests.py", *flags(desk))
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == ["pass", "pass", "2"]
    assert "2 runs: 2 passed, 0 failed, 0 invalid; 4 calls" in done.out
    assert "\x1b" not in done.out
    assert len(desk.traces()) == 2
    report = (desk.folder / "test_results.md").read_bytes()
    again = desk.main("report", "traces", "--out", "again.md")
    assert (again.code, again.out) == (0, "wrote again.md\n")
    assert (desk.folder / "again.md").read_bytes() == report
    assert desk.main("verify", "traces").code == 0


def test_an_id_is_never_a_path(desk: Desk) -> None:
    desk.run("run_tests.py", *flags(desk), "--out", "here")
    written = {path.relative_to(desk.folder).parts[0] for path in desk.folder.rglob("*") if path.is_file()}
    assert written == {"two.yaml", "replies.json", "test_results.md", "here"}


def test_one_that_fails_is_1_and_says_which_assert(desk: Desk) -> None:
    done = desk.inside_suite(*flags(desk, multiply=WRONG))
    assert done.code == 1
    assert done.out.splitlines()[0].startswith("fail     multiply")
    assert "answer_contains: " in done.out.splitlines()[0]


def test_one_that_is_invalid_is_3_whatever_the_others_are(desk: Desk) -> None:
    done = desk.inside_suite(*flags(desk, multiply=REFUSED))
    assert done.code == 3
    assert "1 passed, 0 failed, 1 invalid" in done.out


def test_only_picks_cases_by_id_or_pattern(desk: Desk) -> None:
    for pattern in ("multiply", "mul*", "*ply"):
        done = desk.inside_suite(*flags(desk), "--only", pattern)
        assert "1 runs: 1 passed" in done.out


def test_several_jobs_and_epochs_leave_a_trace_each(desk: Desk) -> None:
    done = desk.inside_suite(*flags(desk), "--jobs", "3", "--epochs", "2")
    assert done.code == 0
    states = [json.loads(path.read_text("utf-8")) for path in desk.traces()]
    assert sorted((state["case_id"], state["epoch"]) for state in states) == [
        ("../../etc/passwd", 0),
        ("../../etc/passwd", 1),
        ("multiply", 0),
        ("multiply", 1),
    ]


def test_a_batch_cost_caps_all_the_runs_together(desk: Desk) -> None:
    done = desk.inside_suite(*flags(desk), "--max-batch-cost", "0.005")
    assert done.code == 3  # what the batch's cap cut short says nothing about the model
    states = [json.loads(path.read_text("utf-8")) for path in desk.traces()]
    assert sum(entry["settled_microusd"] for state in states for entry in state["ledger"]) <= 5000
    assert {state["status"] for state in states} == {"budget_exhausted"}


def test_a_new_batch_moves_the_older_traces_and_loses_none(desk: Desk) -> None:
    desk.inside_suite(*flags(desk))
    desk.inside_suite(*flags(desk))
    assert len(desk.traces()) == 2
    assert len(list((desk.folder / "traces" / "history").rglob("*.json"))) == 2


def test_a_report_on_an_older_batch_by_its_id(desk: Desk) -> None:
    desk.inside_suite(*flags(desk))
    batch = json.loads(desk.traces()[0].read_text("utf-8"))["batch_id"]
    assert f"`{batch}`" in desk.inside("report", "--batch", batch, "--out", "-").out
    done = desk.inside("report", "--batch", "nosuch")
    assert "no trace of batch nosuch" in done.line
    assert done.code == 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param(["no.yaml"], "no.yaml", id="a suite that is not there"),
        pytest.param(["two.yaml", "--only", "divide"], "there are: multiply, ../../etc/passwd", id="no such case"),
        pytest.param(["two.yaml", "--jobs", "0"], "--jobs: must be a whole number", id="no job"),
        pytest.param(["two.yaml", "--epochs", "-1"], "--epochs", id="negative epochs"),
        pytest.param(["two.yaml", "--report", "no/such/r.md"], "no/such", id="a report in no folder"),
        pytest.param(["two.yaml", "--report", "."], "is a folder", id="a report over a folder"),
        pytest.param(["two.yaml", "--max-batch-cost", "lots"], "MAX_BATCH_COST_USD", id="money in words"),
        pytest.param(["typo.yaml"], "typo.yaml:2", id="a suite with a typo, by its line"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2_and_nothing_is_touched(desk: Desk, args: list[str], says: str) -> None:
    (desk.folder / "typo.yaml").write_text("cases:\n  - idd: x\n    task: y\n", encoding="utf-8")
    (desk.folder / "test_results.md").write_text("older", encoding="utf-8")
    done = desk.inside_suite(*args, "--backend", "scripted", "--scripted", desk.script(RIGHT))
    assert says in done.line
    assert (done.code, done.out) == (2, "")
    assert not (desk.folder / "traces").exists()
    assert (desk.folder / "test_results.md").read_text("utf-8") == "older"


def test_the_second_batch_on_a_folder_is_refused_and_a_single_task_is_not(desk: Desk) -> None:
    slow = [{"content": answer("late"), "seconds": 30}]
    command = desk.command("run_tests.py", *flags(desk, multiply=slow))
    first = subprocess.Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        desk.wait_for_entries(1)
        second = desk.inside_suite(*flags(desk))
        assert f"process {first.pid}" in second.line
        assert second.code == 2
        single = desk.inside("x", "--json", "--backend", "scripted", "--scripted", desk.script(RIGHT, "single.json"))
        assert single.code == 0
    finally:
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=30)
    assert first.returncode == 130
    assert err == "shoestring: interrupted; the finished runs are kept\n"
    assert "1 of 2 runs: 0 passed, 0 failed, 1 invalid" in out


def test_ctrl_c_keeps_the_finished_runs_and_reports_on_them(desk: Desk) -> None:
    slow = [{"content": answer("late"), "seconds": 30}]
    command = desk.command("run_tests.py", *flags(desk, **{"../../etc/passwd": slow}), "--jobs", "1")
    process = subprocess.Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("pass     multiply")
    desk.wait_for_entries(3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert {json.loads(path.read_text("utf-8"))["status"] for path in desk.traces()} == {"completed", "cancelled"}
    assert "**1 passed**" in (desk.folder / "test_results.md").read_text("utf-8")


def test_ctrl_c_waits_for_what_runs_side_by_side_and_counts_it(desk: Desk) -> None:
    slow = [{"content": CALCULATE, "seconds": 2}, {"content": answer("42")}]
    replies = desk.script({"*": slow})
    command = desk.command("run_tests.py", "two.yaml", "--backend", "scripted", "--scripted", replies, "--jobs", "2")
    process = subprocess.Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    desk.wait_for_entries(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert len(desk.traces()) == 2
    assert "2 runs: 0 passed, 0 failed, 2 invalid; 2 calls" in out


def test_all_tests_runs_every_suite_of_the_checkout(desk: Desk) -> None:
    replies = [*RIGHT, *RIGHT[-1:] * 12]  # enough for whatever a strategy asks, so that no run is invalid
    done = desk.inside("--all-tests", "--backend", "scripted", "--scripted", desk.script(replies))
    assert done.code == 1
    suites = {json.loads(path.read_text("utf-8"))["suite"] for path in desk.traces()}
    assert suites == {path.stem for path in (ROOT / "suites").glob("*.yaml")}
    assert (desk.folder / "test_results.md").is_file()


def test_the_core_suite_is_the_default(desk: Desk) -> None:
    done = desk.inside_suite("--only", "nosuch")
    assert "compound-interest" in done.line


def test_without_a_pattern_all_are_chosen() -> None:
    assert chosen([], None) == []


def test_a_live_table_obeys_nothing_hostile(desk: Desk) -> None:
    out = Tty()
    board = Board(make_console(out), [])
    with board.live():
        board.tell("\x1b]52;c;cHduZWQ=\x07 \u202e [red]x")
    assert "\u241b]52;c;cHduZWQ=\u2407 <U+202E> [red]x" in out.getvalue()
    assert "\x1b]" not in out.getvalue()
