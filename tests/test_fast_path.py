"""The fast path: which messages the host answers without a model, with which call, and which it leaves alone."""

from __future__ import annotations

import time
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.state import AgentState, StepRecord, ToolCall, ToolResult
from agent.strategies.fast_arithmetic import MAX_CHARS, arithmetic
from agent.strategies.fast_clock import PLACES
from agent.strategies.fast_path import CALCULATOR, CLOCK, fast_call, host_answer, previous_number
from agent.tools.calculate_math import evaluate
from tests.support_suites import run

OFFERED = (CALCULATOR, CLOCK)


@pytest.mark.parametrize(
    ("message", "expression"),
    [
        ("749 x 192", "749 * 192"),
        ("749\u00d7192", "749 * 192"),
        ("What is 749 times 192? Use a tool.", "749 * 192"),
        ("12*(3+4)", "12 * (3 + 4)"),
        ("2^10", "2 ** 10"),
        ("what is 15% of 240", "15 * 240 / 100"),
        ("12.5 percent of 80?", "12.5 * 80 / 100"),
        ("square root of 144", "sqrt(144)"),
        ("\u221a81", "sqrt(81)"),
        ("sqrt(144) + 5", "sqrt(144) + 5"),
        ("1,234 + 5", "1234 + 5"),
        ("What's 1,234,567 minus 1?", "1234567 - 1"),
        ("Hi, could you please calculate 100 divided by 8 for me?", "100 / 8"),
        ("100 \u00f7 8 =", "100 / 8"),
        ("How much is 12.5 plus 7.25?", "12.5 + 7.25"),
        ("12 squared", "12 ** 2"),
        ("multiply 749 by 192", "749 * 192"),
        ("subtract 5 from 20", "20 - 5"),
        ("the sum of 3 and 4", "3 + 4"),
        ("17 mod 5", "17 % 5"),
        ("-5 * 3", "-5 * 3"),
        ("5 \u2212 -3 =", "5 - -3"),
        ("100 - 37", "100 - 37"),
        ("calculate 7/11", "7 / 11"),
        ("7/11 =", "7 / 11"),
        ("1/2 + 1/4", "1 / 2 + 1 / 4"),
        ("what is 4x4?", "4 * 4"),
        ("(100-25)/5", "(100 - 25) / 5"),
    ],
)
def test_explicit_arithmetic_is_one_exact_expression(message: str, expression: str) -> None:
    assert arithmetic(message) == expression
    evaluate(expression)  # and the tool takes it
    call = fast_call(message, None, OFFERED)
    assert call == ToolCall(name=CALCULATOR, arguments={"expression": expression})


@pytest.mark.parametrize(
    "message",
    [
        "749 apples x 192",
        "10-12",
        "10 - 12",
        "1939 - 1945",
        "2024-11-30",
        "what is 2024 - 11 - 30?",
        "11/30/2024",
        "7/11",
        "what is 9/11?",
        "9 / 11",
        "24/7",
        "1.2.3 + 1",
        "978-3-16-148410-0",
        "978 3 16",
        "+1 (555) 123-4567",
        "(555) 123-4567",
        "555-0199",
        "4111-1111-1111-1111",
        "1920x1080",
        "$5 * 3",
        "5 kg * 3",
        "twelve * 3",
        "007 * 3",
        "1,23 + 4",
        "1e5 * 2",
        "0x10 + 1",
        "5!",
        "2(3+4)",
        "17% 5",
        "50% - 20",
        "200 + 10%",
        "20% off 50",
        "2 + 2 = 5",
        "is 2 + 2 4?",
        "what is 2 + 2 in binary?",
        "x = 5 * 3",
        "capacity = 1024 * 16;",
        "1024 * 16;",
        "Review this code: 1024 * 16",
        "3 times a day",
        "16:9",
        "42",
        "(5)",
        "(((((",
        "5 + + 5",
        "7 times",
        "",
        "?",
        "what is",
        "\u0663 + \u0664",
        "multiply that by 8",
        "plus 3",
        "1 + " * MAX_CHARS + "1",
    ],
)
def test_what_may_be_anything_else_is_left_to_the_model(message: str) -> None:
    assert fast_call(message, None, OFFERED) is None


@pytest.mark.parametrize(
    ("message", "positive", "negative"),
    [
        ("now multiply that by 8", "143808 * 8", "(-2.5) * 8"),
        ("add 5 to it", "143808 + 5", "(-2.5) + 5"),
        ("Divide the result by 3, please.", "143808 / 3", "(-2.5) / 3"),
        ("and minus 7?", "143808 - 7", "(-2.5) - 7"),
        ("halve it", "143808 / 2", "(-2.5) / 2"),
        ("double that again", "143808 * 2", "(-2.5) * 2"),
        ("square it", "143808 ** 2", "(-2.5) ** 2"),
        ("15% of that", "15 * 143808 / 100", "15 * (-2.5) / 100"),
        ("take the square root of that", "sqrt(143808)", "sqrt(-2.5)"),
        ("what is that plus 7?", "143808 + 7", "(-2.5) + 7"),
        ("times 8", "143808 * 8", "(-2.5) * 8"),
        ("+ 5", "143808 + 5", "(-2.5) + 5"),
        ("subtract it from 1000", "1000 - 143808", "1000 - (-2.5)"),
        ("that * that", "143808 * 143808", "(-2.5) * (-2.5)"),
    ],
)
def test_a_follow_up_goes_on_from_the_last_number(message: str, positive: str, negative: str) -> None:
    assert arithmetic(message, "143808") == positive
    assert arithmetic(message, "-2.5") == negative
    assert arithmetic(message, None) is None


@pytest.mark.parametrize(
    "message", ["-7", "- 7", "what about that?", "times a million", "thanks", "is it 5?", "6", "it"]
)
def test_not_all_that_follows_is_a_follow_up(message: str) -> None:
    assert arithmetic(message, "143808") is None
    assert arithmetic("what is 6 * 7", "143808") == "6 * 7"


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("What time is it?", {}),
        ("what's the time right now, please?", {}),
        ("Hello, do you know what time it is?", {}),
        ("tell me the time", {}),
        ("What day is it today?", {}),
        ("what day of the week is it", {}),
        ("What\u2019s today\u2019s date?", {}),
        ("what time is it in Tokyo?", {"timezone": "Asia/Tokyo"}),
        ("What is the current time in New York now?", {"timezone": "America/New_York"}),
        ("the time in Nepal", {"timezone": "Asia/Kathmandu"}),
        ("What day is it in Auckland?", {"timezone": "Pacific/Auckland"}),
        ("what time is it in UTC?", {"timezone": "UTC"}),
    ],
)
def test_questions_for_the_clock(message: str, arguments: dict[str, str]) -> None:
    assert fast_call(message, None, OFFERED) == ToolCall(name=CLOCK, arguments=arguments)


@pytest.mark.parametrize(
    "message",
    [
        "what time is it in Springfield?",
        "what time is it in Georgia?",
        "what time is it in Cordoba?",
        "What time is the meeting?",
        "What day is Christmas?",
        "what was the date yesterday?",
        "What is the time complexity of sorting?",
        "time",
        "the time",
        "time is money",
        "what time is it in Tokyo when it is noon in Rome?",
    ],
)
def test_other_questions_about_time_are_left_to_the_model(message: str) -> None:
    assert fast_call(message, None, OFFERED) is None


def test_every_place_has_a_zone_that_the_clock_knows() -> None:
    assert set(PLACES.values()) <= available_timezones()


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    assert fast_call("749 x 192", None, [CLOCK]) is None
    assert fast_call("what time is it?", None, [CALCULATOR]) is None


@given(st.text(alphabet="0123456789 +-*/%^().,x=?sqrtplushatiwdby'", max_size=60), st.sampled_from([None, "7", "-2.5"]))
def test_whatever_is_given_to_the_calculator_is_well_formed(message: str, previous: str | None) -> None:
    expression = arithmetic(message, previous)
    if expression is not None:
        compile(expression, "expression", "eval")  # the calculator reads Python's syntax
        assert arithmetic(f"calculate {expression}") == expression


@pytest.mark.parametrize(
    "unit", ["1", "(", "-", "a ", "please ", "what is ", "1,000", ".", " ", "it ", "=", "1/", "tell me "]
)
def test_the_time_is_bounded(unit: str) -> None:
    started = time.perf_counter()
    for size in (60, 119, 199, 10**6):
        fast_call((unit * size)[:size], "5", OFFERED)
    assert time.perf_counter() - started < 0.5


# -- the number that "it" stands for, and the answer -------------------------------------------------------------------


def after(*results: ToolResult, turn: int = 0) -> AgentState:
    """A run whose first turn had these results, and which is in its second."""
    state = run("an answer")
    calls = [ToolCall(name=CALCULATOR, arguments={"expression": "1 + 1"}) for _ in results]
    state.steps = [StepRecord(index=0, turn=turn, actions=calls, results=list(results), answer="an answer")]
    state.follow_ups = ["now multiply that by 8"]
    return state


def test_the_last_result_of_the_turn_before_is_meant() -> None:
    number, other = ToolResult(success=True, data="143808"), ToolResult(success=True, data="-2.5\n")
    assert previous_number(after(number)) == "143808"
    assert previous_number(after(number, other)) == "-2.5"
    assert previous_number(after(number, turn=-1)) is None


@pytest.mark.parametrize("data", ["", "two", "1 2", "1.2.3", "12 files", "1e+20", "2026-03-14T09:26:53+00:00"])
def test_what_is_not_one_number_is_not_meant(data: str) -> None:
    assert previous_number(after(ToolResult(success=True, data=data))) is None
    assert previous_number(after(ToolResult(success=False, error="5"))) is None
    assert previous_number(run("an answer")) is None


def test_the_host_answers_with_the_tools_own_digits() -> None:
    call = ToolCall(name=CALCULATOR, arguments={"expression": "10 / 4"})
    assert host_answer(call, ToolResult(success=True, data="2.5")) == "10 / 4 = 2.5"
    said = ToolResult(success=True, data="2026-03-14T09:26:53+00:00 (Saturday)")
    assert host_answer(ToolCall(name=CLOCK, arguments={}), said) == "It is 2026-03-14T09:26:53+00:00 (Saturday)"
