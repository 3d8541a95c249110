"""The verifier accepts what runs leave behind, and finds whatever was changed in it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.errors import UsageError
from agent.state import AgentState, AssertResult, CallError, Verdict
from evals.traces import write_trace
from evals.verify import verify, verify_paths
from tests.support_traces import GENUINE, genuine, judged, only_calls, recompute, renumber

Tamper = Callable[[AgentState], object]


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
    }


# -- calls dropped, doubled, reordered --------------------------------------------------------------------------------


def _shuffles(count: int) -> Iterator[tuple[str, list[int]]]:
    every = list(range(count))
    for place in every:
        yield f"drop {place}", every[:place] + every[place + 1 :]
        yield f"double {place}", every[: place + 1] + every[place:]
    for place in every[1:]:
        yield f"swap {place - 1} and {place}", [*every[: place - 1], place, place - 1, *every[place + 1 :]]
    yield "reverse", every[::-1]
    yield "drop the first two", every[2:]


# What nothing in a trace can show, as the docstring of evals/verify.py states.
UNKNOWABLE = {
    ("interrupted", "drop 2"),  # a run that was stopped earlier
    ("batch_used_up", "drop 5"),  # a run that the batch's cap, which is not in it, refused earlier
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


@pytest.mark.parametrize(("kind", "what"), UNKNOWABLE)
def test_what_cannot_be_known_is_accepted(kind: str, what: str) -> None:
    places = dict(_shuffles(len(genuine(kind).calls)))[what]
    assert verify(only_calls(genuine(kind), places)) == []


# -- one field changed ------------------------------------------------------------------------------------------------

# A change of less moves no amount of a short trace: money is rounded to whole micro-dollars.
SMALLEST_PRICE_CHANGE = 100


def _set(path: str, value: Any) -> Tamper:
    def tamper(state: AgentState) -> None:
        *parents, last = path.split(".")
        place: Any = state
        for name in parents:
            place = place[int(name)] if name.lstrip("-").isdigit() else getattr(place, name)
        setattr(place, last, value(getattr(place, last)) if callable(value) else value)

    return tamper


def _both(*tampers: Tamper) -> Tamper:
    def tamper(state: AgentState) -> None:
        for one in tampers:
            one(state)

    return tamper


def _raw_count(place: int, change: int) -> Tamper:
    """The server's own words changed."""

    def tamper(state: AgentState) -> None:
        body = json.loads(state.calls[place].raw)
        body["prompt_eval_count"] += change
        state.calls[place].raw = json.dumps(body)

    return tamper


def _usage_and_raw(place: int, change: int) -> Tamper:
    return _both(_raw_count(place, change), _set(f"calls.{place}.usage.prompt_tokens", lambda count: count + change))


def _charged_again(place: int, change: int) -> Tamper:
    """Raw reply, usage and charge all made to agree with each other."""
    return _both(
        _usage_and_raw(place, change), _set(f"ledger.{place}.settled_microusd", lambda paid: paid + 10 * change)
    )


def _claim_refund(state: AgentState) -> None:
    state.ledger[1].settled_as, state.ledger[1].settled_microusd = "refunded", 0


def _claim_refund_and_error(state: AgentState) -> None:
    _claim_refund(state)
    state.calls[1].error = CallError(error_type="unreachable", message="x", fault="server")


TAMPERED: dict[str, tuple[str, Tamper, str]] = {
    "usage lowered": ("completed", _set("calls.1.usage.prompt_tokens", 1), "usage.prompt_tokens is 1"),
    "usage removed": ("completed", _set("calls.1.usage.completion_tokens", None), "usage.completion_tokens is None"),
    "cached invented": ("completed", _set("calls.1.usage.cached_tokens", 5), "usage.cached_tokens is 5"),
    "raw changed": ("completed", _raw_count(1, -5), "its raw reply says"),
    "raw and usage changed": ("completed", _usage_and_raw(1, -5), "the usage of its call costs"),
    "raw, usage and charge changed": ("completed", _charged_again(1, -5), "the model was told"),
    "prompt price": ("completed", _set("prices.prompt_microusd_per_1k", 5_000), "its bound and cap cost"),
    "completion price": ("completed", _set("prices.completion_microusd_per_1k", 5_000), "its bound and cap cost"),
    "more calls allowed": ("completed", _set("limits.max_calls", 11), "the model was told"),
    "calls without a cap": ("completed", _set("limits.max_calls", None), "the model was told"),
    "fewer calls allowed": ("completed", _set("limits.max_calls", 3), "ledger: 4 calls were made"),
    "more money allowed": ("completed", _set("limits.max_cost_microusd", 300_000), "the model was told"),
    "less money allowed": ("completed", _set("limits.max_cost_microusd", 20_000), "limits.max_cost_microusd is 20000"),
    "deadline passed": (
        "completed",
        _both(_set("limits.max_seconds", 60.0), _set("calls.1.timing.total", 70.0)),
        "calls[1]: ended 70.0 s into the run",
    ),
    "began too late": (
        "completed",
        _both(_set("limits.max_seconds", 60.0), _set("steps.0.results.0.seconds", 70.0)),
        "calls[1]: began 70.0 s into the run",
    ),
    "charged less": ("completed", _set("ledger.1.settled_microusd", 1), "ledger[1]: settled 1 micro-dollars"),
    "charged more": ("completed", _set("ledger.3.settled_microusd", lambda paid: paid + 1), "ledger[3]: settled"),
    "reserved less": ("completed", _set("ledger.1.reserved_microusd", 1), "ledger[1]: reserved 1 micro-dollars"),
    "bound lowered": ("completed", _set("ledger.0.prompt_tokens_bound", 100), "a prompt bound of 100 tokens"),
    "bound of another kind": ("completed", _set("ledger.0.bound_kind", "grown"), "gives none of that kind"),
    "cap raised": ("completed", _set("ledger.1.max_completion_tokens", 513), "a completion cap of 513 tokens"),
    "cap under the floor": ("completed", _set("ledger.1.max_completion_tokens", 20), "a completion cap of 20 tokens"),
    "window passed": (
        "completed",
        _both(_set("ledger.1.bound_kind", "exact"), _set("ledger.1.prompt_tokens_bound", 8000)),
        "do not fit the window",
    ),
    "never settled": ("completed", _set("ledger.1.settled_as", "open"), "ledger[1]: was never settled"),
    "unknown made counted": ("uncounted", _set("ledger.0.settled_as", "counted"), "makes it unknown"),
    "counted made unknown": ("completed", _set("ledger.0.settled_as", "unknown"), "makes it counted"),
    "overshoot hidden": ("overshot", _set("ledger.1.settled_as", "counted"), "makes it overshoot"),
    "refund claimed": ("completed", _claim_refund, "given back"),
    "refund and error claimed": ("completed", _claim_refund_and_error, "given back"),
    "action on the last call": ("calls_used_up", _set("ledger.3.purpose", "act"), "the budget refuses this call"),
    "negative bound": ("completed", _set("ledger.1.prompt_tokens_bound", -1), "a bound below zero"),
    "entry removed": ("completed", lambda state: state.ledger.pop(), "3 entries for 4 calls"),
    "entry added": ("completed", lambda state: state.ledger.append(state.ledger[-1]), "5 entries for 4 calls"),
    "call record removed": ("calls_used_up", lambda state: state.calls.pop(), "4 entries for 3 calls"),
    "step removed": ("completed", lambda state: state.steps.pop(1), "steps: their calls are 0, 2, 3"),
    "call of another step": ("completed", _set("calls.1.step", 0), "belongs to another step"),
    "history cut": ("completed", _set("calls.2.carried", 2), "does not go on from the call before it"),
    "carries too much": ("completed", _set("calls.1.carried", 7), "calls[1]: carries 7 messages"),
    "reply changed": ("completed", _set("calls.1.appended.0.content", "{}"), "appends another reply"),
    "budget line changed": (
        "completed",
        _set("calls.1.appended.1.content", "Budget: 10 of 10 calls, $0.200000 of $0.200000 left."),
        "the model was told that 10 of 10",
    ),
    "budget line removed": ("completed", _set("calls.1.appended.1.content", "x"), "does not end with the budget"),
    "task changed": ("completed", _set("task", "another"), "task: does not stand in the first prompt"),
    "system prompt changed": ("completed", _set("calls.0.appended.0.content", "x"), "system_prompt_hash"),
    "seed changed": ("completed", _set("calls.1.seed", 8), "calls[1]: temperature, seed or num_ctx"),
    "error hidden": ("server_failed", _set("calls.2.error", None), "calls[2]: error is None"),
    "error invented": (
        "completed",
        _set("calls.1.error", CallError(error_type="server_error", message="x", fault="server")),
        "its raw reply is sound",
    ),
    "error without reply blamed on the model": (
        "interrupted",
        _set("calls.2.error", CallError(error_type="not_json", message="x", fault="model")),
        "there is no reply",
    ),
    "reply without a status": ("completed", _set("calls.1.http_status", None), "has a reply without an HTTP status"),
    "retry without a cause": ("retried", _set("calls.1.error.retry", False), "has no error that may heal"),
    "retry miscounted": ("retried", _set("calls.2.attempt", 2), "attempt 2 of step 1 does not follow"),
    "retry of another prompt": ("retried", _set("calls.2.carried", 2), "its prompt is not the one before"),
    "completed made exhausted": ("completed", _set("status", "budget_exhausted"), "the last step gave an answer"),
    "exhausted made completed": ("calls_used_up", _set("status", "completed"), "the last step gave no such answer"),
    "exhausted for another reason": (
        "calls_used_up",
        _set("status_reason", "cost: the money left cannot pay a call of 64 tokens"),
        "the money left pays for a further call",
    ),
    "exhausted without a reason": ("calls_used_up", _set("status_reason", ""), "does not name the cap"),
    "exhausted by an overshoot that is none": ("calls_used_up", _set("status_reason", "overshoot: x"), "the last call"),
    "exhausted by a window that is not full": ("calls_used_up", _set("status_reason", "context: x"), "by context_over"),
    "exhausted made looped": ("calls_used_up", _set("status", "loop_detected"), "there are only"),
    "exhausted made timeout": ("calls_used_up", _set("status", "timeout"), "limits.max_seconds is None"),
    "exhausted made running": ("calls_used_up", _set("status", "running"), "status: running"),
    "exhausted made error": ("calls_used_up", _set("status", "error"), "error is not set"),
    "overshoot made cancelled": ("overshot", _set("status", "cancelled"), "an overshoot ends its run"),
    "error of another kind": ("server_failed", _set("error.error_type", "server_busy"), "the last call shows server"),
    "answer changed": ("completed", _set("answer", "43"), "gave no such answer"),
    "partial answer passed off": ("calls_used_up", _set("answer_is_partial", False), "is not marked as partial"),
    "replans hidden": ("looped", _set("replans", 0), "replans: 0"),
    "result removed": ("completed", lambda state: state.steps[0].results.pop(), "1 actions and 0 results"),
    "time below zero": ("completed", _set("calls.1.timing.total", -1.0), "has a time that is no duration"),
    "no end of time": ("completed", _set("seconds", float("inf")), "seconds: is no duration"),
    "failed made pass": (
        "completed",
        _set("verdict", Verdict(outcome="pass", asserts=[AssertResult(type="equals", passed=False)])),
        "an assert did not hold",
    ),
}


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

    _set(path, differs)(state)
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
