"""A small storm: the caps hold by the server's own books, and the judge is not blind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.budget import Limits
from agent.state import LedgerEntry
from benchmarks.budget_storm import Storm, main, report, storm
from benchmarks.storm_replies import Entry
from benchmarks.storm_tokens import count, count_texts, cut, render
from benchmarks.storm_verdict import judge
from benchmarks.storm_workload import Outcome

RUNS = 240


@pytest.fixture(scope="module")
def weather() -> Storm:
    return storm(RUNS, threads=8, seed=11)


def vector_calls(weather: Storm) -> list[tuple[Outcome, LedgerEntry]]:
    """What the ledgers hold of calls for vectors, each with its run."""
    return [(outcome, entry) for outcome in weather.outcomes for entry in outcome.entries if entry.purpose == "embed"]


def test_every_cap_holds_by_the_servers_own_count(weather: Storm) -> None:
    assert weather.verdict.violations == []
    assert report(weather).endswith("PASS: every cap held, every overshoot ended its run")


def test_the_storm_was_one(weather: Storm) -> None:
    """What it is meant to play did happen; else its silence would mean nothing."""
    assert {"counted", "unknown", "overshoot", "refunded"} <= set(weather.verdict.settled)
    assert len(weather.verdict.behaviours) > 20
    assert len(weather.verdict.vector_behaviours) > 12
    assert {"counted", "unknown", "overshoot", "refunded"} <= {entry.settled_as for _, entry in vector_calls(weather)}
    assert any(outcome.refused_by_batch for outcome in weather.outcomes)
    kinds = {refusal.kind for outcome in weather.outcomes for refusal in outcome.refusals}
    assert kinds == {"exact", "grown", "sent_bytes", "texts"}


def test_an_exact_count_is_never_refused_what_it_would_have_been_granted(weather: Storm) -> None:
    honest = [outcome for outcome in weather.outcomes if outcome.plan.habit != "uncached"]
    refusals = [refusal for outcome in honest for refusal in outcome.refusals]
    assert not any(refusal.admitted_by_exact for refusal in refusals if refusal.kind == "exact")
    assert all(refusal.exact <= refusal.bound for refusal in refusals)


def _more_prompt(entry: Entry) -> Entry:
    return replace(entry, prompt=entry.prompt + 10**6)


def _more_completion(entry: Entry) -> Entry:
    return replace(entry, completion=entry.num_predict + 1)


def _other_cap(entry: Entry) -> Entry:
    return replace(entry, num_predict=entry.num_predict + 1)


def _of_no_ledger(entry: Entry) -> Entry:
    return replace(entry, call=entry.call + 1000)


def _of_no_run(entry: Entry) -> Entry:
    return replace(entry, run=entry.run + RUNS)


def _of_the_other_kind(entry: Entry) -> Entry:
    return replace(entry, embeds=not entry.embeds)


DOCTORS = [_more_prompt, _other_cap, _of_no_ledger, _of_no_run, _of_the_other_kind]


@pytest.mark.parametrize(
    ("doctor", "embeds"),
    [(_more_completion, False), *((doctor, embeds) for doctor in DOCTORS for embeds in (False, True))],
)
def test_books_that_tell_of_a_broken_cap_are_believed(
    weather: Storm, doctor: Callable[[Entry], Entry], embeds: bool
) -> None:
    honest = (n for n, entry in enumerate(weather.books) if entry.behaviour == "honest" and entry.embeds == embeds)
    place = next(honest)
    books = [*weather.books[:place], doctor(weather.books[place]), *weather.books[place + 1 :]]
    assert judge(weather.outcomes, books, weather.batch).violations


def _judged_with(weather: Storm, changed: Outcome) -> str:
    """What is found where one run is another."""
    others = [outcome for outcome in weather.outcomes if outcome.plan.number != changed.plan.number]
    return "\n".join(judge([*others, changed], weather.books, weather.batch).violations)


def test_vectors_that_were_not_paid_for_are_found(weather: Storm) -> None:
    outcome, entry = next(
        (outcome, entry)
        for outcome, entry in vector_calls(weather)
        if entry.settled_as == "counted" and entry.settled_microusd > 0
    )
    free = [entry.model_copy(update={"settled_microusd": 0}) if e is entry else e for e in outcome.entries]
    found = _judged_with(weather, replace(outcome, entries=free))
    assert "charged 0 (counted), and the server counted" in found


def test_vectors_that_took_what_is_the_answers_are_found(weather: Storm) -> None:
    outcome, entry = next(pair for pair in vector_calls(weather) if pair[1].settled_as == "counted")
    before = outcome.entries[: entry.index]
    calls = sum(earlier.settled_as != "refunded" for earlier in before)
    money = sum(earlier.settled_microusd for earlier in before) + entry.reserved_microusd
    for limits, words in ((Limits(calls + 1), "took the last"), (Limits(None, money), "pays for no answer")):
        assert words in _judged_with(weather, replace(outcome, plan=replace(outcome.plan, limits=limits)))


def test_a_call_that_reached_the_server_twice_is_found(weather: Storm) -> None:
    assert judge(weather.outcomes, [*weather.books, weather.books[0]], weather.batch).violations


def test_the_command_says_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", "20", "--threads", "4", "--seed", "3"]) == 0
    assert "PASS" in capsys.readouterr().out


def test_the_servers_tokenizers_count_what_they_cut() -> None:
    data = render([{"role": "user", "content": "größer than 12345 words"}])
    assert count("bytes", data) == len(data) > count("pieces", data) > 0
    assert count_texts("pieces", ["größer", "than 12345"], 4) == 8 < count_texts("bytes", ["größer"])
    for limit in (0, 1, 7):
        kept, tokens = cut("pieces", data, limit)
        assert tokens == limit == count("pieces", kept)
