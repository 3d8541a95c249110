"""What the loop detector takes for a repeat, and what it lets pass."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.guards.loop_detector import MAX_COMPARED, LoopDetector, Repeat
from agent.guards.similarity import MAX_CHARS, THRESHOLD, lexical
from agent.state import ToolCall
from benchmarks.near_repeats import choose, choosing_half, judging_half, load_pairs, rates, report

ROOT = Path(__file__).resolve().parent.parent
PAIRS = load_pairs()
QUERIES = [query for pair in PAIRS for query in (pair.a, pair.b)]
# Letters of several scripts, digits, punctuation, quotes and marks; and words that the measure knows.
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(" ".join(QUERIES).split())).map(" ".join))


def search(query: str, **others: object) -> ToolCall:
    return ToolCall(name="web_search", arguments={"query": query, **others})


def seen(*queries: str) -> LoopDetector:
    detector = LoopDetector()
    for step, query in enumerate(queries):
        detector.remember(search(query), step, query)
    return detector


# --- The measure


@given(TEXTS, TEXTS)
def test_a_score_is_a_share_and_the_same_in_either_order(a: str, b: str) -> None:
    score = lexical(a, b)
    assert 0.0 <= score <= 1.0
    assert score == lexical(b, a)


@given(TEXTS)
def test_a_text_is_wholly_like_itself(text: str) -> None:
    assert lexical(text, text) == 1.0


@given(
    st.lists(st.sampled_from(["kenya", "height", "volcano", "largest", "the", "of"]), min_size=1).flatmap(
        lambda words: st.tuples(st.just(words), st.permutations(words))
    )
)
def test_the_order_of_words_does_not_matter(orders: tuple[list[str], list[str]]) -> None:
    score = lexical(*map(" ".join, orders))
    assert score == 1.0 or set(orders[0]) <= {"the", "of"}


@pytest.mark.parametrize(
    "text",
    [
        "a " * 500_000,
        "x" * 1_000_000,
        "n't" * 330_000,
        "1,2." * 250_000,
        "' " * 500_000,
        "ab1" * 330_000,
        "to how " * 150_000,
    ],
)
def test_a_megabyte_takes_no_longer_than_a_query(text: str) -> None:
    started = time.process_time()
    lexical(text, text[1:])
    assert time.process_time() - started < 0.5


def test_queries_without_a_word_are_alike_only_when_equal() -> None:
    assert lexical("\U0001f389", "\U0001f525") == 0.0
    assert lexical("what is it", "who is she") == 0.0
    assert lexical("2019", "2020") == 0.0


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("c++ sort a vector", "c sort a vector"),
        ("population of Mexico", "population of Mexico City"),
        ("\u5317\u4eac \u4eba\u53e3", "\u4e0a\u6d77 \u4eba\u53e3"),  # inhabitants of Beijing, of Shanghai
        ("\u0926\u093f\u0928", "\u0926\u093e\u0928"),  # Hindi: day, gift; they differ in a vowel sign
        ("methanol boiling point", "ethanol boiling point"),
        ("capital of Niger", "capital of Nigeria"),
        ("flights from Oslo to Rome", "flights from Rome to Oslo"),
        ("flights to Oslo", "flights from Oslo"),
        ("books by Darwin", "books about Darwin"),
        ("hot springs", "cold springs"),
        ("how hot is the sea", "how cold is the sea"),
        ("ferry length", "last ferry"),
        ("day on Mercury", "year on Mercury"),
        ("her husband", "his wife"),
        ("adsorption of water", "absorption of water"),
        ("microclimate map", "macroclimate map"),
        ("employer insurance", "employee insurance"),
    ],
)
def test_a_small_difference_that_means_another_thing(a: str, b: str) -> None:
    assert lexical(a, b) < THRESHOLD


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("how far is Oslo from Rome", "distance Oslo to Rome"),
        ("birth and death of Kepler", "death and birth of Kepler"),
        ("how to grow basil", "growing basil"),
        ("how hot is the Sun", "temperature of the Sun"),
        ("how cold is Pluto", "Pluto temperature"),
        ("oldest bridge in New York", "New York's oldest bridge"),
    ],
)
def test_a_word_that_has_an_opposite_is_no_hindrance(a: str, b: str) -> None:
    assert lexical(a, b) >= THRESHOLD


# --- The labelled pairs


def test_the_pairs_are_many_balanced_and_each_there_once() -> None:
    assert len(PAIRS) >= 200
    assert len({frozenset((pair.a, pair.b)) for pair in PAIRS}) == len(PAIRS)
    assert all(pair.a != pair.b for pair in PAIRS)
    for half in (choosing_half(PAIRS), judging_half(PAIRS)):
        assert 0.45 <= sum(pair.repeat for pair in half) / len(half) <= 0.55


def test_no_query_stands_in_both_halves() -> None:
    halves = [{query for pair in half for query in (pair.a, pair.b)} for half in (PAIRS[0::2], PAIRS[1::2])]
    assert halves[0].isdisjoint(halves[1])


def test_the_threshold_is_the_one_that_the_choosing_half_chooses() -> None:
    assert choose(choosing_half(PAIRS)) == THRESHOLD


def test_precision_and_recall_on_the_judging_half() -> None:
    judged = rates(judging_half(PAIRS), THRESHOLD)
    assert judged.precision >= 0.97
    assert judged.recall >= 0.68


def test_the_report_fails_where_the_figures_do() -> None:
    text, met = report(PAIRS)
    assert met
    assert "FAIL" not in text
    text, met = report([replace(pair, repeat=not pair.repeat) for pair in PAIRS])
    assert not met
    assert "FAIL" in text


# --- The detector


def test_a_search_in_other_words_is_a_repeat() -> None:
    detector = seen("population of Chile", "exact grains of sand count")
    repeat = detector.earlier(search("precise number sand grains"), "precise number sand grains")
    assert repeat is not None
    assert (repeat.step, repeat.guard, repeat.measure) == (1, "similar_call", "lexical")
    assert repeat.score is not None
    assert THRESHOLD <= repeat.score <= 1.0
    assert repeat.score == round(repeat.score, 3)


def test_an_identical_call_is_one_whatever_else_it_is_like() -> None:
    detector = seen("sand grains number", "number of sand grains")
    assert detector.earlier(search("number of sand grains"), "number of sand grains") == Repeat(1, "identical_call")


def test_the_most_alike_of_several_is_named() -> None:
    queries = ("current official population of Kenya", "Kenya population")
    repeat = seen(*queries).earlier(search("population of Kenya"), "population of Kenya")
    assert repeat == Repeat(1, "similar_call", "lexical", 1.0)


def test_a_refinement_is_no_repeat() -> None:
    assert seen("population of Kenya").earlier(search("population of Uganda"), "population of Uganda") is None


def test_without_a_query_only_identical_calls_are_repeats() -> None:
    detector = LoopDetector()
    detector.remember(ToolCall(name="execute_code", arguments={"code": "print(1)"}), 0)
    assert detector.earlier(ToolCall(name="execute_code", arguments={"code": "print( 1)"})) is None
    assert detector.earlier(ToolCall(name="execute_code", arguments={"code": "print(1)"})) == Repeat(
        0, "identical_call"
    )


def test_another_tool_or_another_argument_is_no_repeat() -> None:
    detector = LoopDetector()
    detector.remember(search("Kenya population", page=1), 0, "Kenya population")
    query = "population of Kenya"
    assert detector.earlier(search(query, page=2), query) is None
    assert detector.earlier(ToolCall(name="wiki", arguments={"query": query, "page": 1}), query) is None
    assert detector.earlier(search(query, page=1), query) is not None


def test_what_is_forgotten_may_be_asked_again_in_any_words() -> None:
    detector = seen("Kenya population")
    detector.forget(search("Kenya population"), search("never made"))
    assert detector.earlier(search("Kenya population"), "Kenya population") is None
    assert detector.earlier(search("population of Kenya"), "population of Kenya") is None


def test_a_call_remembered_without_its_query_may_be_asked_in_other_words() -> None:
    detector = LoopDetector()
    detector.remember(search("Kenya population"), 0)
    assert detector.earlier(search("population of Kenya"), "population of Kenya") is None
    assert detector.earlier(search("Kenya population"), "Kenya population") == Repeat(0, "identical_call")


def test_a_query_too_long_to_be_looked_at_is_compared_as_a_whole_only() -> None:
    head = "kenya population " * (MAX_CHARS // 10)
    assert seen(head + "1999").earlier(search(head + "2000"), head + "2000") is None


def test_ten_thousand_searches_are_compared_to_the_newest_only() -> None:
    detector = seen(*(f"subject {number}" for number in range(10_000)))
    assert detector.earlier(search("the subject 9999"), "the subject 9999") is not None
    assert detector.earlier(search(f"the subject {10_000 - MAX_COMPARED}"), f"the subject {10_000 - MAX_COMPARED}")
    assert detector.earlier(search("the subject 5"), "the subject 5") is None
    assert detector.earlier(search("subject 5"), "subject 5") == Repeat(5, "identical_call")
    started = time.process_time()
    for _ in range(100):
        detector.earlier(search("the subject 5"), "the subject 5")
    assert (time.process_time() - started) / 100 < 0.01


def test_scores_are_the_same_whatever_order_a_process_hashes_words_in() -> None:
    program = (
        "from benchmarks.near_repeats import load_pairs; from agent.guards.similarity import lexical;"
        "print([lexical(pair.a, pair.b) for pair in load_pairs()])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1
