"""main.py as a person types it: real processes, scripted replies, one line for each mistake."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from pkgutil import resolve_name

import pytest

from agent.config import Settings
from cli.arguments import task_parser
from cli.compose import FLAGS
from cli.intake import MAX_TASK_CHARS
from cli.terminal import BAR_WIDTH
from main import SUBCOMMANDS, run
from tests.support_cli import CALCULATE, ROOT, Desk, answer

MULTIPLY = [{"content": CALCULATE}, {"content": answer("It is 42.")}]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# -- one task ---------------------------------------------------------------------------------------------------------


def test_a_task_shows_its_steps_its_budget_its_answer_and_its_trace(desk: Desk) -> None:
    done = desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    labels = [line.split()[0] for line in done.out.splitlines()]
    assert labels == ["run", "budget", "THINK", "ACT", "OBSERVE", "budget", "THINK", "status", "ANSWER", "trace"]
    assert 'calculate_math(expression="6 * 7")' in done.out
    assert "##-------- 2/10 calls" in done.out
    assert (done.code, done.err) == (0, "")
    assert str(desk.traces()[0].relative_to(desk.folder)) in done.out.splitlines()[-1]


def test_json_is_exactly_one_object_and_nothing_else(desk: Desk) -> None:
    done = desk.scripted("What is 6 * 7?", "--json", replies=MULTIPLY)
    value = json.loads(done.out)
    counts = ["calls", "prompt_tokens", "completion_tokens", "cost_microusd"]
    assert list(value) == ["run_id", "status", "answer", *counts, "trace"]
    trace = json.loads((desk.folder / value["trace"]).read_text("utf-8"))
    assert (value["run_id"], value["status"], value["answer"]) == (trace["run_id"], "completed", "It is 42.")
    assert value["calls"] == len(trace["ledger"]) == 2
    assert value["cost_microusd"] == sum(entry["settled_microusd"] for entry in trace["ledger"])
    assert done.out.count("\n") == 1
    assert (done.code, done.err) == (0, "")


def test_flags_stand_over_the_environment_which_stands_over_the_file(desk: Desk) -> None:
    (desk.folder / ".env").write_text("SEED=1\nTEMPERATURE=0.1\nMAX_LLM_CALLS=3\n", encoding="utf-8")
    desk.scripted("What is 6 * 7?", "--seed", "5", replies=MULTIPLY, SEED="4", TEMPERATURE="0.4")
    trace = json.loads(desk.traces()[0].read_text("utf-8"))
    assert trace["sampling"]["seed"] == 5
    assert trace["sampling"]["temperature"] == 0.4
    assert trace["limits"]["max_calls"] == 3


def test_every_flag_of_a_run_reaches_its_trace(desk: Desk) -> None:
    flags = "--max-calls 4 --max-cost 0.05 --seed 9 --temperature 0.5 --model mine --strategy react --toolset core"
    done = desk.scripted("What is 6 * 7?", *flags.split(), "--traces", "elsewhere", replies=MULTIPLY)
    assert done.code == 0, done.err
    trace = json.loads(desk.traces("elsewhere")[0].read_text("utf-8"))
    assert trace["limits"] == {"max_calls": 4, "max_cost_microusd": 50_000, "max_seconds": 600.0}
    assert (trace["sampling"]["seed"], trace["sampling"]["temperature"]) == (9, 0.5)
    assert (trace["model"]["name"], trace["strategy"], trace["toolset"]) == ("mine", "react", "core")


def test_a_task_that_is_a_subcommand_needs_two_dashes(desk: Desk) -> None:
    done = desk.scripted("--json", "--", "report", replies=MULTIPLY)
    assert done.code == 2, "what follows -- is never a flag"
    replies = desk.script(MULTIPLY)
    done = desk.main("--json", "--backend", "scripted", "--scripted", replies, "--", "report")
    assert json.loads((desk.folder / json.loads(done.out)["trace"]).read_text("utf-8"))["task"] == "report"


@pytest.mark.parametrize("word", ["chat", "serve", "mcp-serve", "baseline", "reports"])
def test_a_word_that_is_no_subcommand_is_a_task(desk: Desk, word: str) -> None:
    done = desk.inside(word, "--json", "--backend", "scripted", "--scripted", desk.script(MULTIPLY))
    assert json.loads(done.out)["status"] == "completed"


def test_a_task_can_come_from_standard_input(desk: Desk) -> None:
    done = desk.scripted("-", "--json", replies=MULTIPLY, stdin="Wie viel ist 6 \u00d7 7?\n".encode())
    trace = json.loads((desk.folder / json.loads(done.out)["trace"]).read_text("utf-8"))
    assert trace["task"] == "Wie viel ist 6 \u00d7 7?"


def test_the_longest_task_is_taken(desk: Desk) -> None:
    done = desk.scripted("-", "--json", replies=MULTIPLY, stdin=b"x" * MAX_TASK_CHARS)
    assert json.loads(done.out)["status"] == "budget_exhausted", "a prompt that cannot be paid is not sent"


def test_a_run_that_spends_its_budget_exits_1_with_what_was_found(desk: Desk) -> None:
    done = desk.scripted("What is 6 * 7?", "--max-calls", "2", replies=[{"content": CALCULATE}, {"content": "no"}])
    assert done.code == 1
    assert re.search(r"^PARTIAL .*\n.*calculate_math: 42$", done.out, re.MULTILINE)


def test_a_server_that_fails_in_the_middle_makes_the_run_invalid(desk: Desk) -> None:
    replies = [{"content": CALCULATE}, {"status": 500, "body": {"error": "model runner has crashed"}}] + [
        {"status": 500, "body": {"error": "model runner has crashed"}}
    ] * 3
    done = desk.scripted("What is 6 * 7?", "--json", replies=replies)
    assert done.code == 3
    assert done.line.startswith("shoestring: the run is invalid")
    assert json.loads(done.out)["status"] == "error"


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "says"),
    [
        pytest.param([], "no task was given", id="no task"),
        pytest.param([""], "the task is empty", id="empty task"),
        pytest.param([" \n "], "the task is empty", id="blank task"),
        pytest.param(["two", "words"], "goes in quotes", id="unquoted task"),
        pytest.param(["x", "--modle", "y"], "unrecognized arguments: --modle", id="a typo in a flag"),
        pytest.param(["x", "--max-calls", "0"], "MAX_LLM_CALLS", id="no call at all"),
        pytest.param(["x", "--max-calls", "many"], "MAX_LLM_CALLS", id="calls in words"),
        pytest.param(["x", "--max-cost", "-1"], "MAX_COST_USD", id="negative money"),
        pytest.param(["x", "--max-cost", "nan"], "MAX_COST_USD", id="NaN money"),
        pytest.param(["x", "--temperature", "inf"], "TEMPERATURE", id="infinite temperature"),
        pytest.param(["x", "--backend", "gpt"], "LLM_BACKEND", id="unknown backend"),
        pytest.param(["x", "--strategy", "magic"], "STRATEGY", id="unknown strategy"),
        pytest.param(["x", "--toolset", "hammer"], "hammer", id="unknown toolset"),
        pytest.param(["x", "--backend", "scripted"], "--scripted FILE", id="a script that is not named"),
        pytest.param(["x", "--scripted", "r.json"], "--backend scripted", id="a script that nobody plays"),
        pytest.param(["x", "--backend", "scripted", "--scripted", "no.json"], "no.json", id="an unreadable script"),
        pytest.param(["x", "--backend", "openai"], "LLM_BASE_URL", id="a /v1 server that is not named"),
        pytest.param(["x", "--backend", "embedded", "--model", "no.gguf"], "no.gguf", id="a file that is not there"),
        pytest.param(["x", "--all-tests"], "--all-tests", id="a task beside all suites"),
        pytest.param(["show", "no.json"], "no.json: cannot be read", id="a trace that is not there"),
        pytest.param(["show"], "required: TRACE", id="no trace"),
        pytest.param(["replay", "no.json"], "no.json", id="a replay of nothing"),
        pytest.param(["verify", "no/such/folder"], "no/such/folder", id="a folder that is not there"),
        pytest.param(["report", "no/such/folder"], "no/such/folder", id="a report of nothing"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(desk: Desk, args: list[str], says: str) -> None:
    done = desk.inside(*args)
    assert says in done.line
    assert done.line.startswith("shoestring: ")
    assert (done.code, done.out) == (2, "")
    assert list(desk.folder.iterdir()) == [], "a refused command leaves nothing behind"


def test_a_task_of_ten_megabytes_is_one_line(desk: Desk) -> None:
    done = desk.main("-", stdin=b"x" * 10_000_000)
    assert f"longer than {MAX_TASK_CHARS:,} characters" in done.line
    assert done.code == 2


def test_a_task_that_is_no_text_is_one_line(desk: Desk) -> None:
    assert "not UTF-8 (byte 2)" in desk.main("-", stdin=b"ab\xff").line
    as_argument = subprocess.run(
        [*desk.command("main.py"), b"ab\xff"],
        env=desk.environment(PYTHONUTF8="1"),
        cwd=desk.folder,
        capture_output=True,
        check=False,
    )
    assert as_argument.returncode == 2
    assert b"not UTF-8" in as_argument.stderr


@pytest.mark.parametrize("content", ["{", '{"run_id": NaN}', "[]", '{"run_id": "x"}', "\x00\x1b[2J"])
def test_a_file_that_is_no_trace_is_one_line_that_names_it(desk: Desk, content: str) -> None:
    (desk.folder / "bad\x1b[2J.json").write_text(content, encoding="utf-8")
    for command in ("show", "replay"):
        done = desk.inside(command, "bad\x1b[2J.json")
        assert "bad\u241b[2J.json" in done.line
        assert (done.code, done.out) == (2, "")


def test_a_backend_that_is_down_is_one_line_and_exit_3(desk: Desk) -> None:
    for args in (["--backend", "ollama"], ["--model", "qwen3:4b"]):
        done = desk.main("What is 6 * 7?", *args)
        assert "127.0.0.1:9" in done.line
        assert (done.code, done.out) == (3, "")
    done = desk.main("What is 6 * 7?", "--backend", "openai", LLM_BASE_URL="http://127.0.0.1:9/v1")
    assert "127.0.0.1:9" in done.line
    assert done.code == 3
    assert desk.traces() == []


def test_a_file_where_the_traces_folder_has_to_be_is_left_alone(desk: Desk) -> None:
    (desk.folder / "file").write_text("not a folder", encoding="utf-8")
    done = desk.scripted("What is 6 * 7?", "--json", "--traces", "file/traces", replies=MULTIPLY)
    assert "file/traces" in done.line
    assert (done.code, done.out) == (2, "")


def test_a_bug_of_ours_is_one_line_and_its_traceback_is_in_the_log(desk: Desk) -> None:
    """The only way to reach one from outside is to break the program: a module that fails where it is imported."""
    (desk.folder / "broken").mkdir()
    (desk.folder / "broken" / "rich.py").write_text("raise AssertionError('broken \\x1b[2J on purpose')", "utf-8")
    done = desk.scripted("x", replies=MULTIPLY, PYTHONPATH=str(desk.folder / "broken"))
    assert done.code == 70
    assert "AssertionError: broken \u241b[2J on purpose" in done.line
    assert "traces/shoestring.log" in done.line
    assert "Traceback" in (desk.folder / "traces" / "shoestring.log").read_text("utf-8")


def test_a_package_that_is_missing_names_the_setup(desk: Desk) -> None:
    (desk.folder / "missing").mkdir()
    gone = "raise ModuleNotFoundError(\"No module named 'pydantic'\", name='pydantic')"
    (desk.folder / "missing" / "pydantic.py").write_text(gone, "utf-8")
    done = desk.main("x", PYTHONPATH=str(desk.folder / "missing"))
    assert "pydantic is not installed" in done.line
    assert "make setup" in done.line
    assert done.code == 2


# -- the terminal -----------------------------------------------------------------------------------------------------


def on_a_terminal(desk: Desk, *args: str, **settings: str) -> str:
    """What a command writes to a real (pseudo-)terminal."""
    ours, theirs = pty.openpty()
    environment = desk.environment(TERM="xterm-256color", COLUMNS="100", **settings)
    command = desk.command("main.py", *args)
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
    hostile = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\u202e\x9b2J[red]PASS"
    replies = desk.script([{"content": CALCULATE}, {"content": answer(hostile, thought=hostile)}])
    output = on_a_terminal(desk, "x", "--backend", "scripted", "--scripted", replies)
    assert "\x1b[35mACT" in output
    left = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", left)
    assert "[red]PASS" in left


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


def test_ctrl_c_ends_with_what_was_done(desk: Desk) -> None:
    replies = desk.script([{"content": CALCULATE}, {"content": answer("late"), "seconds": 30}])
    command = desk.command("main.py", "x", "--backend", "scripted", "--scripted", replies)
    process = subprocess.Popen(
        command, cwd=desk.folder, env=desk.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("OBSERVE"):
            break
    time.sleep(0.2)  # into the second call
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; what was done is kept" in err
    assert "PARTIAL" in out
    trace = json.loads(desk.traces()[0].read_text("utf-8"))
    assert (trace["status"], len(trace["ledger"])) == ("cancelled", 2)
    assert desk.main("verify", "traces").code == 0


# -- subcommands ------------------------------------------------------------------------------------------------------


def test_show_reads_a_run_back_on_a_terminal_and_as_markdown(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    trace = str(desk.traces()[0])
    shown = desk.main("show", trace)
    for line in ("Step 1", "THINK     I multiply.", "OBSERVE   42", "ANSWER    It is 42."):
        assert line in shown.out.splitlines()
    markdown = desk.main("show", trace, "--md").out
    assert markdown.startswith("# Run\n")
    assert '**ACT** `calculate_math(expression="6 * 7")`' in markdown.splitlines()


def test_verify_accepts_a_run_and_names_a_broken_promise(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    assert desk.main("verify", "traces").out.splitlines()[-1] == "1 traces: 1 ok, 0 broken"
    path = desk.traces()[0]
    trace = json.loads(path.read_text("utf-8"))
    trace["ledger"][0]["settled_microusd"] -= 1
    path.write_text(json.dumps(trace), "utf-8")
    done = desk.main("verify", "traces")
    assert done.out.startswith("BROKEN")
    assert done.code == 1


def test_replay_runs_a_trace_again_and_names_what_differs(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    path = desk.traces()[0]
    same = desk.main("replay", str(path))
    assert (same.code, same.out.splitlines()[-1]) == (0, "replay    nothing differs in 2 steps")
    assert desk.main("replay", str(path), "--live-tools").code == 0
    path.write_text(path.read_text("utf-8").replace('"data":"42"', '"data":"43"'), "utf-8")
    differs = desk.main("replay", str(path))
    assert differs.code == 1
    assert differs.out.splitlines()[-1].startswith("DIFFERS   step 2:")


def test_help_is_quick_and_names_every_subcommand_and_exit_code(desk: Desk) -> None:
    before = os.times()
    done = desk.main("--help")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 0.3
    assert done.code == 0
    for word in (*SUBCOMMANDS, "70", "130"):
        assert re.search(rf"\b{word}\b", done.out)


@pytest.mark.parametrize("word", SUBCOMMANDS)
def test_every_subcommand_has_its_help(capsys: pytest.CaptureFixture[str], word: str) -> None:
    with pytest.raises(SystemExit, match="0"):
        run([word, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: main.py {word}")
    assert callable(resolve_name(SUBCOMMANDS[word][1]))


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from cli import arguments; import cli.outcome, main; arguments.task_parser().format_help();"
    code += "print([m for m in ('pydantic', 'rich', 'requests', 'yaml', 'ddgs', 'xllamacpp') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_defaults_that_help_names_are_the_settings_own() -> None:
    helps = {action.dest: action.help or "" for action in task_parser()._actions}
    named = {flag: found[1] for flag, text in helps.items() if (found := re.search(r"\(default: (.+)\)", text))}
    for flag, text in named.items():
        default = Settings.model_fields[FLAGS[flag]].default
        assert type(default)(text) == default
    assert set(named) == {"backend", "strategy", "max_calls", "max_cost", "seed", "temperature", "toolset", "traces"}


def test_the_bar_of_the_meter_is_as_wide_as_the_default_cap() -> None:
    assert BAR_WIDTH == 10, "one cell a call"
