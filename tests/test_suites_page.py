"""docs/suites.md says all that a suite may hold, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from evals.asserts import ASSERT_CLASSES
from evals.cases import Case, CaseLimits, load_suite
from evals.run_asserts import ArgMatch
from tests.support_suites import write_suite

PAGE = (Path(__file__).parent.parent / "docs" / "suites.md").read_text()


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
