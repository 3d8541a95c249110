"""calculate_math: Python's arithmetic with ^ as power, bounded before it is computed, and no way out of arithmetic."""

from __future__ import annotations

import math
import re
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext, ToolError
from agent.tools.calculate_math import DECODE_PATTERN, MAX_BITS, CalculateMath, evaluate
from agent.tools.registry import ToolRegistry


def calculate(expression: str) -> ToolResult:
    registry = ToolRegistry([CalculateMath()], ToolContext())
    return registry.execute(ToolCall(name="calculate_math", arguments={"expression": expression}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1000 * (1 + 0.05)^10", "1628.894626777442"),
        ("2*3^2", "18"),
        ("-2^2", "-4"),
        ("2^3^2", "512"),
        ("2^-1", "0.5"),
        ("(1+0.05/12)**360", repr((1 + 0.05 / 12) ** 360)),
        ("2**100", "1267650600228229401496703205376"),
        ("7 // 2 + 7 % 4 - +1", "5"),
        ("1e3 + .5 + 1_000", "2000.5"),
        ("  1\n + 2\t", "3"),
        ("10 \u00d7 3 \u2212 2 \u00f7 4 \u00b7 2", "29.0"),
        ("sqrt(16) + abs(-3) + floor(2.7) + ceil(2.1)", "12.0"),
        ("sin(pi/2) + cos(0) + tan(0)", "2.0"),
        ("log(e) + log2(8) + log10(1000) + log(8, 2)", "10.0"),
        ("exp(0) + pow(2, 10) + round(2.567, 2) + round(2.4)", "1029.57"),
        ("min(3, 1, 2) + max(3, 1, 2)", "4"),
        ("factorial(20)", "2432902008176640000"),
        ("comb(52, 5)", "2598960"),
        ("1 << 10 >> 2", "256"),
        ("1+" * 499 + "1", "500"),
        ("max(1,200)", "200"),
    ],
)
def test_arithmetic(expression: str, value: str) -> None:
    result = calculate(expression)
    assert (result.success, result.data, result.error) == (True, value, None)


ATTACKS = [
    ("comb(10**6,5*10**5)", "too_large"),
    ("comb(10**9,10**8)", "too_large"),
    ("factorial(1000000)", "too_large"),
    ("factorial(10**7)", "too_large"),
    ("factorial(10**400)", "too_large"),
    ("10**4299*10", "too_large"),
    ("pow(9,pow(9,9))", "too_large"),
    ("9**9**9", "too_large"),
    ("(((9**64)**64)**64)**64", "too_large"),
    ("2**10**300", "too_large"),
    ("1<<10**9", "too_large"),
    ("round(5, -10**9)", "too_large"),
    ("exp(1000)", "too_large"),
    ("1e308*10", "too_large"),
    ("1e999", "too_large"),
    ("10**400 + 0.5", "too_large"),
    ("10**400 / 3", "too_large"),
    ("-" * 100_000 + "1", "bad_args"),
    ("-" * 999 + "1", "bad_args"),
    ("1" * 5000, "bad_args"),
    ("(" * 499 + "1" + ")" * 499, "bad_args"),
    ("1**" * 300 + "1", "bad_args"),
    ("1+\x001", "bad_args"),
    ("sum(i for i in range(10**12))", "not_arithmetic"),
    ("f'{().__class__}'", "not_arithmetic"),
    ("__import__('os').system('id')", "not_arithmetic"),
    ("(lambda f:f(f))(lambda f:f(f))", "not_arithmetic"),
    ("'a'*10**10", "not_arithmetic"),
    ("().__class__", "not_arithmetic"),
    ("print(1)", "not_arithmetic"),
    ("__import__(1)", "not_arithmetic"),
    ("True + 1", "not_arithmetic"),
    ("not(1)", "not_arithmetic"),
    ("max(*1)", "not_arithmetic"),
    ("max(**1)", "not_arithmetic"),
    ("(x:=1)", "not_arithmetic"),
    ("1j", "bad_args"),
    ("[1]*10**9", "not_arithmetic"),
    ("1 if 2 else 3", "not_arithmetic"),
    ("\u0663+1", "bad_args"),
]


@pytest.mark.parametrize(("expression", "error_type"), ATTACKS, ids=[text[:24] for text, _ in ATTACKS])
def test_attacks_are_refused_before_anything_is_computed(expression: str, error_type: str) -> None:
    result = calculate(expression)
    assert (result.success, result.error_type) == (False, error_type)
    assert len(result.error or "") < 400


@pytest.mark.parametrize(
    ("expression", "error_type", "told"),
    [
        ("1,000*2", "bad_args", "large numbers without them"),
        ("max(1,000, 2)", "bad_args", "large numbers without them"),
        ("sqrt(1,500)", "bad_args", "takes 1 argument"),
        ("1,234", "bad_args", "Commas only separate"),
        ("50%", "bad_args", "remainder"),
        ("2 + 2 =", "bad_args", "Leave out the equals sign"),
        ("2 x 3", "bad_args", "operator is missing between 2 and x"),
        ("2(3 + 4)", "bad_args", "operator is missing between 2 and ("),
        ("pi(2)", "bad_args", "pi is a number"),
        ("math.sqrt(2)", "not_arithmetic", "without a dot"),
        ("$5", "bad_args", "currency"),
        ("5!", "bad_args", "exclamation mark"),
        ("radius * 2", "bad_args", "radius is not known"),
        ("2 +", "bad_args", "not well formed"),
        (" ", "bad_args", "empty"),
        ("log(1, 2, 3)", "bad_args", "takes 1 or 2"),
        ("max(1)", "bad_args", "takes at least 2"),
        ("factorial(2.5)", "bad_args", "whole numbers"),
        ("1 / 0", "division_by_zero", "divides by zero"),
        ("1 % 0", "division_by_zero", "divides by zero"),
        ("0 ** -1", "division_by_zero", "divides by zero"),
        ("log(5, 1)", "division_by_zero", "divides by zero"),
        ("sqrt(-1)", "domain", "sqrt is not defined"),
        ("factorial(-1)", "domain", "factorial is not defined"),
        ("1 << -1", "domain", "<< is not defined"),
        ("(-8) ** (1/3)", "domain", "not a real number"),
    ],
)
def test_mistakes_are_told_with_what_to_do(expression: str, error_type: str, told: str) -> None:
    result = calculate(expression)
    assert (result.success, result.error_type) == (False, error_type)
    assert told in (result.error or "")


def test_the_largest_results_are_whole_and_a_lower_printing_limit_is_no_crash() -> None:
    largest = f"2**{MAX_BITS - 1}"
    result = calculate(largest)
    assert (result.data, result.truncated) == (str(2 ** (MAX_BITS - 1)), False)
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert calculate(largest).error_type == "too_large"
    finally:
        sys.set_int_max_str_digits(limit)


_PIECES = [
    "^",
    "**",
    "*",
    "/",
    "//",
    "%",
    "+",
    "-",
    "<<",
    "(",
    ")",
    ",",
    " ",
    "9",
    "1e9",
    "0.5",
    "10",
    "pi",
    "factorial(",
    "comb(",
]


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*_PIECES, "round(", "pow(", "log(", "'", "\0", "="]), max_size=60).map("".join)
)
@example("((((((((9^9)^9)^9)^9)^9)^9)^9)^9)")
def test_any_text_gives_a_bounded_number_or_a_tool_error(expression: str) -> None:
    try:
        value = evaluate(expression)
    except ToolError as error:
        assert error.error_type in {"bad_args", "not_arithmetic", "too_large", "division_by_zero", "domain"}  # noqa: PT017 both are right
    else:
        assert math.isfinite(value) if isinstance(value, float) else value.bit_length() <= MAX_BITS + 1


# Hundredths: nothing built of a dozen of them leaves the range of a float, where Python goes on with inf and we refuse.
_NUMBERS = st.integers(0, 20).map(str) | st.integers(0, 2000).map(lambda hundredths: repr(hundredths / 100))
_SUMS = st.recursive(
    _NUMBERS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(" ".join)
        | st.tuples(_NUMBERS, st.integers(-3, 5).map(str)).map(" ** ".join)
        | inner.map("({})".format)
        | inner.map("-{}".format)
    ),
    max_leaves=12,
)


@given(_SUMS)
def test_the_value_is_pythons_own(expression: str) -> None:
    try:
        expected = eval(expression, {"__builtins__": {}})  # noqa: S307 made of numbers and operators, just above
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="divides by zero"):
            evaluate(expression)
    else:
        for spelled in (expression, expression.replace("**", "^")):
            value = evaluate(spelled)
            assert (type(value), value) == (type(expected), expected)


@pytest.mark.parametrize(
    "expression",
    [
        "1000 * (1 + 0.05)^10",
        "(1+0.05/12)**360",
        "-2^2",
        "((1+2)*3)//4 % 5",
        "max(1, 2, 3) - min(4, 5)",
        "sqrt(2) + log(100, 10) + log2(8) + factorial(5)",
        "2*pi*e",
        "round(1000*1.05**10, 2)",
        "comb(52,5)",
        "7",
    ],
)
def test_what_a_grammar_lets_a_model_write_holds_ordinary_expressions(expression: str) -> None:
    assert re.fullmatch(DECODE_PATTERN, expression)
    evaluate(expression)


@pytest.mark.parametrize(
    "text", ["", "25th Fibonacci number", "', '", "import os", ")", "1 2", "x" * 9, "1+" * 30 + "1"]
)
def test_what_a_grammar_lets_a_model_write_keeps_words_and_endless_sums_out(text: str) -> None:
    assert not re.fullmatch(DECODE_PATTERN, text)
