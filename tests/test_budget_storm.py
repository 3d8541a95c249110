"""A small storm: the caps hold by the server's own books, and the judge is not blind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.budget_storm import Storm, main, report, storm
from benchmarks.storm_replies import Entry
from benchmarks.storm_tokens import count, cut, render
from benchmarks.storm_verdict import judge

RUNS = 160


@pytest.fixture(scope="module")
def weather() -> Storm:
    return storm(RUNS, threads=8, seed=11)


def test_every_cap_holds_by_the_servers_own_count(weather: Storm) -> None:
    assert weather.verdict.violations == []
    assert report(weather).endswith("PASS: every cap held, every overshoot ended its run")


def test_the_storm_was_one(weather: Storm) -> None:
    """What it is meant to play did happen; else its silence would mean nothing."""
    assert {"counted", "unknown", "overshoot", "refunded"} <= set(weather.verdict.settled)
    assert len(weather.verdict.behaviours) > 20
    assert any(outcome.refused_by_batch for outcome in weather.outcomes)
    kinds = {refusal.kind for outcome in weather.outcomes for refusal in outcome.refusals}
    assert kinds == {"exact", "grown", "sent_bytes"}


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


@pytest.mark.parametrize("doctor", [_more_prompt, _more_completion, _other_cap, _of_no_ledger, _of_no_run])
def test_books_that_tell_of_a_broken_cap_are_believed(weather: Storm, doctor: Callable[[Entry], Entry]) -> None:
    place = next(place for place, entry in enumerate(weather.books) if entry.behaviour == "honest")
    books = [*weather.books[:place], doctor(weather.books[place]), *weather.books[place + 1 :]]
    assert judge(weather.outcomes, books, weather.batch).violations


def test_a_call_that_reached_the_server_twice_is_found(weather: Storm) -> None:
    assert judge(weather.outcomes, [*weather.books, weather.books[0]], weather.batch).violations


def test_the_command_says_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", "20", "--threads", "4", "--seed", "3"]) == 0
    assert "PASS" in capsys.readouterr().out


def test_the_servers_tokenizers_count_what_they_cut() -> None:
    data = render([{"role": "user", "content": "größer than 12345 words"}])
    assert count("bytes", data) == len(data) > count("pieces", data) > 0
    for limit in (0, 1, 7):
        kept, tokens = cut("pieces", data, limit)
        assert tokens == limit == count("pieces", kept)
