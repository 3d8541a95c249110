"""How many prompt tokens a request can have at most, before it is sent. Never below the truth.

Four ways, best first: the server counts exactly; the conversation only grew, so the last count plus what was added;
the bytes of the prompt as the server renders it; the bytes of all that is sent. A byte-level tokenizer spends at most
one token on a byte, and its special tokens are covered by an allowance. Pure, so that a verifier can work every bound
out again from a trace.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.state import BoundKind, Message, Purpose, Usage

# What a chat template may put around one message: role headers, turn ends, and the opening of the reply. Measured
# templates need 4 to 10 tokens a message; a model without special tokens spells the same markers out, at most 61 bytes
# (a tool's response in ChatML). The same goes for the marks around each tool call.
MESSAGE_ALLOWANCE = 64
TOOL_CALL_ALLOWANCE = 32
# What a template may write of its own at the head: a default system text, a knowledge date, tool instructions.
HEAD_ALLOWANCE = 256
# Text has 2 to 5 bytes a token. A count far below that is not of the whole prompt: old servers left out what they held
# in their cache, and counted it again when they had lost it.
MOST_BYTES_PER_TOKEN = 8
# A reply longer than that was counted wrong: the longest tokens in use are runs of 128 blanks, and text has about 4.
MOST_REPLY_BYTES_PER_TOKEN = 32
# Stands in a reply for bytes that were no UTF-8: one byte was written, up to three tokens are read back.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Bound:
    """At most this many prompt tokens, and how that is known."""

    tokens: int
    kind: BoundKind


@dataclass(frozen=True)
class PreviousCall:
    """What the next bound may stand on. `prompt_tokens` is the count where the server gave one, else its bound.

    `completion_tokens` is None where the server did not count; then the reply's bytes are taken. `counted_prompt` is
    the server's own count or None.
    """

    messages: tuple[Message, ...]
    reply: str | None
    prompt_tokens: int
    completion_tokens: int | None
    tools_hash: str | None = None
    counted_prompt: int | None = None


def message_bytes(message: Message) -> int:
    """UTF-8 bytes of all of a message that a template may print, with what it puts around each tool call."""
    size = len(message.content.encode("utf-8", "surrogatepass"))
    for call in message.tool_calls or ():
        size += len(json.dumps(call.model_dump(exclude_none=True))) + TOOL_CALL_ALLOWANCE
    for text in (message.tool_name, message.tool_call_id):
        size += len(text.encode("utf-8", "surrogatepass")) if text else 0
    return size


def sent_bytes_bound(messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None) -> Bound:
    """The bound for a first call. Tool schemas count twice: templates print them indented."""
    size = sum(message_bytes(m) + MESSAGE_ALLOWANCE for m in messages)
    if tools:
        size += 2 * len(json.dumps(list(tools), ensure_ascii=True))
    return Bound(size + HEAD_ALLOWANCE, "sent_bytes")


def rendered_bound(size: int) -> Bound:
    """The bound for a first call whose prompt the server has rendered: its bytes, and what a tokenizer puts around."""
    return Bound(size + MESSAGE_ALLOWANCE, "rendered")


def answer_bound(
    purpose: Purpose, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None, bound: Bound
) -> int | None:
    """What the answer kept back beside an action holds of its prompt, where tools are in it: they are left out then.

    None where it holds all of it.
    """
    if purpose != "act" or not tools or bound.kind not in ("rendered", "sent_bytes"):
        return None
    return min(bound.tokens, sent_bytes_bound(messages).tokens)


def grown_bound(messages: Sequence[Message], previous: PreviousCall, tools_hash: str | None = None) -> Bound | None:
    """The bound where `messages` begins with the whole previous prompt and that was counted whole; None elsewhere.

    A last call may leave out the tools that were offered before it: that only makes the prompt shorter, but for what a
    template writes at its head instead.
    """
    carried = len(previous.messages)
    without_tools = tools_hash is None and previous.tools_hash is not None
    if not without_tools and tools_hash != previous.tools_hash:
        return None
    if tuple(messages[:carried]) != previous.messages:
        return None
    if previous.prompt_tokens * MOST_BYTES_PER_TOKEN < sum(map(message_bytes, previous.messages)):
        return None
    added = messages[carried:]
    tokens = previous.prompt_tokens + sum(message_bytes(message) + MESSAGE_ALLOWANCE for message in added)
    tokens += HEAD_ALLOWANCE if without_tools else 0
    if added and (reply := _counted_reply(added[0], previous)) is not None:
        tokens -= len(reply.encode("utf-8", "surrogatepass")) - (previous.completion_tokens or 0)
    return Bound(tokens, "grown")


def _counted_reply(message: Message, previous: PreviousCall) -> str | None:
    """The previous reply where `message` holds it (alone, or as thinking between its marks) and its count is sound."""
    reply, counted = previous.reply, previous.completion_tokens
    if not reply or counted is None or message.role != "assistant" or reply not in message.content:
        return None
    size = len(reply.encode("utf-8", "surrogatepass"))
    is_sound = REPLACEMENT not in reply and counted <= size <= counted * MOST_REPLY_BYTES_PER_TOKEN
    return reply if is_sound else None


def believable(
    usage: Usage, messages: Sequence[Message], previous: PreviousCall | None, tools_hash: str | None = None
) -> Usage:
    """The counts that may be charged.

    Older servers leave cached tokens out of the prompt count (ollama#2068): such a count is unknown, not low. It shows
    where a prompt that only grew became shorter, or where a token would have to stand for too many bytes.
    """
    counted = usage.prompt_tokens
    if counted is None:
        return usage
    is_low = counted * MOST_BYTES_PER_TOKEN < sum(map(message_bytes, messages))
    if previous is not None and previous.counted_prompt is not None:
        grew = tools_hash == previous.tools_hash and tuple(messages[: len(previous.messages)]) == previous.messages
        is_low = is_low or (grew and counted < previous.counted_prompt)
    return usage.model_copy(update={"prompt_tokens": None}) if is_low else usage
