"""Isolation as a run has it: the level stands in its trace, external is warned of, and asks unless it was allowed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agent.state import AgentState
from evals.verify import verify
from tests.support_cli import MULTIPLY, Desk, Outcome, answer
from tests.support_sandbox import RUNGS, isolation

PROGRAM: dict[str, Any] = {
    "progress_check": "on_track",
    "thought": "I run it.",
    "action": {"tool": "execute_code", "args": {"code": "print(6 * 7)"}},
    "final_answer": None,
}
RUN_IT = [{"content": PROGRAM}, {"content": answer("It is 42.")}]
WARNING = "programs are NOT isolated"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def run(desk: Desk, replies: Any, *flags: str) -> tuple[AgentState, str]:
    done = desk.inside("6 * 7?", "--backend", "scripted", "--scripted", desk.script(replies), *flags)
    (path,) = desk.traces()
    return AgentState.model_validate_json(path.read_text("utf-8")), done.out + done.err


@pytest.mark.parametrize("level", RUNGS)
def test_the_trace_says_what_isolated_its_programs(desk: Desk, level: Any) -> None:
    isolation(level)
    trace, told = run(desk, RUN_IT, "--sandbox", level)
    assert trace.sandbox == level
    assert trace.steps[0].results[0].data == "42"
    assert trace.approve["execute"] == "allow"
    assert WARNING not in told
    assert verify(trace) == []


def test_a_run_of_no_program_has_no_level(desk: Desk) -> None:
    assert run(desk, MULTIPLY)[0].sandbox is None


def test_external_is_warned_of_and_recorded_though_no_program_is_run(desk: Desk) -> None:
    trace, told = run(desk, MULTIPLY, "--sandbox", "external")
    assert trace.sandbox == "external"
    assert WARNING in told


def test_external_asks_before_it_runs_a_program(desk: Desk) -> None:
    trace, _ = run(desk, RUN_IT, "--sandbox", "external")
    assert (trace.status, trace.sandbox) == ("confirmation_required", "external")
    assert trace.steps[0].actions[0].arguments["code"] == "print(6 * 7)"


def test_external_runs_a_program_that_was_allowed(desk: Desk) -> None:
    trace, _ = run(desk, RUN_IT, "--sandbox", "external", "--approve", "execute=allow")
    assert (trace.status, trace.sandbox) == ("completed", "external")
    assert verify(trace) == []


def suite_with(desk: Desk, *flags: str) -> tuple[AgentState, Outcome]:
    """A suite whose only case allows programs, run with nothing to isolate them."""
    rules = "{execute: allow, execute_code: allow, write: deny}"
    suite = f"cases:\n  - {{id: one, task: 6 * 7?, approve: {rules}, asserts: [{{type: answer_number, value: 42}}]}}\n"
    (desk.folder / "suite.yaml").write_text(suite, "utf-8")
    scripted = ("--backend", "scripted", "--scripted", desk.script(RUN_IT))
    done = desk.inside_suite("suite.yaml", "--sandbox", "external", *scripted, *flags)
    return AgentState.model_validate_json(desk.traces()[0].read_text("utf-8")), done


def test_a_case_cannot_allow_what_nothing_isolates(desk: Desk) -> None:
    trace, done = suite_with(desk)
    assert trace.status == "confirmation_required"
    assert (trace.approve["execute"], trace.approve["write"]) == ("ask", "deny")
    assert done.err.count(WARNING) == 1
    assert "| Isolation | `external` |" in (desk.folder / "test_results.md").read_text("utf-8")


def test_the_command_line_can(desk: Desk) -> None:
    assert suite_with(desk, "--approve", "execute_code=allow")[0].status == "completed"


def test_external_is_warned_of_beside_json_too(desk: Desk) -> None:
    scripted = ("--backend", "scripted", "--scripted", desk.script(MULTIPLY))
    done = desk.inside("6 * 7?", "--json", "--sandbox", "external", *scripted)
    assert WARNING in done.line


def test_another_word_is_refused(desk: Desk) -> None:
    done = desk.inside("6 * 7?", "--backend", "scripted", "--scripted", desk.script(MULTIPLY), "--sandbox", "docker")
    assert done.code == 2
    assert "SANDBOX" in done.line


def test_without_a_sandbox_the_other_tools_go_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sandbox.ladder._tested", {})
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    trace, _ = run(desk, [RUN_IT[0], *MULTIPLY])
    refused, multiplied = (step.results[0] for step in trace.steps[:2])
    assert (refused.error_type, multiplied.data) == ("no_sandbox", "42")
    assert (trace.status, trace.sandbox) == ("completed", None)
