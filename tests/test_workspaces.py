"""A run's workspace: what it begins with, what is kept of it, and that nothing of it stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evals.workspaces import MAX_TEXT_BYTES, checked_name, fresh_workspace, listed


def test_it_holds_the_cases_files_and_is_gone_afterwards() -> None:
    with fresh_workspace({"a.txt": "one\n", "sub/b.txt": "two"}) as root:
        assert (root / "sub" / "b.txt").read_text() == "two"
        assert [(file.path, file.text) for file in listed(root)] == [("a.txt", "one\n"), ("sub/b.txt", "two")]
        (root / "c.txt").write_text("three")
    assert not root.exists()


def test_two_runs_never_share_one() -> None:
    with fresh_workspace({}) as one, fresh_workspace({}) as other:
        assert one != other


@pytest.mark.parametrize(
    "name", ["", "/etc/x", "../x", "a/../b", "a//b", "./a", "a/", "a\\b", "a\x00b", "a\nb", "x" * 201]
)
def test_a_name_that_is_no_plain_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="file's name must be"):
        checked_name(name)


def test_links_pipes_and_binaries_are_not_taken_for_texts(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("outside")
    with fresh_workspace({"real.txt": "x"}) as root:
        (root / "link.txt").symlink_to(tmp_path / "secret")
        os.mkfifo(root / "pipe")
        (root / "data.bin").write_bytes(b"\xff\xfe\x00")
        (root / "long.txt").write_text("x" * (MAX_TEXT_BYTES + 1))
        found = {file.path: file.text for file in listed(root)}
    assert found == {"real.txt": "x", "data.bin": None, "long.txt": None}


def test_the_texts_of_many_files_are_bounded_together() -> None:
    with fresh_workspace({f"{n:02}.txt": "x" * MAX_TEXT_BYTES for n in range(20)}) as root:
        texts = [file.text for file in listed(root)]
    assert sum(text is not None for text in texts) == 8
