"""main.py as a person types it: real processes, scripted replies, one line for each mistake."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from cli.intake import MAX_TASK_CHARS
from tests.support_cli import CALCULATE, MULTIPLY, Desk


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
    flags = "--max-calls 4 --max-cost 0.08 --seed 9 --temperature 0.5 --model mine --strategy react --toolset core"
    done = desk.scripted("What is 6 * 7?", *flags.split(), "--traces", "elsewhere", replies=MULTIPLY)
    assert done.code == 0, done.err
    trace = json.loads(desk.traces("elsewhere")[0].read_text("utf-8"))
    assert trace["limits"] == {"max_calls": 4, "max_cost_microusd": 80_000, "max_seconds": 600.0}
    assert (trace["sampling"]["seed"], trace["sampling"]["temperature"]) == (9, 0.5)
    assert (trace["model"]["name"], trace["strategy"], trace["toolset"]) == ("mine", "react", "core")


def test_a_task_that_is_a_subcommand_needs_two_dashes(desk: Desk) -> None:
    done = desk.scripted("--json", "--", "report", replies=MULTIPLY)
    assert done.code == 2, "what follows -- is never a flag"
    replies = desk.script(MULTIPLY)
    done = desk.main("--json", "--backend", "scripted", "--scripted", replies, "--", "report")
    assert json.loads((desk.folder / json.loads(done.out)["trace"]).read_text("utf-8"))["task"] == "report"


@pytest.mark.parametrize("word", ["chats", "serve", "mcp-server", "baseline", "reports"])
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
        pytest.param(["x", "--strategy", "magic"], "no strategy 'magic'", id="unknown strategy"),
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
