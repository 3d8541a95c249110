"""What a case asks for and there is not is refused before anything runs, by its line; a flag's fault is the flag's."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import Settings
from agent.errors import UsageError
from agent.state import Permission
from evals.cases import load_suite
from evals.plan import Ways, plan_suite
from tests.support_cli import Desk
from tests.support_suites import GOOD, with_assert, with_field, write_suite

STRATEGIES = "react, native, pipeline, two_phase, dispatch, auto"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (with_field("strategy: reac"), f"3: case 'first': no strategy 'reac'; use one of {STRATEGIES}"),
        (with_field("toolset: cor"), "3: case 'first': no toolset 'cor': use one of core, fs, web, code, pdf, browser"),
        (
            with_field("tools:\n  - clock\n  - clok"),
            "5: case 'first': no tool 'clok' in toolset core; it has web_search, calculate_math, execute_code, clock",
        ),
        (
            with_field("approve:\n    write: ask\n    wrte: deny"),
            "5: case 'first': approve: 'wrte' is neither an effect nor a tool (did you mean write?)",
        ),
        (with_assert("{type: tool_called, value: clok}"), "5: case 'first': the assert tool_called: there is no tool"),
        (
            with_assert("{type: any_of, value: [\n  {type: status, value: error},\n  {type: tool_result, tool: zz}]}"),
            "7: case 'first': the assert tool_result: there is no tool 'zz'; there are web_search, calculate_math",
        ),
        (
            with_assert("{type: answer_contains, value: a}\n  - {type: tool_not_called, value: [clock, web_serch]}"),
            "6: case 'first': the assert tool_not_called: there is no tool 'web_serch'; did you mean web_search?",
        ),
    ],
)
def test_what_there_is_not_is_refused_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = write_suite(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        plan_suite(Settings(_env_file=None), load_suite(path))
    assert str(refused.value).startswith(f"{path}:{said}")
    assert str(refused.value).isprintable()


def test_asserts_may_be_on_any_toolset_and_on_the_tools_of_servers(tmp_path: Path) -> None:
    asserts = "{type: tool_called, value: [read_file, mcp_notes_add]}"
    (plan,) = plan_suite(Settings(_env_file=None), load_suite(write_suite(tmp_path, with_assert(asserts))))
    assert plan.toolset == "core"


def test_what_a_flag_or_a_setting_says_is_not_told_as_the_suites(tmp_path: Path) -> None:
    text = with_field("strategy: reac\n  toolset: cor\n  approve: {wrte: ask}")
    suite, plain = load_suite(write_suite(tmp_path, text)), load_suite(write_suite(tmp_path, GOOD))
    rules: dict[str, Permission] = {"wrte": "deny"}
    right = Ways(("react",))
    with pytest.raises(UsageError, match=r"^no strategy 'other'"):
        plan_suite(Settings(_env_file=None), suite, ways=Ways(("other",)))
    with pytest.raises(UsageError, match=r"^no strategy 'other'"):
        plan_suite(Settings(_env_file=None, strategy="other"), plain)
    with pytest.raises(UsageError, match=r"^no toolset 'other'"):
        plan_suite(Settings(_env_file=None, toolset="other"), suite, ways=right, flags=["toolset"])
    with pytest.raises(UsageError, match=r"^no toolset 'other'"):
        plan_suite(Settings(_env_file=None, toolset="other"), plain)
    with pytest.raises(UsageError, match=r"^approve: 'wrte'"):
        plan_suite(Settings(_env_file=None), suite, ways=right, flags=["toolset"], approve=rules)


def test_a_task_is_refused_without_the_words_of_a_suite(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    flags = ("Hello!", "--backend", "scripted", "--scripted", desk.script([]))
    assert desk.inside(*flags, "--strategy", "reac").line == (
        f"shoestring: no strategy 'reac'; use one of {STRATEGIES}"
    )
    assert desk.inside(*flags, "--approve", "wrte=ask").line.startswith("shoestring: approve: 'wrte' is neither")
    assert desk.inside(*flags, "--workspace", "none").line == (
        "shoestring: the workspace 'none' is no folder; name one that is there"
    )
    assert desk.traces() == []
