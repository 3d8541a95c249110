"""docs/suites.md says all that a suite may hold, and nothing else."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent.llm.backends.scripted import ScriptedReply
from agent.strategies.registry import STRATEGIES
from evals.asserts import ASSERT_CLASSES
from evals.cases import Case, CaseLimits, load_suite
from evals.run_asserts import ArgMatch
from evals.traces import load
from evals.verify import verify
from tests.support_cli import ROOT, Desk
from tests.support_suites import write_suite

PAGE = (ROOT / "docs" / "suites.md").read_text("utf-8")
SCRIPTED = PAGE.partition("\n## Scripted replies\n")[2]
# The strategies that a paragraph of one line names, with the file of replies below it.
REPLIES = [
    (strategy, replies)
    for told, replies in re.findall(r"^(`.+)\n\n```json\n([^`]*)```", SCRIPTED, re.MULTILINE)
    for strategy in re.findall(r"`(\w+)`", told)
    if strategy in STRATEGIES
]


def table(heading: str) -> dict[str, list[str]]:
    """The first table below a heading: the name in each row's first cell, and the names in its second."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {re.findall("`(.+?)`", first)[0]: re.findall("`(.+?)`", second) for first, second in rows}


@pytest.mark.parametrize(
    ("heading", "model"),
    [("Fields of a case", Case), ("Fields of `limits`", CaseLimits), ("Fields of an argument in `args`", ArgMatch)],
)
def test_every_field_has_its_row(heading: str, model: type[BaseModel]) -> None:
    assert table(heading).keys() == model.model_fields.keys()


def test_every_assert_type_has_its_row_and_its_fields() -> None:
    fields = {name: set(spec.model_fields) - {"type", "turn"} for name, spec in ASSERT_CLASSES.items()}
    assert {name: set(found) for name, found in table("Asserts").items()} == fields


def test_the_example_is_a_suite(tmp_path: Path) -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    (case,) = load_suite(write_suite(tmp_path, example)).cases
    assert case.id == "sum"


def test_every_field_of_a_scripted_reply_has_its_row() -> None:
    rows = [line.split("|")[1] for line in SCRIPTED.splitlines() if line.startswith("| `")]
    assert set(re.findall("`(.+?)`", "".join(rows))) == {field.name for field in fields(ScriptedReply)}


def test_every_strategy_has_its_replies() -> None:
    assert sorted(strategy for strategy, _ in REPLIES) == sorted(STRATEGIES)


@pytest.mark.parametrize(("strategy", "replies"), REPLIES)
def test_the_replies_of_a_strategy_solve_the_task_with_it(tmp_path: Path, strategy: str, replies: str) -> None:
    (command,) = re.findall(r"^\.venv/bin/python main\.py (.+)$", SCRIPTED, re.MULTILINE)
    (tmp_path / "FILE").write_text(replies, encoding="utf-8")
    desk = Desk(tmp_path)
    done = desk.inside(*(strategy if word == "NAME" else word for word in shlex.split(command)))
    assert done.code == 0, done.out + done.err
    (path,) = desk.traces()
    state = load(path)
    assert (state.status, state.strategy, state.answer) == ("completed", strategy, "They are 143,808 nails.")
    assert [result.data for step in state.steps for result in step.results if result.data] == ["143808"]
    assert verify(state) == []


def test_the_replies_of_a_suite_are_played_by_case(tmp_path: Path) -> None:
    replies = SCRIPTED.rpartition("```json\n")[2].partition("```")[0]
    (tmp_path / "replies.json").write_text(replies, encoding="utf-8")
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    suite = write_suite(tmp_path, example + example.removeprefix("cases:\n").replace("id: sum", "id: other"))
    desk = Desk(tmp_path)
    flags = ("--strategy", "native", "--backend", "scripted", "--scripted", "replies.json")
    assert desk.inside_suite(str(suite), *flags).code == 1
    states = {state.case_id: state for state in map(load, desk.traces())}
    assert {name: state.answer for name, state in states.items()} == {"sum": "It is 143808.", "other": "I do not know."}
    assert [verify(state) for state in states.values()] == [[], []]


def test_a_run_that_asks_for_one_reply_too_many_is_invalid(tmp_path: Path) -> None:
    (tmp_path / "replies.json").write_text("[]", encoding="utf-8")
    done = Desk(tmp_path).inside("Say hello.", "--backend", "scripted", "--scripted", "replies.json")
    assert done.code == 3
    assert "the script has only 0 replies and a further one was asked for" in done.out + done.err
