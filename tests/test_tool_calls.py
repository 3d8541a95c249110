"""Tool calls, native or written into text: never a guess, never half a value, never a call out of a mention."""

# ruff: noqa: RUF001  # models write quotes and bars that look alike

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelError, ToolCallError
from agent.llm.backends.base import Envelope
from agent.llm.replies import Reply, read_reply
from tests.support_replies import LABEL, OSLO, TOOLS, WEATHER, read, refusal, tool


def calls(text: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.arguments) for call in read(text, **more).calls]


@pytest.mark.parametrize(
    "text",
    [
        OSLO,
        f"[{OSLO}]",
        f"```json\n{OSLO}\n```",
        f"```tool_call\n{OSLO}\n```",
        f"Let me look.\n```json\n{OSLO}\n```\nOne moment.",
        f"<tool_call>{OSLO}",
        f"<tool_call>\n```json\n{OSLO}\n```\n</tool_call>",
        f"<tool_call>[{OSLO}]</tool_call>",
        f"<|tool_call|>[{OSLO}]",
        f"<function_call>{OSLO}</function_call>",
        f"[TOOL_CALLS][{OSLO}]",
        f"[TOOL_CALLS] {OSLO}</s>",
        '[TOOL_CALLS]get_weather{"city": "Oslo"}',
        f'{{"type": "function", "function": {OSLO}}}',
        '{"tool": "get_weather", "args": {"city": "Oslo"}}',
        '{"function": "get_weather", "arguments": {"city": "Oslo"}}',
        f'{{"tool_calls": [{OSLO}]}}',
        '<function=get_weather>{"city": "Oslo"}</function>',
        "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>",
        '<invoke name="get_weather"><parameter name="city">Oslo</parameter></invoke>',
        '[get_weather(city="Oslo")]',
        "<|python_tag|>get_weather.call(city='Oslo')<|eom_id|>",
        '<tool_call>get_weather(city="Oslo")</tool_call>',
        '```tool_code\nget_weather(city="Oslo")\n```',
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>',
    ],
)
def test_a_call_is_found_in_whatever_form_it_was_written(text: str) -> None:
    assert calls(text) == [("get_weather", {"city": "Oslo"})]


@pytest.mark.parametrize("before", ["", "Two calls:\n", "Not this:\n```json\n[1, 2]\n```\n"])
def test_every_fence_with_a_call_counts(before: str) -> None:
    bergen = OSLO.replace("Oslo", "Bergen")
    text = f"{before}```json\n{OSLO}\n```\nand\n```json\n{bergen}\n```"
    assert calls(text) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Bergen"})]


@pytest.mark.parametrize(
    "text",
    [
        "It is 4 degrees.",
        "Use <tool_call> tags, then </tool_call>.",
        "The marker <function=name> begins a call, [TOOL_CALLS] too.",
        "<|python_tag|",
        f"Write `{OSLO}` to ask.",
        f"You asked: {OSLO}",
        '{"name": "get_weather"}',
        'For example\n```json\n{"name": "other_tool", "arguments": {}}\n```\nis how others write it.',
        "[1, 2, 3]",
        "[get_weather(city)] and more",
        "functools is a module",
        '{"tool_calls": []}',
        '{"tool_calls": [], "answer": 4}',
        '{"function": "sine", "of": 4}',
        '{"arguments": {"city": "Oslo"}}',
    ],
)
def test_an_answer_stays_an_answer(text: str) -> None:
    assert read(text).answer == text.strip()


def test_without_tools_nothing_is_a_call() -> None:
    assert read(f"<tool_call>{OSLO}</tool_call>", tools=()).answer == f"<tool_call>{OSLO}</tool_call>"


@pytest.mark.parametrize(
    "broken",
    [
        '{"name": "write_file", "arguments": {"path": "a", "content": "half',
        '{"name": "write_file", "arguments": {"path": "a", "content": ' + json.dumps(f"<tool_call>{OSLO}")[:-1],
        '{"name": "write_file", "arguments": {"path": "a" "content": ' + OSLO,
        f"note.call(payload={OSLO}",
        "<function=write_file><parameter=path>a</parameter><parameter=content>" + OSLO,
    ],
)
@pytest.mark.parametrize("marker", ["<tool_call>", "<|python_tag|>"])
def test_what_stands_inside_a_broken_call_is_never_run(broken: str, marker: str) -> None:
    text = marker + broken
    if "<function" in broken and marker != "<tool_call>":
        text = broken
    assert refusal(text).error_type == "malformed_tool_call"
    assert refusal(text, finish="length").error_type == "truncated"


def test_a_good_call_is_kept_beside_a_broken_one_in_the_models_order() -> None:
    reply = read(f'<tool_call>{{"name": "get_weather", "argu</tool_call><tool_call>{OSLO}</tool_call>')
    kinds = [getattr(found, "error_type", "call") for found in reply.outcomes]
    assert kinds == ["malformed_tool_call", "call"]
    assert (len(reply.calls), len(reply.faults), reply.answer) == (1, 1, None)


def test_native_calls_win_over_the_text() -> None:
    native = [{"id": "c", "index": 0, "name": "get_weather", "arguments": {"city": "Bergen"}}]
    reply = read_reply(Envelope(content=OSLO, native_calls=native, finish="stop"), tools=TOOLS)
    assert [(call.id, call.arguments) for call in reply.calls] == [("c", {"city": "Bergen"})]


@pytest.mark.parametrize(
    ("envelope", "source"),
    [
        (Envelope(content=f"<tool_call>{OSLO}</tool_call>"), "text"),
        (Envelope(content=f"<tool_call>{OSLO}</tool_call><tool_call>{{</tool_call>"), "text"),
        (Envelope(native_calls=[{"id": None, "name": "get_weather", "arguments": {"city": "Oslo"}}]), "native"),
        (Envelope(content="It is 4 degrees."), "none"),
    ],
)
def test_a_reply_says_where_its_calls_stood(envelope: Envelope, source: str) -> None:
    assert read_reply(envelope, tools=TOOLS).source == source


def native(arguments: Any, offered: dict[str, Any], name: str | None = None) -> Reply:
    call = {"id": None, "index": None, "name": name or offered["function"]["name"], "arguments": arguments}
    return read_reply(Envelope(native_calls=[call], finish="stop"), tools=(offered,))


@pytest.mark.parametrize(
    ("given", "due", "read_as", "coerced"),
    [
        ("45", {"type": "integer"}, 45, True),
        (" -3 ", {"type": "integer"}, -3, True),
        ("2.5", {"type": "number"}, 2.5, True),
        ("7", {"type": "number"}, 7, True),
        ("True", {"type": "boolean"}, True, True),
        ("null", {"type": ["integer", "null"]}, None, True),
        ("[1]", {"type": "array"}, [1], True),
        ('{"a": 1}', {"type": "object"}, {"a": 1}, True),
        ("1", {"type": "string"}, "1", False),
        ("1", {"type": ["integer", "string"]}, "1", False),
        ("1", {}, "1", False),
        ("45", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 45, True),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, True),
        ("1", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "1", False),
        (["1", 2], {"type": "array", "items": {"type": "integer"}}, [1, 2], True),
        (["1", 2], {"type": "array"}, ["1", 2], False),
        ({"a": "1"}, {"type": "object", "properties": {"a": {"type": "number"}}}, {"a": 1}, True),
        (45, {"type": "integer"}, 45, False),
    ],
)
def test_arguments_are_typed_by_the_schema_alone(given: Any, due: dict[str, Any], read_as: Any, coerced: bool) -> None:
    reply = native({"x": given}, tool("f", "x", x=due))
    value = reply.calls[0].arguments["x"]
    assert (value, type(value)) == (read_as, type(read_as))
    assert reply.repairs == (["coerced:x"] if coerced else [])


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ("3.0", {"type": "integer"}),
        ("1e3", {"type": "integer"}),
        ("1" * 5000, {"type": "integer"}),
        ("1e999", {"type": "number"}),
        ("yes", {"type": "boolean"}),
        ("none", {"type": "integer"}),
        ("[1", {"type": "array"}),
        (["x"], {"type": "array", "items": {"type": "integer"}}),
        (1, {"type": "string"}),
        (True, {"type": "integer"}),
    ],
)
def test_what_is_not_surely_meant_is_refused(given: Any, due: dict[str, Any]) -> None:
    with pytest.raises(ToolCallError) as caught:
        native({"x": given}, tool("f", "x", x=due))
    assert (caught.value.error_type, caught.value.tool) == ("bad_arguments", "f")


@pytest.mark.parametrize(
    ("written", "due", "read_as"),
    [
        ("5", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ("5", {}, "5"),
    ],
)
def test_a_bare_text_means_what_any_branch_of_its_schema_says(written: str, due: dict[str, Any], read_as: Any) -> None:
    text = f"<function=f><parameter=x>{written}</parameter></function>"
    assert read(text, tools=(tool("f", "x", x=due),)).calls[0].arguments == {"x": read_as}


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"x": 1, "x": 2}', "[1]", "3", '{"x"', "[" * 9999, [1], 7, True])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    with pytest.raises(ToolCallError) as caught:
        native(arguments, tool("f"))
    assert caught.value.error_type == "bad_arguments"


@pytest.mark.parametrize("arguments", [None, "", " ", "null", {}, "{}", '"{}"'])
def test_no_arguments_are_a_call_only_where_none_is_required(arguments: Any) -> None:
    assert native(arguments, tool("f")).calls[0].arguments == {}
    with pytest.raises(ToolCallError) as caught:
        native(arguments, tool("f", "x", x={}))
    assert (caught.value.error_type, caught.value.missing) == ("missing_arguments", ("x",))


@pytest.mark.parametrize(
    ("name", "suggest"),
    [
        ("get_wether", "get_weather"),
        ("GET_WEATHER", "get_weather"),
        ("functions.get_weather", "get_weather"),
        ("a/b:get_weather", "get_weather"),
        ("send_money", None),
        ("", None),
        ("x" * 10**6, None),
    ],
)
def test_an_unknown_name_is_never_run_at_best_hinted_at(name: str, suggest: str | None) -> None:
    with pytest.raises(ToolCallError) as caught:
        native({"city": "Oslo"}, WEATHER, name=name or " ")
    assert (caught.value.error_type, caught.value.suggest) == ("unknown_tool", suggest)
    assert len(str(caught.value)) < 400


# -- anything at all --------------------------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<function=get_weather>", "<parameter=city>", "</parameter>", "</function>"),
        *("<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "functools[", "```tool_code\n", "```json\n", "```", "print("),
        *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<start_function_call>", "call:get_weather{", "<escape>", "}"),
        *('{"name": "get_weather", "arguments": {', '"city": "Oslo"', "'", '"', "“", "\\", "{", "[", "]", ",", ":"),
        *("get_weather(", "city=", "/*", "//", "\n", "null", "None", "NaN", "1e999", "\ud83d", "<think>", ")"),
        *(OSLO, "<tool_response>", "x", "write_file"),
    ]
)  # fmt: skip


@given(pieces=st.lists(FRAGMENTS, max_size=12), finish=st.sampled_from(["stop", "length"]), contract=st.booleans())
def test_any_text_gives_a_reply_or_the_models_fault(pieces: list[str], finish: str, contract: bool) -> None:
    try:
        reply = read("".join(pieces), finish=finish, schema=LABEL if contract else None)
    except ModelError:
        return
    for call in reply.calls:
        assert call.name in ("get_weather", "write_file")
        assert isinstance(call.arguments["city" if call.name == "get_weather" else "path"], str)
        json.dumps(call.arguments, allow_nan=False)
    assert reply.outcomes or reply.answer is not None


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "<tool_call>",
            "<tool_call>{",
            "<tool_call>x(</tool_call>",
            "<function=a><parameter=b></tool_call>",
            "[TOOL_CALLS]",
        ),
        *(
            "<|tool_call|>",
            "<|python_tag|>a(",
            "```json\n{",
            '{"a":',
            "</think>",
            "<think>",
            "[TOOL_CALLS]a[ARGS]{",
            "</parameter>  ",
        ),
        *(
            "functools[",
            "<start_function_call>call:a{b:<escape>",
            "<｜tool▁call▁begin｜>a{",
            "/*",
            "\\",
            '"',
            "[[",
            "  ",
        ),
    ],
)
@pytest.mark.parametrize("before", ["", "{'a': \"", "<tool_call>"])
@pytest.mark.parametrize("after", ["", "x"])
def test_reading_takes_linear_time(piece: str, before: str, after: str) -> None:
    """Were one of these quadratic, it would take minutes and meet the time limit that every test has."""
    with contextlib.suppress(ModelError):
        read(before + piece * 50_000 + after)
