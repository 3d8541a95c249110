"""Two tasks from the command line, played by a competent model: a file written and read, this repository searched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.state import AgentState
from cli.outcome import FAILED, OK
from evals.verify import verify
from tests.support_cli import ROOT, Desk, answer

HELLO = "Write hello three times into notes.txt, then read it back"
WHERE = "Find where the budget is reserved and explain it"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def trace(desk: Desk) -> AgentState:
    """The one run, which has kept its promises."""
    (path,) = desk.traces()
    state = AgentState.model_validate_json(path.read_text("utf-8"))
    assert verify(state) == []
    return state


def actions(*calls: tuple[str, dict[str, Any]]) -> str:
    """An array of actions as two_phase asks for it."""
    return json.dumps([{"tool": tool, "args": args} for tool, args in calls])


def test_hello_is_written_three_times_and_read_back(desk: Desk) -> None:
    content = "hello\n" * 3
    script = desk.script(
        [
            "I write the file, then I read it.",
            actions(("write_file", {"path": "notes.txt", "content": content}), ("read_file", {"path": "notes.txt"})),
            "It is all there.",
            actions(("finish", {"summary": "notes.txt says hello three times."})),
        ]
    )
    flags = ["--toolset", "fs", "--strategy", "two_phase", "--backend", "scripted", "--scripted", script]
    done = desk.inside(HELLO, *flags, "--keep-workspaces")
    assert done.code == 0, done.err
    state = trace(desk)
    assert [result.data for result in state.steps[0].results][-1] == content
    assert state.workspace is not None
    assert [(file.path, file.text) for file in state.workspace.after] == [("notes.txt", content)]
    (kept,) = (desk.folder / "traces" / "workspaces").iterdir()
    assert (kept / "notes.txt").read_text() == content


def test_the_model_in_the_box_leaves_a_valid_trace_of_it(desk: Desk) -> None:
    """Whatever it says. Few and short calls, because each of its tokens is real work."""
    flags = ["--toolset", "fs", "--strategy", "two_phase", "--backend", "embedded", "--max-calls", "4"]
    done = desk.main(HELLO, *flags, MAX_COMPLETION_TOKENS="32")
    assert done.code in (OK, FAILED), done.err
    state = trace(desk)
    assert (state.model.backend, state.strategy) == ("embedded", "two_phase")
    assert 1 <= len(state.calls) <= 4


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
def test_where_the_budget_is_reserved_is_found_in_this_repository(desk: Desk) -> None:
    """Each call uses what the one before it told: a model that reads its results can do this."""

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"content": answer("") | {"action": {"tool": name, "args": arguments}, "final_answer": None}}

    source = (ROOT / "agent" / "budget.py").read_text("utf-8").split("\n")
    line = next(number for number, text in enumerate(source, 1) if text.strip().startswith("def reserve("))
    explained = f"BudgetEnforcer.reserve (agent/budget.py, line {line}) checks and records the worst case in one step."
    script = desk.script(
        [
            call("search_codebase", pattern="def reserve(", directory="agent"),
            call("read_file_chunk", path="agent/budget.py", start_line=line, end_line=line + 20),
            {"content": answer(explained)},
        ]
    )
    flags = ["--toolset", "code,fs", "--workspace", str(ROOT), "--strategy", "react"]
    done = desk.inside(WHERE, *flags, "--backend", "scripted", "--scripted", script)
    assert done.code == 0, done.err
    state = trace(desk)
    found, read = (step.results[0] for step in state.steps[:2])
    if found.error_type == "no_sandbox":
        pytest.skip("no sandbox works on this machine")
    assert f"agent/budget.py:{line}: def reserve(" in found.data.split("\n")
    assert read.data.split("\n")[1].strip() == "def reserve("
    assert state.answer == explained
    assert state.workspace is not None
    assert (state.workspace.folder, state.workspace.after) == (str(ROOT), [])
