"""A verdict is only as good as its evidence: each assert passes on what it names, and on nothing near it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.state import CallError
from evals.asserts import ASSERT_CLASSES, judge, passes_on_nothing
from evals.embedded_json import find_json
from evals.patterns import MAX_TEXT
from tests.support_suites import holds, run, spec, verdict, with_files

SEARCH = ("web_search", {"query": "grains of sand"}, "1. Sand: about 7.5 x 10^18 grains")
CALC = ("calculate_math", {"expression": "2 + 2"}, "4")

# Of every type one assert, which an empty run must fail unless it is of the negative kinds.
EXAMPLES: dict[str, dict[str, Any]] = {
    "answer_equals": {"value": "4"},
    "answer_contains": {"value": "4"},
    "answer_not_contains": {"value": "5"},
    "answer_regex": {"value": "4?"},
    "answer_not_regex": {"value": "5"},
    "answer_number": {"value": 4},
    "answer_json": {},
    "tool_called": {"value": "calculate_math"},
    "tool_not_called": {"value": "execute_code"},
    "tool_result": {"tool": "calculate_math"},
    "status": {"value": "completed"},
    "max_calls": {"value": 2},
    "max_cost_usd": {"value": 0.2},
    "scratchpad_not_empty": {},
    "file": {"path": "notes.txt", "equals": "hello"},
    "any_of": {"value": [{"type": "answer_number", "value": 4}, {"type": "answer_equals", "value": "x"}]},
    "all_of": {"value": [{"type": "answer_number", "value": 4}, {"type": "max_calls", "value": 2}]},
}
NEGATIVE = {"answer_not_contains", "answer_not_regex", "tool_not_called", "max_calls", "max_cost_usd"}


# -- answers ------------------------------------------------------------------------------------------------------


def test_texts_are_compared_without_case_and_white_space() -> None:
    assert holds(run(" Mount\n Doom "), type="answer_equals", value="mount doom")
    assert not holds(run("Mount Doom!"), type="answer_equals", value="mount doom")
    assert not holds(run("mount doom"), type="answer_equals", value="Mount Doom", case_sensitive=True)
    assert holds(run("It\u2019s there"), type="answer_contains", value="it's  THERE")


def test_a_list_must_be_there_whole_or_not_at_all() -> None:
    assert holds(run("a b"), type="answer_contains", value=["a", "b"])
    assert not holds(run("a c"), type="answer_contains", value=["a", "b"])
    assert holds(run("c"), type="answer_not_contains", value=["a", "b"])
    assert not holds(run("c b"), type="answer_not_contains", value=["a", "b"])


def test_a_pattern_is_searched_across_lines() -> None:
    assert holds(run("one\ntwo"), type="answer_regex", value="ONE.two")
    assert not holds(run("one two"), type="answer_not_regex", value="two")
    assert not holds(run("x" * (MAX_TEXT + 1)), type="answer_not_regex", value="two")


@pytest.mark.parametrize("answer", ["1628.89", "$1,628.894", "It is 1628.88."])
def test_a_number_within_the_tolerance_passes(answer: str) -> None:
    assert holds(run(answer), type="answer_number", value=1628.89, tolerance=0.01)


@pytest.mark.parametrize("answer", ["16288.9", "1628.901", "1629", "-1628.89", "1.628,89", "true", "", None])
def test_a_number_outside_it_does_not(answer: str | None) -> None:
    assert not holds(run(answer), type="answer_number", value=1628.89, tolerance=0.01)


def test_which_number_counts() -> None:
    assert holds(run("4, then 5"), type="answer_number", value=4)
    assert not holds(run("4, then 5"), type="answer_number", value=4, which="last")
    assert holds(run("10^18"), type="answer_number", min=1e18, max=1e20)
    assert not holds(run("10^21"), type="answer_number", min=1e18, max=1e20)
    assert not holds(run("10^17"), type="answer_number", min=1e18)


@pytest.mark.parametrize(
    "fields",
    [{}, {"value": 1, "min": 0}, {"min": 2, "max": 1}, {"value": True}, {"value": "1"}, {"value": float("nan")}],
)
def test_a_number_demand_must_make_sense(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        spec(type="answer_number", **fields)


@pytest.mark.parametrize(
    "answer", ['[{"a": 1}]', 'Here:\n```json\n[{"a": 1.0}]\n```\nDone [1].', 'first {"a": 2}, then [{"a":1},{"b":2}]']
)
def test_json_is_found_alone_fenced_or_in_a_sentence(answer: str) -> None:
    assert holds(run(answer), type="answer_json", value=[{"a": 1}], min_items=1)


@pytest.mark.parametrize(
    "answer",
    ["[]", '[{"a": true}]', '[{"a": "1"}]', '{"a": 1}', '[{"a": 1}', "[{'a': 1}]", '[{"a": NaN}]', "none", "[" * 9999],
)
def test_json_that_is_nearly_right_fails(answer: str) -> None:
    assert not holds(run(answer), type="answer_json", value=[{"a": 1}], min_items=1)


def test_json_by_fields_and_items() -> None:
    assert holds(run('{"a": 1, "b": null}'), type="answer_json", fields=["a"])
    assert not holds(run('{"a": 1, "b": null}'), type="answer_json", fields=["a", "b"])
    assert holds(run('[{"a": 1}, {"a": 2}]'), type="answer_json", each_fields=["a"], min_items=2, max_items=2)
    assert not holds(run('[{"a": 1}, {"b": 2}]'), type="answer_json", each_fields=["a"])
    assert not holds(run('[{"a": 1}, {"a": 2}]'), type="answer_json", max_items=1)
    assert holds(run('{"c": {"d": [1, 2]}, "e": "X "}'), type="answer_json", value={"c": {"d": [2]}, "e": "x"})
    assert holds(run('{"n": 103}'), type="answer_json", value={"n": 100}, rel_tolerance=0.05)
    assert not holds(run('{"n": 106}'), type="answer_json", value={"n": 100}, rel_tolerance=0.05)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_any_json_array_is_found_inside_a_sentence(value: object) -> None:
    assert find_json(f"The answer: {json.dumps([value])}, so.") == [[value]]


# -- what the run did ---------------------------------------------------------------------------------------------


def test_a_tool_call_counts_with_its_arguments() -> None:
    state = run("4", CALC, ("calculate_math", {"expression": "3 * 3"}, None))
    assert holds(state, type="tool_called", value="calculate_math", times=2)
    assert holds(
        state, type="tool_called", value=["web_search", "calculate_math"], args={"expression": "2 + 2"}, times=1
    )
    assert not holds(state, type="tool_called", value="calculate_math", args={"expression": "2+2"})
    assert not holds(state, type="tool_called", value="calculate_math", args={"other": "2 + 2"})
    assert not holds(state, type="tool_called", value="calculate_math", min_times=3)
    assert holds(state, type="tool_called", value="calculate_math", success=False, times=1)
    assert not holds(state, type="tool_not_called", value="calculate_math")
    assert holds(state, type="tool_not_called", value="calculate_math", args={"expression": {"contains": "4"}})


@pytest.mark.parametrize(
    ("match", "value", "fits"),
    [
        ({"equals": 45}, 45.0, True),
        ({"equals": 1}, True, False),
        ({"equals": True}, 1, False),
        ({"equals": {"a": [1]}}, {"a": [1]}, True),
        ({"equals": {"a": [1]}}, {"a": [True]}, False),
        ({"equals": "A"}, "a", False),
        ({"contains": ["a", "b"]}, "B and A", True),
        ({"contains": "c"}, "B and A", False),
        ({"not_contains": "75025"}, "print(75025)", False),
        ({"not_contains": "75025"}, 75025, False),
        ({"regex": "^a.c$"}, "aBC", True),
        ({"number": 45, "tolerance": 1}, "46 pounds", True),
        ({"number": 45}, "45 or 46", False),
        ({"number": 1}, True, False),
        ({"contains": "a", "not_contains": "b"}, "ab", False),
    ],
)
def test_an_argument_is_matched_by_every_operator(match: dict[str, Any], value: object, *, fits: bool) -> None:
    state = run("x", ("t", {"a": value}, "ok"))
    assert holds(state, type="tool_called", value="t", args={"a": match}) is fits


def test_a_result_is_that_of_a_successful_call() -> None:
    state = run("4", CALC, ("execute_code", {"code": "1/0"}, None))
    assert holds(state, type="tool_result", tool="calculate_math", value=4)
    assert not holds(state, type="tool_result", tool="calculate_math", value=5)
    assert not holds(state, type="tool_result", tool="execute_code")
    assert holds(state, type="tool_result", tool="execute_code", success=False, value="it failed")
    assert not holds(state, type="tool_result", tool="calculate_math", args={"expression": {"contains": "3"}}, value=4)
    assert not holds(run("40", ("t", {}, "40")), type="tool_result", tool="t", value=4)


def test_status_caps_and_scratchpad() -> None:
    state = run("4", status="budget_exhausted", notes=["a note"], settled=[60_000, 40_000])
    assert holds(state, type="status", value=["loop_detected", "budget_exhausted"])
    assert not holds(state, type="status", value="completed")
    assert holds(state, type="max_calls", value=2)
    assert not holds(state, type="max_calls", value=1)
    assert holds(state, type="max_cost_usd", value=0.1)
    assert not holds(state, type="max_cost_usd", value=0.099999)
    assert holds(state, type="scratchpad_not_empty")
    assert not holds(run("4", notes=["  "]), type="scratchpad_not_empty")


def test_composition() -> None:
    four, five = {"type": "answer_number", "value": 4}, {"type": "answer_number", "value": 5}
    assert holds(run("4"), type="any_of", value=[five, four])
    assert not holds(run("3"), type="any_of", value=[five, four])
    assert not holds(run("4"), type="all_of", value=[five, four])
    assert holds(run("4 5"), type="all_of", value=[five, {"type": "any_of", "value": [four]}])


def test_a_file_is_judged_by_what_the_trace_holds_of_it() -> None:
    state = with_files(run("done"), {"a.txt": "one\n", "b.txt": "two"}, {"a.txt": "one\n", "b.txt": "TWO and three"})
    assert holds(state, type="file", path="b.txt", contains=["two", "three"], not_contains="four", regex="^TWO")
    assert not holds(state, type="file", path="b.txt", equals="two and three")
    assert not holds(state, type="file", path="b.txt", regex="^two")
    assert holds(state, type="file", path="a.txt", equals="one", unchanged=True)
    assert not holds(state, type="file", path="b.txt", unchanged=True)
    assert holds(state, type="file", path="c.txt", absent=True)
    assert not holds(state, type="file", path="a.txt", absent=True)
    assert not holds(state, type="file", path="c.txt")
    assert not holds(run("done"), type="file", path="c.txt"), "a run without a record of its files"
    assert holds(run("done"), type="file", path="c.txt", absent=True)


def test_a_file_whose_text_is_not_kept_meets_no_demand_on_it() -> None:
    state = with_files(run("done"), {}, {"a.txt": "one"})
    assert state.workspace is not None
    state.workspace.after[0].text = None
    assert holds(state, type="file", path="a.txt")
    assert not holds(state, type="file", path="a.txt", contains="one")


def test_an_absent_file_can_have_no_text() -> None:
    with pytest.raises(ValidationError):
        spec(type="file", path="a.txt", absent=True, equals="one")


def test_one_turn_is_judged_by_its_own_steps_calls_and_answer() -> None:
    state = run("20", ("calculate_math", {"expression": "2 + 2"}, "4"), ("clock", {}, "noon"), settled=[1, 2])
    first, second = state.steps
    first.calls, first.answer, second.calls, second.turn, second.answer = [0], "4", [1], 1, "20"
    state.follow_ups = ["and now?"]
    assert holds(state, type="answer_number", value=4, turn=1)
    assert holds(state, type="answer_number", value=20, turn=2)
    assert not holds(state, type="answer_number", value=4)
    assert holds(state, type="tool_not_called", value="calculate_math", turn=2)
    assert not holds(state, type="tool_called", value="clock", turn=1)
    assert holds(state, type="max_calls", value=1, turn=1)
    assert not holds(state, type="max_calls", value=1)
    assert holds(state, type="any_of", value=[{"type": "answer_number", "value": 4, "turn": 1}])


def test_a_turn_that_never_came_has_no_answer() -> None:
    state = run(None, status="budget_exhausted")
    assert not holds(state, type="answer_contains", value="4", turn=2)
    assert not holds(state, type="status", value="completed", turn=2)


# -- verdicts -----------------------------------------------------------------------------------------------------


def test_every_assert_type_has_an_example_that_a_good_run_passes() -> None:
    good = with_files(run("4", CALC, notes=["calculate_math: 4"], settled=[1000]), {}, {"notes.txt": "hello\n"})
    good_json = good.model_copy(update={"answer": '{"a": 4}'})
    assert EXAMPLES.keys() == ASSERT_CLASSES.keys()
    for name, fields in EXAMPLES.items():
        assert holds(good_json if name == "answer_json" else good, type=name, **fields), name


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_only_the_negative_kinds_pass_on_an_empty_run(name: str) -> None:
    for answer in (None, "", "  \n"):
        assert holds(run(answer, status="budget_exhausted"), type=name, **EXAMPLES[name]) is (name in NEGATIVE)


def test_negative_asserts_alone_prove_nothing() -> None:
    negative = [spec(type=name, **EXAMPLES[name]) for name in sorted(NEGATIVE)]
    stopped = spec(
        type="any_of", value=[{"type": "status", "value": "budget_exhausted"}, EXAMPLES["any_of"]["value"][0]]
    )
    assert passes_on_nothing(negative)
    assert passes_on_nothing([*negative, stopped])
    assert not passes_on_nothing([*negative, spec(type="answer_contains", value="4")])
    assert not passes_on_nothing([stopped, spec(type="scratchpad_not_empty")])


def test_a_verdict_has_a_line_for_every_assert() -> None:
    found = judge(run("5"), [spec(type="answer_number", value=4), spec(type="answer_contains", value="5")])
    assert found.outcome == "fail"
    assert [(line.type, line.expected, line.passed) for line in found.asserts] == [
        ("answer_number", 4, False),
        ("answer_contains", ["5"], True),
    ]
    assert "numbers seen: 5" in found.asserts[0].message
    assert "answer_number" in found.reason


def test_a_message_stays_short_whatever_the_model_wrote() -> None:
    state = run("1 " * 50_000, ("t", {"a": "b" * 50_000}, "c " * 50_000))
    for name, fields in EXAMPLES.items():
        for line in verdict(state, type=name, **fields).asserts:
            assert len(line.message) <= 200
            assert "\n" not in line.message


@pytest.mark.parametrize("status", ["running", "cancelled", "error"])
def test_a_run_that_says_nothing_about_the_model_is_invalid(status: Any) -> None:
    error = CallError(error_type="server_error", message="it\ncrashed", fault="server") if status == "error" else None
    found = verdict(run("4", status=status, error=error), type="answer_number", value=4)
    assert found.outcome == "invalid"
    assert found.reason
    assert "\n" not in found.reason


def test_an_error_of_the_harness_is_invalid_and_one_of_the_model_is_judged() -> None:
    model = CallError(error_type="not_json", message="no JSON", fault="model")
    assert verdict(run("4", status="error"), type="answer_number", value=4).outcome == "invalid"
    assert verdict(run("5", status="error", error=model), type="answer_number", value=4).outcome == "fail"


def test_without_asserts_there_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="at least one assert"):
        judge(run("4"), [])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.none() | st.text(), st.text(), st.dictionaries(st.sampled_from(["expression", "code"]), _JSON))
def test_judging_never_raises_on_what_a_model_writes(answer: str | None, data: str, arguments: dict[str, Any]) -> None:
    state = run(answer, ("calculate_math", arguments, data))
    args = {"expression": {"number": 4, "tolerance": 1, "regex": "4", "not_contains": "5"}}
    asserts = [spec(type=name, **fields) for name, fields in EXAMPLES.items()]
    asserts.append(spec(type="tool_called", value="calculate_math", args=args))
    assert judge(state, asserts).outcome in ("pass", "fail")
