"""Prompt bounds are never below the truth, with any byte-level tokenizer, however a conversation grows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.llm.bounds import (
    HEAD_ALLOWANCE,
    MESSAGE_ALLOWANCE,
    PreviousCall,
    believable,
    grown_bound,
    message_bytes,
    sent_bytes_bound,
)
from agent.state import Message, ToolCall, Usage

TEXTS = st.text(max_size=200)
CONVERSATIONS = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant"]), content=TEXTS), min_size=1, max_size=8
)


def worst_count(messages: list[Message]) -> int:
    """The most that a byte-level tokenizer can count: a token a byte, and ten of the template's a message."""
    return sum(message_bytes(m) + 10 for m in messages) + 40


@given(CONVERSATIONS)
def test_bytes_bound_the_worst_tokenizer(messages: list[Message]) -> None:
    assert sent_bytes_bound(messages).tokens >= worst_count(messages)


@given(CONVERSATIONS, TEXTS, CONVERSATIONS)
def test_a_grown_bound_holds_whatever_was_counted_before(
    before: list[Message], reply: str, added: list[Message]
) -> None:
    said = Message(role="assistant", content=reply)
    prompt, completion = worst_count(before) // 3, len(reply.encode()) // 3 + 1
    previous = PreviousCall(tuple(before), reply, prompt, completion)
    bound = grown_bound([*before, said, *added], previous)
    assert bound is not None
    truth = prompt + completion + 10 + sum(message_bytes(m) + 10 for m in added)
    assert bound.tokens >= truth


def test_a_reply_that_was_not_counted_is_bound_by_its_bytes() -> None:
    before = Message(role="user", content="x")
    said = Message(role="assistant", content="é" * 10)
    bound = grown_bound([before, said], PreviousCall((before,), "é" * 10, 50, None))
    assert bound is not None
    assert bound.tokens == 50 + 20 + MESSAGE_ALLOWANCE


def test_bytes_that_were_no_text_are_read_back_as_more_tokens_than_were_written() -> None:
    """A model may write single bytes that are no UTF-8: a token each, and three bytes each once they are replaced."""
    before = Message(role="user", content="x")
    said = Message(role="assistant", content="\N{REPLACEMENT CHARACTER}" * 100)
    bound = grown_bound([before, said], PreviousCall((before,), said.content, 50, 100))
    assert bound is not None
    assert bound.tokens >= 50 + 3 * 100


def test_a_count_that_left_cached_tokens_out_is_not_built_upon() -> None:
    before = Message(role="user", content="word " * 1000)
    assert grown_bound([before], PreviousCall((before,), None, 1200, None)) is not None
    assert grown_bound([before], PreviousCall((before,), None, 16, None)) is None


def test_the_marks_that_templates_spell_out_are_covered() -> None:
    """ChatML in a model that has no special tokens for it, so that every byte of a mark is a token."""
    call = ToolCall(name="f", arguments={})
    calling = Message(role="assistant", content="", tool_calls=[call, call])
    result = Message(role="tool", content="4", tool_name="f")
    start = Message(role="user", content="x")
    said = '\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    added = (
        f"<|im_start|>assistant\n{said}{said}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n"
    )
    bound = grown_bound([start, calling, result], PreviousCall((start,), None, 50, None))
    assert bound is not None
    assert bound.tokens >= 50 + len(added)


def test_another_head_or_other_tools_have_no_grown_bound() -> None:
    before = Message(role="user", content="x")
    previous = PreviousCall((before,), "y", 50, 1, tools_hash="a")
    assert grown_bound([Message(role="user", content="z")], previous, "a") is None
    assert grown_bound([before], previous, "b") is None


def test_tool_calls_and_names_are_part_of_a_message() -> None:
    bare = Message(role="assistant", content="")
    calling = Message(role="assistant", content="", tool_calls=[ToolCall(name="f", arguments={"a": "b" * 100})])
    named = Message(role="tool", content="", tool_name="f" * 30)
    assert message_bytes(calling) > message_bytes(bare) + 100
    assert message_bytes(named) == 30


def test_a_call_without_the_tools_goes_on_from_one_with_them_and_none_the_other_way() -> None:
    before, said = Message(role="user", content="x"), Message(role="assistant", content="yes")
    with_tools = PreviousCall((before,), "yes", 300, 3, tools_hash="tools", counted_prompt=300)
    same = grown_bound([before, said], with_tools, "tools")
    without = grown_bound([before, said], with_tools, None)
    assert same is not None
    assert without is not None
    assert without.tokens == same.tokens + HEAD_ALLOWANCE
    assert grown_bound([before, said], with_tools, "others") is None
    assert grown_bound([before, said], PreviousCall((before,), "yes", 300, 3), "tools") is None


def test_a_count_may_fall_where_the_tools_were_left_out() -> None:
    before, said = Message(role="user", content="x"), Message(role="assistant", content="yes")
    previous = PreviousCall((before,), "yes", 300, 3, tools_hash="tools", counted_prompt=300)
    counted = Usage(prompt_tokens=60, completion_tokens=3)
    assert believable(counted, [before, said], previous, None) == counted
    assert believable(counted, [before, said], previous, "tools").prompt_tokens is None
