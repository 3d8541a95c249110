"""Executable docs: the help in the README is the help; every command, path and make target in the docs exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent.strategies.registry import STRATEGIES
from cli.arguments import STRATEGIES_LISTED

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *("README.md", "CONTRIBUTING.md", "decisions.md", "docs/suites.md", "docs/benchmarks.md", "docs/log.md"),
    *("docs/extending.md", "docs/mcp.md", "docs/security.md", "docs/strategies.md"),
]
HELP = re.compile(r"<!-- help: (\S+) --help -->\n```\n(.*?)```\n<!-- end -->", re.DOTALL)
SUBCOMMANDS = ("chat", "report", "verify", "replay", "show", "models", "doctor")


def text(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


@pytest.mark.parametrize(("script", "shown"), HELP.findall(text("README.md")))
def test_the_help_in_the_readme_is_the_help(script: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, script, "--help"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown == done.stdout


def test_the_readme_shows_the_help_of_main() -> None:
    assert [script for script, _ in HELP.findall(text("README.md"))] == ["main.py"]


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_exist(page: str) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text(page)):
        if not target.startswith("http"):
            assert (folder / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_and_benchmarks_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    for target in re.findall(r"`make ([a-z-]+)[^`]*`|^make ([a-z-]+)", text(page), re.MULTILINE):
        assert (target[0] or target[1]) in targets, target
    for module in re.findall(r"-m (benchmarks|evals|scripts)\.(\w+)", text(page)):
        assert (ROOT / module[0] / f"{module[1]}.py").is_file(), module


def test_pages_agree_on_how_long_the_tests_take() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        assert "in six to eight minutes" in " ".join(text(page).split()), page


def test_strategies_are_listed_in_one_order() -> None:
    listed = re.findall(r"^\| `(\w+)` \| .* \|$", text("README.md").partition("| `--strategy` |")[2], re.MULTILINE)
    assert listed[: len(STRATEGIES)] == list(STRATEGIES)
    assert ", ".join(STRATEGIES) == STRATEGIES_LISTED


def test_every_subcommand_stands_in_the_readme() -> None:
    for name in SUBCOMMANDS:
        assert f"main.py {name}" in text("README.md")


def test_no_page_names_a_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/roo[t]/|/home/\w|/wor[k]/", text(page)), page
