"""What is read out of a reply: JSON as it was asked for or none, and never anything out of thinking."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelError
from agent.llm import lenient_json, strict_json
from agent.llm.backends.base import Envelope
from agent.llm.replies import read_reply
from agent.llm.thinking import split_thinking
from tests.support_replies import LABEL, OSLO, read, refusal

# -- JSON -------------------------------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(value=JSON_VALUES, indent=st.sampled_from([None, 2]), escapes=st.booleans())
def test_all_that_is_json_is_read_as_it_is(value: Any, indent: int | None, escapes: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escapes)
    if not escapes:
        text = strict_json.whole_characters(text)
    assert strict_json.loads(f" {text}\n") == json.loads(text)
    repairs: list[str] = []
    assert lenient_json.value_at(text, 0, repairs) == (json.loads(text), len(text))
    assert repairs == []


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", '{"label"', '{"label": "ham"', "[1,]", "nul", "'ham'", "NaN", "-Infinity"),
        *('{"label": NaN}', '{"label": 1e999}', '{"label": "ham", "label": "spam"}', "9" * 5000),
        *("[" * 100_000, '{"label":' * 100_000, "[" * 80 + "]" * 80, "\ufeff1", '{"label": "a\nb"}', "{'label': 1}"),
    ],
)  # fmt: skip
def test_what_is_not_json_is_not_repaired_under_a_contract(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the kind is the promise; the words are many
        strict_json.loads(text)
    assert refusal(text, schema=LABEL).error_type in ("not_json", "empty_reply")
    assert refusal(text, schema=LABEL, finish="length").error_type in ("not_json", "truncated")


def test_half_a_character_becomes_a_mark_and_not_a_crash() -> None:
    assert strict_json.loads(r'{"a\ud83d": "\ud83d\ude00 \ude00"}') == {"a\ufffd": "\U0001f600 \ufffd"}


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ('{"label": "ham"}', []),
        (' \n{"label": "ham"}\n\n\n', []),
        ('```json\n{"label": "ham"}\n```', ["fence"]),
        ('```\n{"label": "ham"}\n```', ["fence"]),
        ('```json\n{"label": "ham"}', ["fence"]),
        ('Sure: {"label": "ham"} (see [1] and {x})', ["prose"]),
        ('<think>{"label": "spam"}</think>{"label": "ham"}', []),
        ('no label: {curly} [1]. {"label": "ham"}', ["prose"]),
        ('{"label": "ham"}</s>', ["prose"]),
    ],
)
def test_one_value_is_found_and_what_stood_around_it_is_noted(text: str, repairs: list[str]) -> None:
    reply = read(text, schema=LABEL)
    assert (reply.answer, reply.repairs) == ({"label": "ham"}, repairs)


@pytest.mark.parametrize(
    "text",
    [
        '{"label": "ham"}\n{"label": "spam"}',
        'Either {"label": "ham"} or {"label": "spam"}.',
        'Broken {"label": , "inner": {"label": "ham"}}',
        '{"outer": NaN, "inner": {"label": "ham"}}',
    ],
)
def test_two_values_or_a_part_of_one_are_no_answer(text: str) -> None:
    assert refusal(text, schema=LABEL).error_type == "not_json"


def test_a_mismatch_says_where() -> None:
    error = refusal('{"label": "maybe"}', schema=LABEL)
    assert (error.error_type, "$.label" in str(error)) == ("schema_mismatch", True)
    assert len(str(refusal(json.dumps({"label": "x" * 10**6}), schema=LABEL))) < 400


def test_a_list_is_looked_for_where_a_list_is_due() -> None:
    reply = read('Calls [1]: [{"label": "ham"}]', schema={"type": "array", "items": LABEL})
    assert (reply.answer, reply.repairs) == ([{"label": "ham"}], ["prose"])


def test_json_that_was_cut_is_truncated_and_padding_is_not() -> None:
    assert refusal('{"label": "ha', schema=LABEL, finish="length").error_type == "truncated"
    assert read('{"label": "ham"}' + "\n" * 500, schema=LABEL, finish="length").answer == {"label": "ham"}


# -- thinking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("4", "", "4"),
        ("<think>a</think>4", "a", "4"),
        ("a</think>4", "a", "4"),
        ("<think>a", "a", ""),
        ("4<think>a", "a", "4"),
        ("<think>a<think>b</think>c</think>4", "abc", "4"),
        ("<thinking>a</thinking>4", "a", "4"),
        ("[THINK]a[/THINK]4", "a", "4"),
        ("<THINK >a</Think>4", "a", "4"),
        ("<think></think>4", "", "4"),
        ("a < think > b", "", "a < think > b"),
    ],
)
def test_thinking_is_taken_away(text: str, thought: str, said: str) -> None:
    assert split_thinking(text) == (thought, said)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", OSLO, f"<tool_call>{OSLO}</tool_call>", "x", "\n"]), max_size=9)
)
def test_nothing_inside_thinking_is_ever_run(pieces: list[str]) -> None:
    _, said = split_thinking("".join(pieces))
    try:
        calls = read("".join(pieces)).calls
    except ModelError:
        calls = []
    assert len(calls) <= said.count(OSLO)


def test_a_reply_of_thinking_alone_says_so() -> None:
    assert refusal("<think>the city is Oslo").error_type == "thinking_only"
    cut = refusal("<think>the city is", finish="length")
    assert (cut.error_type, cut.detail) == ("truncated", "thinking")
    assert refusal(" \n ").error_type == "empty_reply"


def test_a_native_call_beside_json_is_not_carried_out_and_not_passed_over() -> None:
    call = {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    envelope = Envelope(content='{"label": "spam", "score": 0.9}', native_calls=[call])
    reply = read_reply(envelope, schema={"type": "object"})
    assert reply.answer == {"label": "spam", "score": 0.9}
    assert (reply.calls, reply.repairs) == ([], ["native_calls_beside_json"])
