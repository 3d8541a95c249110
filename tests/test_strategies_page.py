"""docs/strategies.md is what its generator records, and knows every strategy there is."""

from __future__ import annotations

import re

import pytest

from agent.strategies.registry import STRATEGIES
from scripts.strategy_table import ABOUT, ARITHMETIC, FILE, PAGE_PATH, record, render_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE_PATH.read_text("utf-8") == render_page(), "run: python -m scripts.strategy_table"


def test_every_strategy_stands_on_it() -> None:
    assert ABOUT.keys() == STRATEGIES.keys()
    assert re.findall(r"^## (\w+)$", PAGE_PATH.read_text("utf-8"), re.MULTILINE) == list(ABOUT)


def test_dispatch_multiplies_without_any_request() -> None:
    recorded = record("dispatch", ARITHMETIC, tools=True)
    assert (recorded.requests, recorded.state.answer) == ([], "749 * 192 = 143808")


@pytest.mark.parametrize(("tools", "chosen"), [(True, "native"), (False, "pipeline")])
def test_auto_sends_what_the_chosen_strategy_sends(tools: bool, chosen: str) -> None:
    assert record("auto", FILE, tools=tools).requests == record(chosen, FILE, tools=tools).requests
