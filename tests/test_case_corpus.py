"""A case's corpus stays below its suite, and its hash follows all that a run is given and judged by."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import UsageError
from evals.cases import case_hash, load_suite
from tests.support_suites import GOOD, refused, with_assert, with_field, write_suite


def test_a_corpus_must_be_a_folder_of_texts_below_the_suite(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    for name in ("suites/ok", "suites/empty", "suites/linked", "suites/bad", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (folder / "ok" / "a.txt").write_text("text")
    (tmp_path / "outside" / "a.txt").write_text("secret")
    (folder / "empty" / "a.pdf").write_text("text")
    (folder / "bad" / "a.md").write_bytes(b"\xff")
    (folder / "linked" / "a.txt").symlink_to(tmp_path / "outside" / "a.txt")
    (folder / "away").symlink_to(tmp_path / "outside")
    (folder / "round").symlink_to(folder / "round")
    for name, said in {
        "../outside": "must be a folder below the suite file",
        "ok/../ok": "must be a folder below the suite file",
        str(folder / "ok"): "must be a folder below the suite file",
        ".": "must be a folder below the suite file",
        "away": "must be a folder below the suite file",
        "none": "there is no folder",
        "c" * 300: "cannot be looked for (File name too long)",
        "c/" * 3000: "may have at most 500 characters",
        "round": "cannot be looked for",
        "ok/a.txt": "there is no folder",
        "empty": "no .txt or .md file in it",
        "bad": "not UTF-8",
        "linked": "holds a link, a.txt; copy the file instead",
    }.items():
        message = refused(folder, with_field(f"corpus: '{name}'"))
        assert message.startswith("3: 'corpus' in case 'first': ")
        assert said in message, name
    assert load_suite(write_suite(folder, with_field("corpus: ok"))).cases[0].corpus == (folder / "ok").resolve()


def test_the_hash_follows_what_a_run_is_given_and_judged_by(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("one")

    def hash_of(text: str) -> str:
        return case_hash(load_suite(write_suite(tmp_path, text)).cases[0])

    plain = hash_of(GOOD)
    same = (GOOD.replace("first", "second"), with_field("tags: [x]"), with_field("weight: 2"), with_field("epochs: 2"))
    assert {hash_of(text) for text in same} == {plain}
    changed = [
        GOOD.replace("two.", "three."),
        with_assert("{type: answer_number, value: 5}"),
        with_assert("{type: answer_number, value: 4, tolerance: 1}"),
        with_field("strategy: react"),
        with_field("toolset: core"),
        with_field("tools: [calculate_math]"),
        with_field("limits: {max_calls: 3}"),
        with_field("evidence: false"),
        with_field("corpus: docs"),
    ]
    hashes = [hash_of(text) for text in changed]
    (tmp_path / "docs" / "a.md").write_text("two")
    hashes.append(hash_of(changed[-1]))
    (tmp_path / "docs" / "a.md").rename(tmp_path / "docs" / "b.md")
    hashes.append(hash_of(changed[-1]))
    assert len({plain, *hashes}) == len(changed) + 3


def test_a_corpus_that_went_away_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    document = tmp_path / "docs" / "a.md"
    document.write_text("one")
    (case,) = load_suite(write_suite(tmp_path, with_field("corpus: docs"))).cases
    document.unlink()
    document.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="cannot be read"):
        case_hash(case)
