"""show, verify, replay, and `--help`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

from agent.config import Settings
from cli.arguments import task_parser
from cli.compose import FLAGS
from cli.terminal import BAR_WIDTH
from main import SUBCOMMANDS, run
from tests.support_cli import MULTIPLY, ROOT, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_show_reads_a_run_back_on_a_terminal_and_as_markdown(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    trace = str(desk.traces()[0])
    shown = desk.main("show", trace)
    for line in ("Step 1", "THINK     I multiply.", "OBSERVE   42", "ANSWER    It is 42."):
        assert line in shown.out.splitlines()
    markdown = desk.main("show", trace, "--md").out
    assert markdown.startswith("# Run\n")
    assert '**ACT** `calculate_math(expression="6 * 7")`' in markdown.splitlines()


def test_a_trace_of_another_version_is_checked_and_only_strictness_minds(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    (path,) = desk.traces()
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"code": "another"}), "utf-8")
    done = desk.main("verify", "traces")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 trace: 1 ok (1 not replayed), 0 broken")
    assert "not replayed: another version of Shoestring made it" in done.out
    assert desk.main("verify", "--strict", "traces").code == 1


def test_a_trace_whose_clock_is_no_time_hides_no_other(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    (path,) = desk.traces()
    (path.parent / "other.json").write_text(
        json.dumps(json.loads(path.read_text("utf-8")) | {"run_id": "x", "now": "yesterday"}), "utf-8"
    )
    done = desk.main("verify", "traces")
    assert (done.code, done.out.splitlines()[-1]) == (1, "2 traces: 1 ok, 1 broken")
    assert "is not a valid trace: now: " in done.out


def test_verify_accepts_a_run_and_names_a_broken_promise(desk: Desk) -> None:
    desk.scripted("What is 6 * 7?", replies=MULTIPLY)
    assert desk.main("verify", "traces").out.splitlines()[-1] == "1 trace: 1 ok, 0 broken"
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
    assert "give --live-tools too" in desk.inside("replay", str(path), "--approve", "write=allow").line
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
    expected = {
        "backend",
        "strategy",
        "max_calls",
        "max_cost",
        "seed",
        "temperature",
        "toolset",
        "traces",
        "mcp_config",
    }
    assert set(named) == expected


def test_the_bar_of_the_meter_is_as_wide_as_the_default_cap() -> None:
    assert BAR_WIDTH == 10, "one cell a call"
