"""The search tools: exact matches, bounds, and nothing that leads out or runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent.tools.search import MAX_SEARCHED_BYTES
from tests.support_files import SECRET, Files, refused


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# -- search -----------------------------------------------------------------------------------------------------------


def test_a_text_is_found_in_any_case_with_its_line(files: Files) -> None:
    files.write("notes.txt", "one\n  The Budget is reserved\nand spent")
    files.write("sub/code.py", "budget = 1\n")
    files.write("other.txt", "nothing here")
    expected = "2 matches:\nnotes.txt:2: The Budget is reserved\nsub/code.py:1: budget = 1"
    assert files.search("BUDGET").data == expected
    assert files.search("budget", path="sub").data == "1 match:\nsub/code.py:1: budget = 1"
    assert files.search("budget", path="notes.txt").data == "1 match:\nnotes.txt:2: The Budget is reserved"
    assert files.search("stra\u00dfe").data == "no match"


def test_it_is_the_text_that_is_searched_and_no_pattern(files: Files) -> None:
    files.write("a", "f(x) = x.*\n")
    assert files.search("x.*").data == "1 match:\na:1: f(x) = x.*"
    assert files.search("f.x").data == "no match"


def test_names_of_files_and_folders_are_found(files: Files) -> None:
    files.write("Report/annual-report.md", "x")
    files.write("summary.txt", "report")
    assert files.search("report", target="names").data == "2 matches:\nReport/\nReport/annual-report.md"


def test_what_is_private_linked_binary_or_somebody_elses_is_passed_over(files: Files, tmp_path: Path) -> None:
    for path in (".env", ".git/config", ".cache/x", "node_modules/lib.js", "sub/__pycache__/x", "image"):
        (files.root / path).parent.mkdir(parents=True, exist_ok=True)
        (files.root / path).write_text(SECRET)
    (files.root / "image").write_text(f"{SECRET}\0")
    (files.root / "link").symlink_to(tmp_path / "outside.txt")
    (files.root / "folder").symlink_to(tmp_path)
    (files.root / "loop").symlink_to(".")
    assert files.search("secret").data == "no match"
    found = files.search("secret", path="node_modules").data
    assert found == f"1 match:\nnode_modules/lib.js:1: {SECRET}"
    for path in ("link", "folder", "folder/outside.txt", ".git", ".env"):
        assert refused(files.search("secret", path=path))


@pytest.mark.parametrize("query", ["", " ", "a\nb", "a\0", "x" * 201])
def test_a_query_that_cannot_stand_in_a_line_is_refused(files: Files, query: str) -> None:
    assert files.search(query).error_type in {"bad_query", "bad_args"}


def test_results_are_bounded_and_printable(files: Files) -> None:
    files.write("many", "\n".join(f"\x1b[2J needle {number} {'x' * 300}" for number in range(60)))
    result = files.search("needle", max_results=5)
    lines = result.data.split("\n")
    assert result.truncated
    assert lines[0] == "60 matches:"
    assert lines[1].startswith("many:1: [2J needle 0 xxx")
    assert lines[1].endswith("x...")
    assert len(lines[1]) == len("many:1: ") + 120
    assert lines[6:] == ["[cut here: 60 matches in all]"]
    assert refused(files.search("needle", max_results=51), "bad_args")


def test_very_much_is_searched_in_part_and_said_so(files: Files) -> None:
    for number in range(40):
        (files.root / f"{number:02}").write_text("x" * 1_000_000)
    (files.root / "99").write_text("needle")
    (files.root / "00").write_text("x" * MAX_SEARCHED_BYTES)
    started = time.monotonic()
    assert files.search("needle").data == "no match in what could be searched (name a path to look in less)"
    assert time.monotonic() - started < 5
    assert files.search("needle", path="99").data == "1 match:\n99:1: needle"
