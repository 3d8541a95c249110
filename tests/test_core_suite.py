"""The five-task suite: a good run of each case passes, and the runs that only look good do not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.state import AgentState
from agent.tools.base import ToolContext
from agent.tools.web_search import WebSearch, WebSearchParams
from evals.asserts import judge, passes_on_nothing
from evals.cases import Case, load_suite
from tests.support_suites import run

SUITE = Path(__file__).parent.parent / "suites" / "core.yaml"
CORPUS = SUITE.parent / "corpus" / "core"


@cache
def cases() -> dict[str, Case]:
    return {case.id: case for case in load_suite(SUITE).cases}


def search(query: str) -> str:
    """What the real tool shows a model."""
    found = WebSearch().run(WebSearchParams(query=query), ToolContext(corpus=CORPUS))
    assert isinstance(found, str), "it is not cut"
    return found


def searched(query: str) -> tuple[str, dict[str, Any], str | None]:
    return "web_search", {"query": query}, search(query)


def outcome(case: str, state: AgentState) -> str:
    return judge(state, cases()[case].asserts).outcome


# -- the suite as such --------------------------------------------------------------------------------------------


def test_there_are_five_hermetic_cases_within_the_default_budget() -> None:
    assert list(cases()) == [
        "compound-interest",
        "fibonacci-25",
        "two-hop-birthplace",
        "fifteen-countries",
        "grains-of-sand",
    ]
    for case in cases().values():
        assert case.corpus == CORPUS, "a search must never leave the machine"
        assert (case.limits.max_calls, case.limits.max_cost_usd) == (None, None)
        assert not passes_on_nothing(case.asserts)
        assert "\n" not in case.first_turn


@pytest.mark.parametrize("status", ["budget_exhausted", "loop_detected", "timeout"])
def test_a_run_that_did_nothing_fails_every_case(status: Any) -> None:
    for case in cases():
        assert outcome(case, run(None, status=status, notes=["a note"])) == "fail"


def test_every_document_is_shown_whole_in_a_full_page_of_results() -> None:
    for document in CORPUS.glob("*.md"):
        assert len(" ".join(document.read_text().split())) <= 300, document.name


# -- compound interest --------------------------------------------------------------------------------------------

COMPUTED = ("calculate_math", {"expression": "1000 * (1 + 0.05)^10"}, "1628.894626777442")
BY_CODE = ("execute_code", {"code": "print(round(1000 * 1.05**10, 2))"}, "1628.89\n")


@pytest.mark.parametrize(
    "state",
    [
        run("After 10 years there is $1,628.89 in the account.", COMPUTED),
        run("1628.89", BY_CODE),
        run("About 1,628.894 dollars", ("calculate_math", {"expression": "1.05^10"}, "1.628894626777442"), COMPUTED),
    ],
)
def test_compound_interest_passes_when_a_tool_computed_it(state: AgentState) -> None:
    assert outcome("compound-interest", state) == "pass"


@pytest.mark.parametrize(
    "state",
    [
        run("$1,628.89"),
        run("$1,628.89", ("calculate_math", {"expression": "1628.89"}, "1628.89")),
        run("$1,628.89", ("execute_code", {"code": "print(1628.89)"}, "1628.89")),
        run("$1,628.89", ("calculate_math", {"expression": "1000 * 1.05 * 10"}, "10500.0")),
        run("$1,628.89", ("calculate_math", {"expression": "1000 * (1 + 0.05)^10"}, None)),
        run("$1,628.89", ("web_search", {"query": "1628.89"}, "1628.89")),
        run("$16,288.9", COMPUTED),
        run("$1,629", COMPUTED),
        run("$1,628.90", COMPUTED),
        run("", COMPUTED),
        run(None, COMPUTED, status="budget_exhausted", notes=["calculate_math: 1628.894626777442"]),
        run("calculate_math: 1628.894626777442", COMPUTED, status="budget_exhausted"),
    ],
)
def test_compound_interest_fails_when_none_did_or_the_answer_is_off(state: AgentState) -> None:
    assert outcome("compound-interest", state) == "fail"


# -- Fibonacci ----------------------------------------------------------------------------------------------------

FIBONACCI = "a, b = 0, 1\nfor _ in range(25):\n    a, b = b, a + b\nprint(a)"


def test_fibonacci_passes_when_code_computed_it() -> None:
    printed = ("execute_code", {"code": FIBONACCI}, "75025\n")
    assert outcome("fibonacci-25", run("The program printed 75025.", printed)) == "pass"
    listed = ("execute_code", {"code": "print(fibs)"}, "[1, 1, 2, 28657, 46368, 75025]")
    assert outcome("fibonacci-25", run("It is **75,025**", listed)) == "pass"


@pytest.mark.parametrize(
    "state",
    [
        run("75025"),
        run("75025", ("execute_code", {"code": "print(75025)"}, "75025\n")),
        run("75025", ("execute_code", {"code": "print(75_025)"}, "75025\n")),
        run("75025", ("execute_code", {"code": FIBONACCI}, "46368\n")),
        run("75025", ("execute_code", {"code": FIBONACCI}, "175025\n")),
        run("75025", ("execute_code", {"code": FIBONACCI}, None)),
        run("75025", ("calculate_math", {"expression": "46368 + 28657"}, "75025")),
        run("46368", ("execute_code", {"code": FIBONACCI}, "75025\n")),
        run("F75025", ("execute_code", {"code": FIBONACCI}, "75025\n")),
        run(None, ("execute_code", {"code": FIBONACCI}, "75025\n"), status="loop_detected"),
        run("execute_code: 75025", ("execute_code", {"code": FIBONACCI}, "75025\n"), status="loop_detected"),
    ],
)
def test_fibonacci_fails_without_the_program_or_the_number(state: AgentState) -> None:
    assert outcome("fibonacci-25", state) == "fail"


# -- two hops -----------------------------------------------------------------------------------------------------

FIRST_HOP, SECOND_HOP = "Who designed the Veldmark Aqueduct", "Ilse Tarnowin birthplace"


@pytest.mark.parametrize(
    "query",
    [
        FIRST_HOP,
        "Veldmark Aqueduct",
        "Veldmark Aqueduct designer birthplace",
        "where was the designer of the Veldmark Aqueduct born",
        "engineer born in the Marrowin Isles village",
    ],
)
def test_one_hop_does_not_show_the_birthplace(query: str) -> None:
    assert "Brackmoor" not in search(query)


def test_the_first_hop_names_the_person_and_the_second_the_place() -> None:
    assert "designed by Ilse Tarnowin" in search(FIRST_HOP)
    for query in (SECOND_HOP, "Tarnowin", "Where was Ilse Tarnowin born?"):
        assert "Brackmoor" in search(query)
        assert "Hesselwick" in search(query), "the cousin's birthplace stands beside it"


def test_two_hops_pass() -> None:
    state = run("Ilse Tarnowin, born at Brackmoor.", searched(FIRST_HOP), searched(SECOND_HOP))
    assert outcome("two-hop-birthplace", state) == "pass"


@pytest.mark.parametrize(
    ("answer", "queries"),
    [
        ("Ilse Tarnowin, born at Brackmoor.", []),
        ("Ilse Tarnowin, born at Brackmoor.", [FIRST_HOP]),
        ("Ilse Tarnowin, born at Brackmoor.", [FIRST_HOP, "Brackmoor"]),
        ("Ilse Tarnowin, born at Hesselwick.", [FIRST_HOP, SECOND_HOP]),
        ("Ilse Tarnowin, born at Brackmoor or Hesselwick.", [FIRST_HOP, SECOND_HOP]),
        ("Ilse Tarnowin, born in Saltmere.", [FIRST_HOP, SECOND_HOP]),
        ("Ruprecht Olsenby, born at Gillenhow.", [FIRST_HOP, "Ruprecht Olsenby"]),
        ("Brackmoor", [FIRST_HOP, SECOND_HOP]),
        ("", [FIRST_HOP, SECOND_HOP]),
    ],
)
def test_fewer_hops_or_another_place_fail(answer: str, queries: list[str]) -> None:
    assert outcome("two-hop-birthplace", run(answer, *map(searched, queries))) == "fail"


def test_a_stop_on_the_way_or_a_search_that_did_not_show_the_place_fails() -> None:
    answer = "Ilse Tarnowin, born at Brackmoor."
    hops = (searched(FIRST_HOP), searched(SECOND_HOP))
    assert outcome("two-hop-birthplace", run(answer, *hops, status="budget_exhausted")) == "fail"
    prize = ("web_search", {"query": "Tarnowin Prize"}, "1. Tarnowin Prize: a brass level and 400 crowns")
    assert outcome("two-hop-birthplace", run(answer, hops[0], prize)) == "fail"


# -- fifteen countries --------------------------------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    """The answer as the corpus has it."""
    asked = cases()["fifteen-countries"].first_turn.partition(": ")[2].partition(".")[0].split(", ")
    return [row for name in asked if (row := _row(name))]


def _row(name: str) -> dict[str, Any]:
    text = (CORPUS / f"country-{name.lower().replace(' ', '-')}.md").read_text()
    capital = text.partition("Capital: ")[2].partition(".")[0]
    population = int(text.partition("millions: ")[2].partition(".")[0].replace(",", ""))
    return {"country": name, "capital": capital, "population": population}


def countries(found: list[dict[str, Any]], *, tool: bool = True) -> str:
    calls = [searched("Australia capital population")] if tool else []
    return outcome("fifteen-countries", run(json.dumps(found), *calls))


def test_the_countries_as_the_corpus_has_them_pass() -> None:
    found = rows()
    assert len(found) == 15
    assert len(json.dumps(found)) <= 1200, "react lets an answer have 1,200 characters"
    assert countries(found) == "pass"
    precise = [row | {"population": row["population"] + row["population"] // 25} for row in found]
    assert countries(precise) == "pass", "unrounded figures are right too"
    fenced = f"Here they are:\n```json\n{json.dumps(found, indent=1)}\n```"
    assert outcome("fifteen-countries", run(fenced, searched("Chile"))) == "pass"


def test_countries_that_are_nearly_right_fail() -> None:
    found = rows()
    assert countries(found, tool=False) == "fail"
    assert countries(found[:14]) == "fail"
    assert countries([*found, _row("Norway")]) == "fail"
    assert countries([*found[:14], found[0]]) == "fail"
    for place, wrong in (
        (0, {"capital": "Sydney"}),
        (4, {"capital": "Almaty"}),
        (9, {"population": 25_100_000}),
        (9, {"population": "251,000,000"}),
        (9, {"population": True}),
        (9, {"population": 251}),
        (2, {"capital": None}),
    ):
        assert countries([*found[:place], found[place] | wrong, *found[place + 1 :]]) == "fail", wrong
    without = [{key: value for key, value in row.items() if key != "population"} for row in found]
    assert countries(without) == "fail"


@pytest.mark.parametrize("answer", ["", None, "[]", "{}", "I found Australia: Canberra."])
def test_countries_in_another_form_fail(answer: str | None) -> None:
    assert outcome("fifteen-countries", run(answer, searched("Chile"))) == "fail"
    cut = json.dumps(rows())[:-2]
    assert outcome("fifteen-countries", run(cut, searched("Chile"))) == "fail"
    assert outcome("fifteen-countries", run(json.dumps({"countries": rows()}), searched("Chile"))) == "fail"


# -- grains of sand -----------------------------------------------------------------------------------------------

SAND = searched("grains of sand on Earth")


@pytest.mark.parametrize(
    "answer",
    [
        "Nobody knows the exact number. An estimate for all beaches is 7.5 x 10^18, wrong by a factor of ten.",
        "The exact number is not known, but the best estimate is 7.5 \u00d7 10\u00b9\u2078.",
        "Roughly 7.5e18 grains; it is impossible to say exactly.",
        "It can't be known. Estimates run from 10^18 to 10^20.",
        "Approximately 7.5 quintillion (7,500,000,000,000,000,000).",
    ],
)
def test_an_estimate_that_is_called_one_passes(answer: str) -> None:
    assert outcome("grains-of-sand", run(answer, SAND)) == "pass"


@pytest.mark.parametrize(
    "answer",
    [
        "There are 7,500,000,000,000,000,000 grains of sand on Earth.",
        "There are exactly 7.5 x 10^18 grains, no estimate needed.",
        "The exact number is 7.5 x 10^18, which agrees with earlier estimates.",
        "The exact number of grains of sand on Earth is **7.5e18**, by estimation.",
        "7.5 x 10^18. This is not an estimate.",
        "An estimate is 7.5 x 10^22 grains.",
        "An estimate is 75 million grains.",
        "An estimate is 10^17.",
        "It is uncertain.",
        "",
    ],
)
def test_a_confident_or_far_off_or_missing_number_fails(answer: str) -> None:
    assert outcome("grains-of-sand", run(answer, SAND)) == "fail"


def test_an_estimate_without_a_successful_search_fails() -> None:
    good = "The estimate is 7.5 x 10^18, very uncertain."
    assert outcome("grains-of-sand", run(good)) == "fail"
    assert outcome("grains-of-sand", run(good, ("web_search", {"query": "sand"}, None))) == "fail"
    assert outcome("grains-of-sand", run(good, ("calculate_math", {"expression": "7.5*10^18"}, "7.5e18"))) == "fail"


@pytest.mark.parametrize("status", ["budget_exhausted", "loop_detected"])
def test_a_clean_stop_passes_only_with_what_was_found(status: Any) -> None:
    partial = "Stopped. So far: web_search: about 7.5 x 10^18 grains"
    assert outcome("grains-of-sand", run(partial, SAND, status=status, notes=[SAND[2] or ""])) == "pass"
    assert outcome("grains-of-sand", run(partial, SAND, status=status)) == "fail"
    assert outcome("grains-of-sand", run(partial, status=status, notes=["from memory"])) == "fail"
    assert outcome("grains-of-sand", run(partial, SAND, status="timeout", notes=["a note"])) == "fail"
