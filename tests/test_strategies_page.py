"""docs/strategies.md is what its generator records, and knows every strategy there is."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from agent.strategies.registry import STRATEGIES
from scripts.strategy_table import ABOUT, ARITHMETIC, FILE, PAGE_PATH, record, render_page
from tests.support_cli import ROOT


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


def test_the_server_that_is_played_says_that_it_is_no_command() -> None:
    command = [sys.executable, "-m", "scripts.played_ollama"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = "scripts.played_ollama is no command; it serves: python -m scripts.strategy_table\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
