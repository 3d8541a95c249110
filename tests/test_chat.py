"""main.py chat: one run whose turns come from a person, within one budget, and one trace."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.state import AgentState
from cli.intake import MAX_TASK_CHARS
from evals.verify import verify
from tests.support_cli import CALCULATE, Desk, answer
from tests.support_terminal import Terminal, at_terminal

TWO_TURNS = [{"content": CALCULATE}, {"content": answer("It is 42.")}, {"content": answer("You are welcome.")}]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def flags(desk: Desk, replies: object = TWO_TURNS) -> list[str]:
    return ["--backend", "scripted", "--scripted", desk.script(replies), "--no-color"]


def trace(desk: Desk) -> AgentState:
    """The one run, which has kept its promises."""
    (path,) = desk.traces()
    state = AgentState.model_validate_json(path.read_text("utf-8"))
    assert verify(state) == []
    return state


# -- at a terminal ----------------------------------------------------------------------------------------------------


def test_each_message_is_a_turn_of_one_run_and_the_budget_left_is_said(desk: Desk) -> None:
    with at_terminal(desk, "chat", *flags(desk)) as terminal:
        terminal.wait_for("10 of 10 calls, $0.200000 left\nyou> ")
        terminal.type("What is 6 * 7?\n")
        terminal.wait_for("ANSWER    It is 42.")
        terminal.wait_for("8 of 10 calls, $0.1")
        terminal.wait_for("you> ")
        terminal.type("Thanks\n")
        terminal.wait_for("ANSWER    You are welcome.")
        terminal.wait_for("you> ")
        terminal.type("/quit\n")
        assert terminal.end() == 0
    assert terminal.shown.count("You are welcome.") == 1
    assert f"trace     {desk.traces()[0].relative_to(desk.folder)}" in terminal.shown
    state = trace(desk)
    assert (state.status, state.task, state.follow_ups) == ("completed", "What is 6 * 7?", ["Thanks"])
    assert [step.turn for step in state.steps] == [0, 0, 1]


def test_the_first_message_may_stand_in_the_command(desk: Desk) -> None:
    with at_terminal(desk, "chat", "What is 6 * 7?", *flags(desk)) as terminal:
        terminal.wait_for("you> What is 6 * 7?")
        terminal.wait_for("It is 42.")
        terminal.wait_for("you> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert (trace(desk).status, trace(desk).follow_ups) == ("completed", [])


@pytest.mark.parametrize("leave", [lambda it: it.type("\x04"), Terminal.interrupt], ids=["Ctrl-D", "Ctrl-C"])
def test_whoever_leaves_at_once_has_run_nothing(desk: Desk, leave: Callable[[Terminal], None]) -> None:
    with at_terminal(desk, "chat", *flags(desk)) as terminal:
        terminal.wait_for("you> ")
        leave(terminal)
        assert terminal.end() == 0
    assert not (desk.folder / "traces").exists()


def test_empty_lines_and_commands_are_no_messages(desk: Desk) -> None:
    with at_terminal(desk, "chat", *flags(desk)) as terminal:
        for typed, said in (("\n", ""), ("  \n", ""), ("/help\n", "Ctrl-D ends the chat"), ("/exit\n", "no /exit")):
            terminal.wait_for("you> ")
            terminal.type(typed)
            terminal.wait_for(said)
        terminal.wait_for("you> ")
        terminal.type("/etc/passwd, what is it?\n")
        terminal.wait_for("ANSWER")
        terminal.wait_for("you> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert trace(desk).task == "/etc/passwd, what is it?"


def test_ctrl_c_during_an_answer_ends_the_chat_and_keeps_it(desk: Desk) -> None:
    slow = [*TWO_TURNS[:2], {"content": answer("late"), "seconds": 30}]
    with at_terminal(desk, "chat", "What is 6 * 7?", *flags(desk, slow)) as terminal:
        terminal.wait_for("It is 42.")
        terminal.wait_for("you> ")
        terminal.type("And now?\n")
        desk.wait_for_entries(3)
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    state = trace(desk)
    assert (state.status, state.follow_ups, len(state.ledger)) == ("cancelled", ["And now?"], 3)


def test_a_call_of_a_chat_is_put_to_the_person_too(desk: Desk) -> None:
    flagged = [*flags(desk), "--approve", "calculate_math=ask"]
    with at_terminal(desk, "chat", "What is 6 * 7?", *flagged) as terminal:
        terminal.wait_for("Allow this call? [y/N] ")
        terminal.type("y\n")
        terminal.wait_for("It is 42.")
        terminal.wait_for("you> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    assert trace(desk).steps[0].approvals[0].verdict == "allowed"


# -- in a pipe --------------------------------------------------------------------------------------------------------


def talk(desk: Desk, said: str, *args: str, replies: object = TWO_TURNS) -> tuple[int, list[str]]:
    """The exit code of a chat in a pipe, and its lines."""
    done = desk.main("chat", *flags(desk, replies), *args, stdin=said.encode())
    assert done.err == ""
    return done.code, done.out.splitlines()


def test_lines_of_a_pipe_are_messages(desk: Desk) -> None:
    code, lines = talk(desk, "What is 6 * 7?\r\n\n/help\nThanks")
    assert code == 0
    assert [line for line in lines if line.startswith(("you> ", "ANSWER"))] == [
        "you> What is 6 * 7?",
        "ANSWER    It is 42.",
        "you> /help",
        "you> Thanks",
        "ANSWER    You are welcome.",
    ]
    assert trace(desk).follow_ups == ["Thanks"]


def test_the_caps_hold_for_the_whole_chat_and_it_says_how_to_raise_them(desk: Desk) -> None:
    code, lines = talk(desk, "What is 6 * 7?\nThanks\nMore\n", "--max-calls", "3")
    assert code == 0
    assert lines[-1].startswith("NOTICE    the budget of this chat is used up")
    assert "--max-calls" in lines[-1]
    assert trace(desk).follow_ups == ["Thanks"]


def test_a_turn_that_cannot_be_paid_ends_the_chat(desk: Desk) -> None:
    code, lines = talk(desk, "What is 6 * 7?\nThanks\n", "--max-cost", "0.02")
    assert code == 1
    assert lines[-1].startswith("NOTICE    the budget of this chat is used up")
    assert trace(desk).status == "budget_exhausted"


def test_a_message_that_is_too_long_or_no_text_is_refused_in_one_line_and_the_next_is_taken(desk: Desk) -> None:
    long = b"x" * (5 * MAX_TASK_CHARS)
    done = desk.main("chat", *flags(desk), stdin=long + b"\n\xff\xfe\nWhat is 6 * 7?\n")
    notices = [line for line in done.out.splitlines() if line.startswith("NOTICE")]
    assert ["longer than 200,000 characters" in notices[0], "not UTF-8" in notices[1], len(notices)] == [True, True, 2]
    assert (done.code, trace(desk).task) == (0, "What is 6 * 7?")


def test_a_signal_between_two_messages_ends_the_chat_and_keeps_it(desk: Desk) -> None:
    process = subprocess.Popen(
        desk.command("main.py", "chat", "What is 6 * 7?", *flags(desk)),
        cwd=desk.folder,
        env=desk.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert any("8 of 10 calls" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert trace(desk).status == "completed"


def test_nobody_can_be_asked_in_a_pipe(desk: Desk) -> None:
    code, lines = talk(desk, "What is 6 * 7?\nThanks\n", "--approve", "calculate_math=ask")
    assert code == 1
    assert any("--approve calculate_math=allow" in line for line in lines)
    assert trace(desk).status == "confirmation_required"


def test_show_reads_a_chat_back_turn_by_turn(desk: Desk) -> None:
    talk(desk, "What is 6 * 7?\nThanks\n", "--approve", "clock=ask")
    shown = desk.inside("show", str(desk.traces()[0])).out.splitlines()
    assert "task      What is 6 * 7?" in shown
    assert shown[shown.index("Step 3") + 1] == "YOU       Thanks"


def test_an_answer_that_was_streamed_is_not_shown_twice(desk: Desk) -> None:
    code, lines = talk(desk, "Hello\n", "--strategy", "native", replies=["Good day to you."])
    assert code == 0
    assert [line for line in lines if "Good day" in line] == ["Good day to you."]


def test_a_chat_with_the_embedded_model_keeps_its_budget(desk: Desk) -> None:
    flagged = ["--backend", "embedded", "--max-calls", "1", "--strategy", "pipeline"]
    done = desk.main("chat", "Say hello.", *flagged, stdin=b"", MAX_COMPLETION_TOKENS="32")
    assert done.code in (0, 1), done.err
    assert trace(desk).calls_used == 1
