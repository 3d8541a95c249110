"""The arguments of one tool, out of whatever a model wrote around them; and what it is told where there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import ModelError, ToolCallError
from agent.llm.arguments import Arguments, read_arguments

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}, "days": {"type": "integer", "maximum": 14}},
    "required": ["city"],
    "additionalProperties": False,
}
CLOCK: dict[str, Any] = {
    "type": "object",
    "properties": {"timezone": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
    "additionalProperties": False,
}
# A schema as other people's tools have them: open, and with parameters named like the parts of a call.
FLAG: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "args": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name"],
}
OSLO = {"city": "Oslo"}
WRITTEN = '{"city": "Oslo"}'


def read(text: str, schema: dict[str, Any] = WEATHER, **more: Any) -> Arguments:
    return read_arguments(text, schema, **more)


def refusal(text: str, schema: dict[str, Any] = WEATHER, **more: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read(text, schema, **more)
    return caught.value


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        (WRITTEN, []),
        (f"\n {WRITTEN} \n", []),
        (f"```json\n{WRITTEN}\n```", ["fence"]),
        (f"```\n{WRITTEN}", ["fence"]),
        (f"[{WRITTEN}]", ["list"]),
        (f"Sure! Here you are: {WRITTEN} Anything else?", ["prose"]),
        (f"I use {{curly}} braces and {{}} too: {WRITTEN}", ["prose"]),
        (f'The sign {{" begins it, then: {WRITTEN}', ["prose"]),
        (f"for (;;) {{ go(); }} {WRITTEN}", ["prose"]),
        (f'{{"note": 1}} {WRITTEN}', ["prose"]),
        (f'{{"city": 5}} no: {WRITTEN}', ["prose"]),
        (f'{{"city": }} no: {WRITTEN}', ["prose"]),
        (f'{{"city" "Oslo"}} no: {WRITTEN}', ["prose"]),
        (f'{WRITTEN} or {{"city": "Bergen"}}', ["prose"]),
        (f'{WRITTEN}\n{{"city": "Ber', ["prose"]),
        (f'{{"name": "get_weather", "arguments": {WRITTEN}}}', ["wrapped"]),
        (f'{{"tool": "get_weather", "args": {WRITTEN}}}', ["wrapped"]),
        (f'{{"arguments": {WRITTEN}}}', ["wrapped"]),
        (f'{{"parameters": {WRITTEN}, "id": 7}}', ["wrapped"]),
        (f'{{"type": "function", "function": {{"name": "get_weather", "parameters": {WRITTEN}}}}}', ["wrapped"]),
        (f'[{{"name": "get_weather", "arguments": {WRITTEN}}}]', ["list", "wrapped"]),
        (f'{{"get_weather": {WRITTEN}}}', ["wrapped"]),
        (f'{{"tool_calls": [{{"name": "get_weather", "arguments": {WRITTEN}}}]}}', ["wrapped"]),
        (f'{{"result": {WRITTEN}}}', ["wrapped"]),
        (f"<tool_call>{WRITTEN}</tool_call>", ["prose"]),
        (f"[TOOL_CALLS]get_weather[ARGS]{WRITTEN}", ["prose"]),
        (json.dumps(WRITTEN), ["double_encoded"]),
        (json.dumps({"name": "get_weather", "arguments": WRITTEN}), ["wrapped", "double_encoded"]),
        ("{'city': 'Oslo',}", ["python_literals", "trailing_comma"]),
        ("{“city”: “Oslo”}", ["smart_quotes"]),
        ('{city: "Oslo"}', ["bare_keys"]),
        ('{ // the place\n"city": "Oslo"}', ["comments"]),
        (f"<think>{{'city': 'Bergen'}}</think>{WRITTEN}", []),
        (f"Bergen? {{'city': 'Bergen'}}</think>{WRITTEN}", []),
    ],
)
def test_the_first_object_that_fits_is_taken_and_what_was_repaired_is_named(text: str, repairs: list[str]) -> None:
    assert read(text) == Arguments(OSLO, repairs)


def test_order_decides_between_objects_that_fit() -> None:
    assert read(f'{{"city": "Bergen"}} {WRITTEN}').arguments == {"city": "Bergen"}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call><function=get_weather><parameter=city>Oslo</parameter></function></tool_call>",
        '<tool_call>get_weather(city="Oslo")</tool_call>',
        '[get_weather(city="Oslo")]',
        "<start_function_call>call:get_weather{city:<escape>Oslo<escape>}<end_function_call>",
    ],
)
def test_a_call_in_a_form_of_the_models_own_is_read_where_the_tool_is_named(text: str) -> None:
    assert read(text, tool="get_weather") == Arguments(OSLO, ["wrapped"])
    assert refusal(text).error_type == "malformed_tool_call"


@pytest.mark.parametrize(
    ("text", "arguments", "repairs"),
    [
        ('{"city": "1", "days": "3"}', {"city": "1", "days": 3}, ["coerced:days"]),
        ('{"city": "1", "days": 3}', {"city": "1", "days": 3}, []),
        ('{"arguments": {"city": "Oslo", "days": " 3 "}}', {"city": "Oslo", "days": 3}, ["wrapped", "coerced:days"]),
        (r'{"city": "Troms\u00f8\ud83d"}', {"city": "Tromsø\ufffd"}, []),
        ('{"city": "<think>Oslo</think>"}', {"city": "<think>Oslo</think>"}, []),
        ('{"city": "{\\"city\\": 1}"}', {"city": '{"city": 1}'}, []),
    ],
)
def test_arguments_are_typed_by_the_schema_and_texts_stay_what_they_are(
    text: str, arguments: dict[str, Any], repairs: list[str]
) -> None:
    assert read(text) == Arguments(arguments, repairs)


@pytest.mark.parametrize(
    ("text", "error_type", "told"),
    [
        ("{}", "missing_arguments", "city"),
        ('{"days": 3}', "missing_arguments", "city"),
        ('{"name": "get_weather", "arguments": {}}', "missing_arguments", "city"),
        ('{"name": "get_weather"}', "missing_arguments", "city"),
        ('{"name": "get_weather", "arguments": null}', "missing_arguments", "city"),
        ('{"city": null}', "bad_arguments", "$.city"),
        ('{"city": ""}', "bad_arguments", "$.city"),
        ('{"city": ["Oslo"]}', "bad_arguments", "$.city"),
        ('{"city": "Oslo", "days": "soon"}', "bad_arguments", "$.days"),
        ('{"city": "Oslo", "days": 99}', "bad_arguments", "maximum"),
        ('{"city": "Oslo", "unit": "C"}', "bad_arguments", "unit"),
        ('{"arguments": ["Oslo"]}', "bad_arguments", "object"),
        ('{"arguments": "Oslo"}', "bad_arguments", "JSON"),
        ('{"note": 1} {"city": 5}', "bad_arguments", "$.city"),
        ('{"city": 5, "days": 1} {"days": 3}', "bad_arguments", "$.city"),
        ('{"city": {"type": "string"}}', "bad_arguments", "$.city"),
        (json.dumps(WEATHER), "bad_arguments", "schema"),
        ('{"name": "send_money", "arguments": {"city": "Oslo"}}', "unknown_tool", "get_weather"),
        ('{"city": "Oslo"', "malformed_tool_call", "after a value"),
        ('{"city": "Os', "malformed_tool_call", "end"),
        ('{"city": "Oslo" "days": 3}', "malformed_tool_call", "comma"),
        ('{"city": "Oslo", "city": "Bergen"}', "malformed_tool_call", "twice"),
        ('{"city": NaN}', "malformed_tool_call", "NaN"),
        ("Oslo", "malformed_tool_call", "city, days"),
        ('"Oslo"', "malformed_tool_call", "city, days"),
        ("7", "malformed_tool_call", "city, days"),
        ("[]", "malformed_tool_call", "city, days"),
        ('["Oslo"]', "malformed_tool_call", "city, days"),
        ("city: Oslo", "malformed_tool_call", "city, days"),
        ("get_weather('Oslo')", "malformed_tool_call", "city, days"),
    ],
)
def test_the_model_is_told_what_is_wrong_with_what_comes_nearest(text: str, error_type: str, told: str) -> None:
    error = refusal(text, tool="get_weather")
    assert isinstance(error, ToolCallError)
    assert (error.error_type, told in str(error)) == (error_type, True), str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    "broken",
    [
        '{"city": 5, "inner": ',
        '{"note": "a" "b", "inner": ',
        '{"note": "}" "b", "inner": ',
        '{"note": "half, "inner": ',
        "{'note': 'half, 'inner': ",
        '{note: [1, 2, "inner": ',
        '{"a": "{", "b" "c", "inner": ',
        "{/* never ending ",
    ],
)
@pytest.mark.parametrize("end", ["", "}", "}}"])
def test_what_stands_inside_a_broken_object_or_an_unfit_one_is_not_taken(broken: str, end: str) -> None:
    assert refusal(f"{broken}{WRITTEN}{end}").error_type in ("malformed_tool_call", "bad_arguments")


def test_a_reply_that_was_cut_is_used_where_an_object_is_whole_and_else_says_so() -> None:
    assert read(f"{WRITTEN} And now some", finish="length").arguments == OSLO
    assert refusal('{"city": "Os', finish="length").error_type == "truncated"
    assert refusal('{"days": 3}', finish="length").error_type == "truncated"
    cut = refusal("<think>Which city", finish="length")
    assert (cut.error_type, cut.detail) == ("truncated", "thinking")


@pytest.mark.parametrize(("text", "error_type"), [("", "empty_reply"), (" \n", "empty_reply")])
def test_nothing_said_is_said(text: str, error_type: str) -> None:
    assert refusal(text).error_type == error_type
    assert refusal(f"<think>{WRITTEN}{text}").error_type == "thinking_only"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{}", {}),
        ("```json\n{}\n```", {}),
        ('{"name": "clock"}', {}),
        ('{"name": "clock", "arguments": null}', {}),
        ('{"timezone": null}', {"timezone": None}),
        ('{"timezone": "UTC"}', {"timezone": "UTC"}),
        ('{"arguments": {"timezone": "UTC"}}', {"timezone": "UTC"}),
        ('{"note": {}} {"timezone": "UTC"}', {"timezone": "UTC"}),
    ],
)
def test_a_tool_that_needs_nothing_takes_nothing(text: str, arguments: dict[str, Any]) -> None:
    assert read(text, CLOCK, tool="clock").arguments == arguments


@pytest.mark.parametrize("text", ["now", '{"zone": "UTC"}', '{"name": "clock", "zone": "UTC"}', json.dumps(CLOCK)])
def test_but_not_just_anything(text: str) -> None:
    assert isinstance(refusal(text, CLOCK, tool="clock"), ToolCallError)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "beta"}', {"name": "beta"}),
        ('{"name": "beta", "args": ["1", 2]}', {"name": "beta", "args": [1, 2]}),
        ('{"name": "beta", "more": true}', {"name": "beta", "more": True}),
        ('{"name": "set_flag", "arguments": {"name": "beta"}}', {"name": "beta"}),
    ],
)
def test_parameters_may_be_named_like_the_parts_of_a_call(text: str, arguments: dict[str, Any]) -> None:
    assert read(text, FLAG, tool="set_flag").arguments == arguments


def test_the_name_of_a_call_is_never_taken_for_an_argument() -> None:
    assert refusal('{"name": "set_flag", "arguments": {}}', FLAG, tool="set_flag").error_type == "missing_arguments"


@pytest.mark.parametrize("end", ["", "\\", '"', "x"])
def test_quotes_that_never_close_take_linear_time(end: str) -> None:
    """Were each of them looked at to the end, this would take hours and meet the time limit that every test has."""
    assert refusal("{a: \\" + '\\",' * 300_000 + end).error_type == "malformed_tool_call"
