"""`--approve write=ask`: a person is shown the whole call; where nobody can be asked, the run says how to allow it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.state import AgentState
from evals.verify import verify
from tests.support_cli import Desk, answer
from tests.support_terminal import Terminal, at_terminal

QUESTION = "Allow this call? [y/N] "
LONG = "".join(f"line {number}\n" for number in range(160)) + "the very end\x1b[2J\npath  forged.txt"

NOT_DONE = [answer("Not done.")] * 2  # react's first answer without any evidence is rejected


def write(content: str = LONG) -> dict[str, Any]:
    """A reply that writes a file."""
    action = {"tool": "write_file", "args": {"path": "notes/a.txt", "content": content}}
    return {"progress_check": "on_track", "thought": "I write.", "action": action, "final_answer": None}


def flags(desk: Desk, *replies: object) -> list[str]:
    """A task that writes, with what the model says after that."""
    script = desk.script([{"content": write()}, *({"content": reply} for reply in replies)])
    rules = ["--toolset", "fs", "--approve", "write=ask"]
    return ["Write it down.", *rules, "--backend", "scripted", "--scripted", script, "--no-color"]


def trace(desk: Desk) -> AgentState:
    """The one run, which has kept its promises."""
    (path,) = desk.traces()
    state = AgentState.model_validate_json(path.read_text("utf-8"))
    assert verify(state) == []
    return state


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def asked(terminal: Terminal, typed: str) -> int:
    """Wait for the question, type, and see the command end."""
    terminal.wait_for(QUESTION)
    terminal.type(typed)
    return terminal.end()


def test_yes_is_the_call_made_and_all_of_it_was_shown(desk: Desk) -> None:
    with at_terminal(desk, *flags(desk, answer("Done."))) as terminal:
        assert asked(terminal, "y\n") == 0
    lines = [line.strip() for line in terminal.shown.splitlines()]
    question = next(place for place, line in enumerate(lines) if line.startswith(QUESTION.strip()))
    assert lines[question - 1] == 'write_file, path "notes/a.txt"'  # again, as all else may have moved out of sight
    shown = lines[lines.index("ASK       write_file, with:") : question - 1]
    assert [line.removeprefix("content ").strip() for line in shown[2:162]] == [f"| line {n}" for n in range(160)]
    assert shown[162:164] == ["| the very end\u241b[2J", "| path  forged.txt"]
    assert [line.split() for line in shown[164:]] == [["mode", '"overwrite"', "(left", "out)"]]
    state = trace(desk)
    assert state.steps[0].approvals[0].verdict == "allowed"
    assert state.workspace is not None
    assert [(file.path, file.text) for file in state.workspace.after] == [("notes/a.txt", LONG)]


@pytest.mark.parametrize("first", ["", "y = 2\n"], ids=["one line", "several lines"])
def test_a_long_line_is_folded_with_a_mark_and_not_a_blank_of_it_is_lost(desk: Desk, first: str) -> None:
    wide, joined = "\u4e2d" * 50, "\U0001f469\u200d\U0001f52c" * 15
    hidden = f"x = 1{' ' * 200}import os # {wide} {joined} the end"
    script = desk.script([{"content": write(first + hidden)}, *({"content": reply} for reply in NOT_DONE)], "long.json")
    with at_terminal(desk, *flags(desk), "--scripted", script) as terminal:
        assert asked(terminal, "n\n") == 0
    lines = terminal.shown[terminal.shown.index("ASK") :].splitlines()
    begins = next(place for place, line in enumerate(lines) if "x = 1" in line)
    ends = next(place for place, line in enumerate(lines) if "the end" in line)
    column = lines[begins].index("|" if first else '"')
    shown = [line[column:] for line in lines[begins : ends + 1]]
    assert {line[:2] for line in shown[1:]} == {"+ "}
    assert {line[:column].strip() for line in lines[begins + 1 : ends + 1]} == {""}
    assert hidden in shown[0] + "".join(line[2:] for line in shown[1:])
    # Every terminal has room for these, also one that gives each code point what it is given alone.
    assert all(sum(1 if character.isascii() else 2 for character in line) <= 100 for line in lines[begins : ends + 1])


def test_where_a_call_works_is_shown_whole_above_the_question(desk: Desk) -> None:
    path = f"notes/{'a' * 90}{' ' * 90}.txt"
    call = write("x")
    call["action"]["args"]["path"] = path
    script = desk.script([{"content": call}, *({"content": reply} for reply in NOT_DONE)], "long.json")
    with at_terminal(desk, *flags(desk), "--scripted", script) as terminal:
        assert asked(terminal, "n\n") == 0
    lines = terminal.shown.splitlines()
    question = next(place for place, line in enumerate(lines) if line.startswith(QUESTION.strip()))
    above = lines[question - 3 : question]
    assert [line[:2] for line in above[1:]] == ["+ ", "+ "]
    assert above[0] + "".join(line[2:] for line in above[1:]) == f'write_file, path "{path}"'


def test_that_a_file_would_be_replaced_is_said(desk: Desk) -> None:
    own = desk.folder / "own"
    (own / "notes").mkdir(parents=True)
    (own / "notes" / "a.txt").write_text("what was there")
    with at_terminal(desk, *flags(desk, *NOT_DONE), "--workspace", str(own)) as terminal:
        assert asked(terminal, "n\n") == 0
    assert "NOTICE    notes/a.txt is there already (14 bytes) and would be replaced" in terminal.shown
    assert (own / "notes" / "a.txt").read_text() == "what was there"


@pytest.mark.parametrize("typed", ["\n", "yess, no\n"])
def test_anything_but_yes_is_no_and_the_model_is_told(desk: Desk, typed: str) -> None:
    with at_terminal(desk, *flags(desk, *NOT_DONE)) as terminal:
        assert asked(terminal, typed) == 0
    state = trace(desk)
    assert state.steps[0].approvals[0].verdict == "denied"
    assert state.steps[0].results[0].error_type == "denied"
    assert state.workspace is None


@pytest.mark.parametrize("key", ["\x04", "\x03"], ids=["Ctrl-D", "Ctrl-C"])
def test_the_end_of_the_input_or_ctrl_c_ends_the_run_and_keeps_it(desk: Desk, key: str) -> None:
    with at_terminal(desk, *flags(desk, answer("Never."))) as terminal:
        assert asked(terminal, key) == 130
    assert "Traceback" not in terminal.shown
    state = trace(desk)
    assert (state.status, len(state.calls), state.workspace) == ("cancelled", 1, None)
    assert desk.inside("replay", str(desk.traces()[0])).code == 0


@pytest.mark.parametrize("signals", [True, False])
def test_a_terminal_that_is_closed_is_a_person_who_has_gone(desk: Desk, signals: bool) -> None:
    with at_terminal(desk, *flags(desk, answer("Done.")), signals=signals) as terminal:
        terminal.wait_for(QUESTION)
        assert terminal.close() == 130
    assert trace(desk).status == "cancelled"
    assert not (desk.folder / "traces" / "shoestring.log").exists()


def test_a_run_goes_on_to_its_trace_when_nobody_reads_any_more(desk: Desk) -> None:
    script = desk.script([{"content": answer("Done."), "seconds": 1.0}] * 2)
    flags = ("Go on.", "--backend", "scripted", "--scripted", script)
    with at_terminal(desk, *flags, signals=False) as terminal:
        terminal.wait_for("run")
        assert terminal.close() == 0
    assert trace(desk).status == "completed"


def test_what_was_typed_before_the_question_is_no_answer_to_it(desk: Desk) -> None:
    slow = [{"content": write(), "seconds": 0.5}, *({"content": reply} for reply in NOT_DONE)]
    command = [*flags(desk), "--scripted", desk.script(slow, "slow.json")]
    with at_terminal(desk, *command) as terminal:
        terminal.wait_for("run ")
        terminal.type("y\ny\n")
        assert asked(terminal, "n\n") == 0
    assert trace(desk).steps[0].approvals[0].verdict == "denied"


def test_the_time_that_the_person_takes_is_not_the_runs(desk: Desk) -> None:
    with at_terminal(desk, *flags(desk, answer("Done.")), MAX_RUN_SECONDS="1") as terminal:
        terminal.wait_for(QUESTION)
        terminal.wait(1.1)
        terminal.type("y\n")
        assert terminal.end() == 0
    assert trace(desk).status == "completed"


def test_where_nobody_can_be_asked_the_run_ends_and_says_how_to_allow_it(desk: Desk) -> None:
    done = desk.inside(*flags(desk))
    assert done.code == 1
    lines = [line.strip() for line in done.out.splitlines()]
    call = lines.index("ASK       write_file, with:")
    assert lines[call + 1] == 'path    "notes/a.txt"'
    assert "| the very end\u241b[2J" in lines
    assert "NOTICE    allow it with --approve write_file=allow, or run this at a terminal, where you are asked" in lines
    state = trace(desk)
    assert (state.status, state.steps[0].approvals[0].verdict) == ("confirmation_required", "unanswered")


def test_with_json_the_way_to_allow_it_is_one_line_of_stderr(desk: Desk) -> None:
    done = desk.inside(*flags(desk), "--json")
    assert done.code == 1
    assert json.loads(done.out)["status"] == "confirmation_required"
    assert "allow it with --approve write_file=allow" in done.line


def test_allow_and_deny_ask_nobody(desk: Desk) -> None:
    command = flags(desk, *NOT_DONE)
    command[command.index("write=ask")] = "write=ask,write_file=deny"
    assert desk.inside(*command).code == 0
    state = trace(desk)
    assert (state.steps[0].results[0].error_type, state.steps[0].approvals) == ("forbidden", [])
    given = {"write": "ask", "write_file": "deny"}
    assert state.approve == {"read": "allow", "execute": "allow", "network": "allow", **given}


@pytest.mark.parametrize(
    ("rule", "says"),
    [("write", "is no rule"), ("write=maybe", "is no rule"), ("wite=ask", "did you mean write?"), ("", "is no rule")],
)
def test_a_rule_that_protects_nobody_is_refused(desk: Desk, rule: str, says: str) -> None:
    command = flags(desk)
    command[command.index("write=ask")] = rule
    done = desk.inside(*command)
    assert done.code == 2
    assert says in done.line
    assert desk.traces() == []
