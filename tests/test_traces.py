"""Trace files: written whole, named safely, and read back with a clear word on what is wrong."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.state import SCHEMA_VERSION
from evals.store import TraceStore
from evals.traces import load, load_all, slug, trace_name
from evals.verify import verify
from tests.support_store import store
from tests.support_traces import GENUINE, genuine, judged

__all__ = ["store"]  # a fixture: used by name, as a parameter


@pytest.mark.parametrize("kind", GENUINE)
def test_a_trace_reads_back_as_it_was(kind: str, store: TraceStore) -> None:
    state = judged(genuine(kind), case_id=kind)
    assert load(store.write(state)) == state


def test_a_trace_is_ascii_readable_by_all_and_alone(store: TraceStore) -> None:
    state = genuine("completed")
    state.answer = "é \u2028 \U0001f600"
    path = store.write(state)
    assert path.read_bytes().isascii()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [item.name for item in store.folder.iterdir()] == [path.name]


def test_a_private_umask_does_not_hide_the_results(store: TraceStore) -> None:
    before = os.umask(0o077)
    try:
        path = store.write(genuine("completed"))
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_half_a_character_from_a_model_is_kept(store: TraceStore) -> None:
    state = genuine("completed")
    state.answer = "\ud83d and \udc00"
    state.steps[0].actions[0].arguments["nan"] = float("nan")
    path = store.write(state)
    assert load(path).answer == state.answer
    assert "NaN" not in path.read_text("ascii")


def test_writing_a_run_again_replaces_its_trace(store: TraceStore) -> None:
    state = genuine("completed")
    first = store.write(state)
    state.answer = "another"
    assert store.write(state) == first
    assert [s.answer for s in load_all(store.folder)] == ["another"]


@pytest.mark.parametrize(
    "case_id",
    ["../../etc/passwd", "/", "", "..", ".hidden", "a\x00b", "x" * 500, "\ud800", "A b/C\\d", "con.json", "é"],
)
def test_no_id_leads_out_of_the_folder(case_id: str, store: TraceStore) -> None:
    state = judged(genuine("completed"), case_id="x")
    state.case_id = state.run_id = state.strategy = state.task = case_id
    path = store.write(state)
    assert path.parent == store.folder
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}-[a-z0-9-]{1,20}-[0-9a-f]{10}\.json", path.name)
    assert path.is_file()


def test_runs_of_one_case_have_files_of_their_own() -> None:
    first, second = judged(genuine("completed"), case_id="same"), judged(genuine("completed"), case_id="same")
    second.run_id += "!"
    assert trace_name(first) != trace_name(second)
    assert trace_name(first).startswith("same-react-")
    assert slug("Café in 2 Words!") == "caf-in-2-words"


def test_traces_come_in_the_order_the_runs_began(store: TraceStore) -> None:
    for number, case_id in enumerate(("c", "a", "b")):
        state = judged(genuine("completed"), case_id=case_id, batch_id=f"batch-{number % 2}")
        state.started_at = f"2026-01-05T10:00:0{number}.000+00:00"
        store.write(state)
    assert [state.case_id for state in load_all(store.folder)] == ["c", "a", "b"]
    assert [state.case_id for state in load_all(store.folder, "batch-0")] == ["c", "b"]
    assert load_all(store.folder, "no such") == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "line 1, column 1: not JSON"),
        (b'{"run_id": "x",\n', "line 2, column 1: not JSON"),
        (b"[1]", "is not a trace"),
        (b'{"cases": []}', "is not a trace"),
        (b'{"run_id": "x", "seconds": NaN}', "it holds NaN"),
        (b'{"run_id": "x", "seconds": -Infinity}', "it holds -Infinity"),
        (b'{"run_id": "x", "schema_version": 99}', f"reads up to {SCHEMA_VERSION}"),
        (b'{"run_id": "x"}', "is not a valid trace: task: Field required (and "),
        (b"\xff\xfe", "is not UTF-8 (byte 0)"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "cannot be a trace"),
    ],
)
def test_what_is_no_trace_is_named_in_one_line(content: bytes, word: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        load(path)
    assert word in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "missing.json", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(UsageError) as refused:
            load(path)
        assert str(refused.value) == f"{path}: cannot be read ({why})"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_matter_of_permissions(tmp_path: Path) -> None:
    path = tmp_path / "closed.json"
    path.write_text("{}")
    path.chmod(0)
    with pytest.raises(UsageError, match=r"cannot be read \(Permission denied\); check its permissions$"):
        load(path)


def test_a_surprising_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(genuine("completed").model_dump() | {"surprise": 1}))
    with pytest.raises(UsageError, match="surprise: Extra inputs are not permitted"):
        load(path)


@pytest.mark.parametrize("kind", ["completed", "retried", "refused_connection", "unreadable_replies"])
def test_a_trace_of_schema_1_is_read_and_still_verifies(kind: str, tmp_path: Path) -> None:
    document = json.loads(genuine(kind).model_dump_json())
    (known,) = document.pop("system_prompt_hashes")
    for field in ("follow_ups", "chosen", "now", "workspace", "approve", "tool_faults", "sandbox", "code"):
        document.pop(field)
    for call in document["calls"]:
        for field in ("after", "phase", "continues", "stop", "answer_caps"):
            call.pop(field)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document | {"schema_version": 1, "system_prompt_hash": known}))
    assert verify(load(path)) == []
