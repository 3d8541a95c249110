"""The README's table of tools is what the registry says."""

from __future__ import annotations

import pytest

from agent.tools.registry import TOOLSETS
from scripts.tool_table import LIMITS, README, table, with_table


def test_the_table_in_the_readme_is_up_to_date() -> None:
    page = README.read_text("utf-8")
    assert with_table(page) == page, "run: python -m scripts.tool_table"


def test_every_tool_has_a_line_with_its_limits() -> None:
    names = [tool.name for tools in TOOLSETS.values() for tool in tools]
    assert sorted(LIMITS) == sorted(names)
    lines = table().splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == names
    assert all(line.count("|") == 5 for line in lines)


def test_a_page_without_the_markers_is_told() -> None:
    with pytest.raises(ValueError, match="lacks the marker"):
        with_table("# A page\n")
