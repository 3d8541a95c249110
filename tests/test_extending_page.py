"""docs/extending.md: its tool, its strategy and its mistakes, each written to a file and run as the page says."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from agent.state import AgentState
from agent.strategies.react import React
from agent.strategies.registry import STRATEGIES, register_strategy
from tests.support_cli import ROOT, Desk, answer

PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [shlex.split(line)[2:] for line in re.findall(r"^\.venv/bin/python main\.py .+$", PAGE, re.MULTILINE)]
MISTAKES = re.findall(r"^shoestring: --plugin (\w+\.py).*$", PAGE, re.MULTILINE)
TALK = "to be or not to be"
COUNT = {
    "progress_check": "on_track",
    "thought": "I count.",
    "action": {"tool": "word_count", "args": {"text": TALK}},
    "final_answer": None,
}
MULTIPLY = {"tool": "calculate_math", "args": {"expression": "749 * 192"}}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for name, code in FILES.items():
        (tmp_path / name).write_text(f"# {name}\n{code}", encoding="utf-8")
    return Desk(tmp_path)


def run(desk: Desk, command: list[str], replies: list[object]) -> AgentState:
    """The run of one of the page's commands, which comes out the same when it is replayed with the same file."""
    done = desk.scripted(*command, replies=[{"content": reply} for reply in replies])
    assert done.code == 0, done.err
    (path,) = desk.traces()
    plugin = command[command.index("--plugin") + 1]
    assert desk.main("verify", str(path), "--plugin", plugin).out.splitlines() == [
        f"ok      {path}",
        "1 trace: 1 ok, 0 broken",
    ]
    assert desk.main("replay", str(path), "--plugin", plugin).code == 0
    assert plugin not in path.read_text("utf-8")
    return AgentState.model_validate_json(path.read_text("utf-8"))


def test_the_tool_is_called_by_a_run(desk: Desk) -> None:
    (command,) = (command for command in COMMANDS if "my_tools.py" in command)
    state = run(desk, command, [COUNT, answer("It has six.")])
    assert (state.tools, state.steps[0].results[0].data) == (["word_count"], "6")


def test_the_strategy_drives_a_run(desk: Desk) -> None:
    (command,) = (command for command in COMMANDS if "my_strategy.py" in command)
    state = run(desk, command, [MULTIPLY, "It is 143808."])
    assert (state.strategy, state.answer) == ("one_tool", "It is 143808.")
    assert [call.phase for call in state.calls] == ["choose", "answer"]


def test_without_its_file_a_run_is_checked_and_not_replayed(desk: Desk) -> None:
    (command,) = (command for command in COMMANDS if "my_strategy.py" in command)
    run(desk, command, [MULTIPLY, "It is 143808."])
    (path,) = map(str, desk.traces())
    verified = desk.inside("verify", path)
    assert (verified.code, "not replayed" in verified.out) == (0, True)
    assert desk.inside("show", path).code == 0
    replayed = desk.inside("replay", path)
    assert (replayed.code, "--plugin FILE" in replayed.line) == (2, True)


@pytest.mark.parametrize("file", MISTAKES)
def test_a_mistake_is_the_line_that_the_page_says(desk: Desk, file: str) -> None:
    (said,) = (line for line in PAGE.splitlines() if line.startswith(f"shoestring: --plugin {file}"))
    done = desk.main("x", "--plugin", file)
    assert (done.code, done.line, done.out) == (2, said, "")
    assert (desk.folder / "traces" / "shoestring.log").exists() == ("traceback" in said)
    assert desk.traces() == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import no_such_package", r":1: ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f():\n    return 1 / 0\nf()", r":2: ZeroDivisionError: division by zero"),
        ("import json\njson.loads('')", r":2: JSONDecodeError: "),
        ("raise SystemExit(0)", r":1: SystemExit: 0"),
        ("a\0b", r": (SyntaxError|is no Python file)"),
        ("from agent.strategies.registry import register_strategy as r\nr('A b', 1)", r":2: no strategy can be called"),
        ("from agent.strategies.registry import register_strategy as r\nr('own', 1)", r":2: strategy own: it is"),
        (
            "from agent.strategies.registry import register_strategy as r\nr('own', lambda *_: 1)",
            r":2: .*its `name` is",
        ),
    ],
)
def test_whatever_a_file_does_is_one_line(desk: Desk, code: str, says: str) -> None:
    (desk.folder / "mine.py").write_text(code, encoding="utf-8")
    done = desk.inside("x", "--plugin", "mine.py")
    assert re.match(rf"shoestring: --plugin mine\.py{says}", done.line)
    assert done.code == 2


def test_a_bug_of_a_tool_is_told_by_its_own_line(desk: Desk) -> None:
    code = (desk.folder / "my_tools.py").read_text("utf-8").replace("len(params", "1 / len(params")
    (desk.folder / "my_tools.py").write_text(code.replace("params.text.split()", "()"), encoding="utf-8")
    done = desk.scripted("x", "--plugin", "my_tools.py", "--toolset", "words", replies=[{"content": COUNT}])
    line = next(number for number, text in enumerate(code.splitlines(), 1) if "1 / len" in text)
    assert done.line.startswith(f"shoestring: this is a bug of my_tools.py:{line} (ZeroDivisionError: ")
    assert done.code == 70
    assert "my_tools.py" in (desk.folder / "traces" / "shoestring.log").read_text("utf-8")


def test_a_file_that_is_not_there_is_one_line(desk: Desk) -> None:
    done = desk.inside("x", "--plugin", "nosuch.py")
    assert (done.code, done.line) == (
        2,
        "shoestring: --plugin nosuch.py: cannot be read (No such file or directory); name a Python file",
    )


def test_the_same_file_twice_is_loaded_once_and_a_suite_takes_it_too(desk: Desk) -> None:
    (desk.folder / "once.py").write_text("print('loaded')\n", encoding="utf-8")
    (desk.folder / "s.yaml").write_text(
        "cases:\n  - id: x\n    task: How many words?\n    strategy: one_tool\n    toolset: core,words\n    asserts:\n"
        "      - {type: answer_contains, value: '6'}\n",
        encoding="utf-8",
    )
    plugins = [
        part for name in ("once.py", "./once.py", "my_tools.py", "my_strategy.py") for part in ("--plugin", name)
    ]
    script = desk.script([{"content": COUNT["action"]}, {"content": "It has 6."}])
    done = desk.run("run_tests.py", "s.yaml", *plugins, "--backend", "scripted", "--scripted", script)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("loaded") == 1


def test_a_strategy_may_be_registered_again_as_it_is() -> None:
    before = dict(STRATEGIES)
    register_strategy(React.name, React)
    assert before == STRATEGIES


def test_all_that_is_called_stable_is_there() -> None:
    rows = re.findall(r"^\| (`agent[^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 8
    for modules, names in rows:
        for module in re.findall("`(.+?)`", modules):
            for name in re.findall(r"`(\w+(?:\.\w+)?)`", names.partition("; of ")[0]):
                *below, last = name.split(".")
                assert hasattr(import_module(".".join([module, *below])), last), name
