"""The verifier accepts what runs leave behind, and finds whatever was changed in it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agent.errors import UsageError
from agent.state import AgentState
from evals.asserts import Assert, judge
from evals.traces import write_trace
from evals.verify import verify, verify_paths
from tests.support_runs import CountingBackend, act, run_script
from tests.support_tampering import TAMPERED, Tamper, set_to
from tests.support_traces import GENUINE, genuine, judged, only_calls, recompute, renumber


@pytest.mark.parametrize("kind", GENUINE)
def test_a_genuine_trace_kept_every_promise(kind: str) -> None:
    state = genuine(kind)
    assert state.calls
    assert verify(state) == []
    assert verify(AgentState.model_validate_json(state.model_dump_json())) == []


def test_the_genuine_traces_show_every_way_of_settling_and_every_end_of_this_version() -> None:
    states = [genuine(kind) for kind in GENUINE]
    assert {entry.settled_as for state in states for entry in state.ledger} == {
        "counted",
        "unknown",
        "overshoot",
        "refunded",
    }
    assert {state.status for state in states} == {
        "completed",
        "budget_exhausted",
        "loop_detected",
        "error",
        "cancelled",
        "confirmation_required",
    }


# -- calls dropped, doubled, reordered --------------------------------------------------------------------------------


def _shuffles(count: int) -> Iterator[tuple[str, list[int]]]:
    every = list(range(count))
    for place in every:
        yield "drop the last" if place == count - 1 else f"drop {place}", every[:place] + every[place + 1 :]
        yield f"double {place}", every[: place + 1] + every[place:]
    for place in every[1:]:
        yield f"swap {place - 1} and {place}", [*every[: place - 1], place, place - 1, *every[place + 1 :]]
    yield "reverse", every[::-1]
    yield "drop the first two", every[2:]


# What nothing in a trace can show, as the docstring of evals/verify.py states.
UNKNOWABLE = {
    ("interrupted", "drop the last"),  # a run that was stopped earlier
    ("window_full", "drop the last"),  # a run whose next prompt the server, which counts ahead, found too long
    ("count_failed", "drop the last"),  # a run whose next prompt the server, which counts ahead, failed to count
    ("batch_used_up", "drop the last"),  # a run that the batch's cap, which is not in it, refused earlier
}


@pytest.mark.parametrize("mend", [lambda state: state, renumber, recompute], ids=["as is", "renumbered", "recomputed"])
@pytest.mark.parametrize("kind", GENUINE)
def test_a_call_dropped_doubled_or_moved_is_found(kind: str, mend: Tamper) -> None:
    count = len(genuine(kind).calls)
    for what, places in _shuffles(count):
        unchanged = places in ([], list(range(count)))
        if unchanged or (kind, what) in UNKNOWABLE or _hides_among_equals(kind, mend):
            continue
        state = only_calls(genuine(kind), places)
        mend(state)
        assert verify(state), f"{kind}: {what} was not found"


def _hides_among_equals(kind: str, mend: Tamper) -> bool:
    """Where all replies are the same and the prompts were written anew, only a stamp of the server's is left."""
    return kind == "looped" and mend is recompute


def _reply(state: AgentState, place: int) -> str:
    return str(json.loads(state.calls[place].raw)["message"]["content"])


def test_among_equal_replies_what_the_model_was_told_gives_a_dropped_or_doubled_call_away() -> None:
    count = len(genuine("looped").calls)
    assert len({_reply(genuine("looped"), place) for place in range(count)}) == 1
    for what, places in _shuffles(count):
        assert verify(renumber(only_calls(genuine("looped"), places))), what


def test_a_servers_stamp_gives_a_doubled_call_away_though_all_else_was_written_anew() -> None:
    def stamped() -> AgentState:
        state = genuine("looped")
        for place, call in enumerate(state.calls):
            call.raw = call.raw.replace('"done":', f'"created_at": "2026-01-05T10:00:0{place}Z", "done":')
        return state

    assert verify(stamped()) == []
    for place in range(len(stamped().calls)):
        every = list(range(len(stamped().calls)))
        faults = verify(recompute(only_calls(stamped(), every[: place + 1] + every[place:])))
        assert any("is that of an earlier call" in fault for fault in faults)


@pytest.mark.parametrize(("kind", "what"), sorted(UNKNOWABLE))
def test_what_cannot_be_known_is_accepted(kind: str, what: str) -> None:
    places = dict(_shuffles(len(genuine(kind).calls)))[what]
    assert verify(only_calls(genuine(kind), places)) == []


# -- one field changed ------------------------------------------------------------------------------------------------

# A change of less moves no amount of a short trace: money is rounded to whole micro-dollars.
SMALLEST_PRICE_CHANGE = 100


@pytest.mark.parametrize("name", TAMPERED)
def test_a_change_is_found_and_named(name: str) -> None:
    kind, tamper, word = TAMPERED[name]
    state = genuine(kind)
    tamper(state)
    faults = verify(state)
    assert any(word in fault for fault in faults), faults


def _money_fields(state: AgentState) -> list[str]:
    ledger = ("prompt_tokens_bound", "max_completion_tokens", "reserved_microusd", "settled_microusd", "index")
    usage = ("prompt_tokens", "completion_tokens", "cached_tokens")
    places = range(len(state.calls))
    return [
        "limits.max_calls",
        "limits.max_cost_microusd",
        "prices.prompt_microusd_per_1k",
        "prices.completion_microusd_per_1k",
        *(f"ledger.{place}.{name}" for place in places for name in ledger),
        *(f"calls.{place}.usage.{name}" for place in places for name in usage),
    ]


@given(data=st.data(), kind=st.sampled_from(GENUINE))
def test_no_single_number_of_limits_prices_ledger_or_usage_can_change(data: st.DataObject, kind: str) -> None:
    state = genuine(kind)
    path = data.draw(st.sampled_from(_money_fields(state)))
    changed = data.draw(st.integers(0, 10**7))

    def differs(old: int | None) -> int:
        smallest = SMALLEST_PRICE_CHANGE if path.startswith("prices.") else 1
        return changed if old is None or abs(changed - old) >= smallest else old + smallest

    set_to(path, differs)(state)
    assert verify(state), f"{kind}: {path} became {changed}"


@given(seed=st.integers(0, 10**9), kind=st.sampled_from(GENUINE))
def test_whatever_a_trace_holds_verify_gives_lines(seed: int, kind: str) -> None:
    document = genuine(kind).model_dump()
    dice = random.Random(seed)
    for _ in range(dice.randint(1, 4)):
        _damage(document, dice)
    try:
        state = AgentState.model_validate(document)
    except ValidationError:
        return
    assert all(line and "\n" not in line for line in verify(state))


def _damage(value: Any, dice: random.Random) -> None:
    """One random change somewhere inside: a list's item lost or doubled, a number, text or null put in a place."""
    while True:
        key = dice.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        nested = inner if isinstance(inner, dict | list) else None
        if nested and dice.random() < 0.85:
            value = nested
            continue
        if isinstance(value, list) and dice.random() < 0.5:
            value.insert(key, inner) if dice.random() < 0.5 else value.pop(key)
        else:
            value[key] = dice.choice([0, -1, 1, 10**30, 0.5, "", "x\ny", None, [], True])
        return


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_folder_of_good_traces_has_no_faults(tmp_path: Path) -> None:
    for kind in ("completed", "looped"):
        write_trace(tmp_path, judged(genuine(kind), case_id=kind))
    checked = verify_paths([tmp_path])
    assert [(len(check.faults), check.path.suffix) for check in checked] == [(0, ".json"), (0, ".json")]


def test_a_trace_that_cannot_be_read_is_a_fault_beside_the_good_ones(tmp_path: Path) -> None:
    write_trace(tmp_path, genuine("completed"))
    (tmp_path / "zz.json").write_text("{")
    good, bad = verify_paths([tmp_path])
    assert good.faults == ()
    assert len(bad.faults) == 1
    assert "not JSON" in bad.faults[0]


def test_the_same_run_in_two_files_is_a_fault(tmp_path: Path) -> None:
    path = write_trace(tmp_path, genuine("completed"))
    (tmp_path / "zz.json").write_bytes(path.read_bytes())
    assert verify_paths([tmp_path])[1].faults == (f"run_id: the same run stands in {path.name}",)


def test_no_trace_at_all_is_the_persons_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace to verify"):
        verify_paths([tmp_path])
    with pytest.raises(UsageError, match="name a folder of traces"):
        verify_paths([tmp_path / "missing"])


def test_a_server_that_was_gone_before_the_first_call_is_no_contradiction() -> None:
    state = run_script(CountingBackend([act("1+1")], fails_at=0))
    assert (state.status, state.calls) == ("error", [])
    assert verify(state) == []


def test_a_verdict_is_judged_again_from_its_own_lines() -> None:
    state = genuine("completed")
    wanted = [
        {"type": "answer_number", "value": 42},
        {"type": "answer_contains", "value": ["43"]},
        {"type": "answer_json", "value": {"a": 1}},
        {"type": "tool_result", "tool": "calculate_math", "value": 42},
        {"type": "any_of", "value": [{"type": "status", "value": "error"}, {"type": "max_calls", "value": 9}]},
    ]
    asserts = TypeAdapter(list[Assert]).validate_python(wanted)
    state.verdict = judge(state, asserts)
    assert [line.passed for line in state.verdict.asserts] == [True, False, False, True, True]
    assert verify(state) == []
    for place in range(len(wanted)):
        changed = state.model_copy(deep=True)
        assert changed.verdict is not None
        line = changed.verdict.asserts[place]
        line.passed = not line.passed
        changed.verdict.outcome = "fail"
        assert any(f"assert {place + 1}" in fault for fault in verify(changed)), wanted[place]
