"""Traces that somebody changed: whatever stands in a file, its reader gets what they asked for, or one clear line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import UsageError
from agent.state import AgentState, AssertResult, Verdict
from cli.show import render_markdown
from evals.replay import LiveTools, cannot_be_played, replay
from evals.report import render_report
from evals.traces import dump, load
from evals.verify import verify, verify_paths
from tests.support_cli import Desk
from tests.support_runs import answer, run_script, turn
from tests.support_traces import GENUINE, genuine

Document = dict[str, Any]
Place = tuple[str | int, ...]

HUGE = 10**40
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**63, 2**64 + 1, HUGE, -HUGE, 10**400, 0.5, -1e308, 1e-320),
    *("", ".", "../x", "/etc/x", "a\0b", "x\ny", "\ud800", "(", "x" * 5000, "é" * 150, "b.txt/x"),
    *("2026-13-01", "2026-01-01T00:00:00", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00"),
    *("exact", "rendered", "refunded", "open", "cancelled", "error", "batch", "native", "auto", "fs", "core", "ask"),
    *([], {}, [1], ["x"], {"a": 1}, {"../x": "allow"}),
)


def in_folder(folder: Path) -> AgentState:
    """A run that found files, wrote one, asked for the time and was judged."""
    (folder / "d").mkdir()
    (folder / "d" / "a.txt").write_text("hello")
    (folder / "b.txt").write_text("x")
    write = {"tool": "write_file", "args": {"path": "n.txt", "content": "new"}}
    state = run_script([turn(action=write), answer("3")], workspace=folder, tools_named="fs")
    state.now = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    state.verdict = Verdict(
        outcome="fail",
        asserts=[
            AssertResult(type="answer_regex", expected="3", passed=True),
            AssertResult(type="file_is", expected={"path": "n.txt", "equals": "new"}, passed=True),
            AssertResult(type="any_of", expected=[{"type": "answer_contains", "value": "4"}], passed=False),
        ],
    )
    return state


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Good traces, as they stand in their files."""
    states = {kind: genuine(kind) for kind in GENUINE}
    states["in_folder"] = in_folder(tmp_path_factory.mktemp("workspace").resolve())
    return {kind: dump(state).decode() for kind, state in states.items()}


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every place in a document; of a list the first item and the last."""
    if place:
        yield place
    if isinstance(value, dict):
        for name, item in value.items():
            yield from places(item, (*place, name))
    elif isinstance(value, list):
        for number in sorted({0, len(value) - 1}) if value else ():
            yield from places(value[number], (*place, number))


def at(document: Any, place: Place) -> Any:
    for name in place:
        document = document[name]
    return document


def put(document: Document, place: Place, value: Any) -> None:
    at(document, place[:-1])[place[-1]] = value


def loaded(path: Path) -> AgentState | str:
    """The trace, or why it is none."""
    try:
        return load(path)
    except UsageError as error:
        return str(error)


def used_by_all(path: Path) -> bool:
    """Do with a trace what the commands do; whether it was taken as one. Any error but the person's passes."""
    state = loaded(path)
    if isinstance(state, str):
        assert state.startswith(f"{path}: ")
        assert "\n" not in state
        return False
    assert all(line and "\n" not in line for line in verify(state))
    render_report([state])
    render_markdown(state)
    if cannot_be_played(state) is None:
        replay(state)
        with suppress(UsageError):  # what only the person can lend
            replay(state, live=LiveTools())
    return True


def test_the_good_traces_are_taken(tmp_path: Path, documents: dict[str, str]) -> None:
    path = tmp_path / "trace.json"
    for kind, document in documents.items():
        path.write_text(document)
        assert used_by_all(path), kind


@given(seed=st.integers(0, 10**9), changes=st.integers(1, 3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=1500)
def test_whatever_is_changed_nobody_stumbles(
    tmp_path: Path, documents: dict[str, str], seed: int, changes: int
) -> None:
    dice = random.Random(seed)
    document = json.loads(documents[dice.choice(list(documents))])
    for _ in range(changes):
        place = dice.choice(list(places(document)))
        if isinstance(place[-1], int) and dice.random() < 0.3:  # lists that belong together are of unequal length then
            at(document, place[:-1]).pop(place[-1])
        else:
            put(document, place, dice.choice(HOSTILE))
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    used_by_all(path)


REFUSED: list[tuple[Place, Any]] = [
    *((("workspace", "before", 0, "path"), value) for value in ("../x", "/etc/x", "", ".", "a\0b", "é" * 150)),
    (("workspace", "before", 0, "path"), "d/a.txt/x"),
    (("workspace", "before", 0, "text"), "\ud800"),
    *((("workspace", "after", 0, "path"), value) for value in ("../x", "/etc/x", "d/../../x")),
    *((("now",), value) for value in ("yesterday", "2026-13-01", "2026-01-01T00:00:00", 5, "")),
    *((("sampling", name), value) for name in ("max_completion_tokens", "num_ctx") for value in (0, -1, HUGE)),
    *((("ledger", 0, name), HUGE) for name in ("reserved_microusd", "settled_microusd", "index")),
    (("ledger", 0, "prompt_tokens_bound"), -1),
    *((("calls", 0, name), HUGE) for name in ("index", "step", "carried", "after")),
    (("calls", 0, "timing", "total"), 10**400),
    (("model", "sampler"), {"top_k": HUGE}),
    (("limits", "max_seconds"), -1e308),
    *(((name,), "odd") for name in ("status", "ended_by", "steps", "approve")),
]


@pytest.mark.parametrize(("place", "value"), REFUSED, ids=lambda value: ascii(value)[:50])
def test_what_no_run_leaves_is_refused_with_its_field(
    tmp_path: Path, documents: dict[str, str], place: Place, value: Any
) -> None:
    document = json.loads(documents["in_folder"])
    put(document, place, value)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as told:
        load(path)
    assert str(told.value).startswith(f"{path}: is not a valid trace: {'.'.join(map(str, place))}")
    (checked,) = verify_paths([path])
    assert checked.faults[0].startswith("is not a valid trace: ")


def no_ledger(document: Document) -> None:
    document["ledger"] = []


def odd_index(document: Document) -> None:
    document["calls"][0]["index"] = 7


@pytest.mark.parametrize("change", [no_ledger, odd_index])
def test_calls_that_do_not_fit_their_ledger_are_not_played(
    tmp_path: Path, documents: dict[str, str], change: Callable[[Document], None]
) -> None:
    document = json.loads(documents["completed"])
    change(document)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    state = load(path)
    assert "do not belong together" in (cannot_be_played(state) or "")
    assert verify(state) != []


def test_half_a_character_in_a_prompt_is_played_like_any_other() -> None:
    state = run_script([answer("42")], task="Half of \ud83d, please.", evidence=False)
    assert replay(state).difference is None
    state.task = "Half of \udc00, please."
    assert "message 2" in (replay(state).difference or "")


@pytest.mark.parametrize("field", ["workspace.before.0.path", "workspace.after.0.path", "now"])
def test_the_commands_end_in_one_line_and_write_nothing(tmp_path: Path, documents: dict[str, str], field: str) -> None:
    desk, folder = Desk(tmp_path / "desk"), tmp_path / "desk" / "t"
    folder.mkdir(parents=True)
    value = "2026-01-01T00:00:00" if field == "now" else str(tmp_path / "escaped.txt")
    document = json.loads(documents["in_folder"])
    put(document, tuple(int(name) if name.isdigit() else name for name in field.split(".")), value)
    (folder / "bad.json").write_text(json.dumps(document))
    for command in (["replay", "t/bad.json"], ["replay", "t/bad.json", "--live-tools"], ["report", "t"]):
        done = desk.inside(*command)
        assert done.code == 2, command
        assert f"bad.json: is not a valid trace: {field}" in done.line
    done = desk.inside("verify", "t")
    assert done.code == 1
    assert f"is not a valid trace: {field}" in done.out
    assert not list(tmp_path.rglob("escaped*"))
