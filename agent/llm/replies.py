"""An Envelope -> what the model thinks, which tools it calls and what it answers, or a ModelError.

The order of reading: JSON where a schema is set; thinking is taken away and never scanned; native calls win over
anything in the text; then the text. Nothing is guessed: names are exact, an unfinished string is never finished, and
every repair is named in `Reply.repairs`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.errors import ModelError, ToolCallError
from agent.llm import strict_json
from agent.llm.backends.base import Envelope
from agent.llm.schemas import first_mismatch
from agent.llm.text_calls import calls_in_text
from agent.llm.thinking import leading_thinking, split_thinking
from agent.llm.tool_calls import Outcome, read_native
from agent.state import ToolCall

Source = Literal["none", "native", "text"]

NATIVE_BESIDE_JSON = "native_calls_beside_json"
CUT_THINKING = "cut_thinking"
NATIVE_BESIDE_THINKING = "native_calls_beside_thinking"
# Details of a ModelError: a tool call stands where none was asked for, or an action has not the form it should have.
TOOL_CALL = "tool_call"
ACTION = "action"
_FENCE_OPEN = re.compile(r"```\w*")
# Where an object or a list may begin inside prose: `{curly}` and `[1]` in a sentence do not look like this.
_STARTS = {"object": re.compile(r"\{\s*[\"}]"), "array": re.compile(r"\[\s*[\[{\"\]]")}
_ANY_START = re.compile(r"\{\s*[\"}]|\[\s*[\[{\"\]]")


@dataclass
class Reply:
    """One reply, read. Where there are calls, `answer` is None: text beside a call is commentary.

    `answer` is text, or the JSON value where a schema was set. `outcomes` are the calls in the model's order, each
    made ready or refused; a reply of which no call can be made raises instead. `source` says where the calls stood:
    among those that the server itself found, or in the text. `is_cut` says of a reply that is read elsewhere that its
    token limit ended it.
    """

    thinking: str = ""
    answer: Any = None
    outcomes: list[Outcome] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    source: Source = "none"
    is_cut: bool = False

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that can be made."""
        return [found for found in self.outcomes if isinstance(found, ToolCall)]

    @property
    def faults(self) -> list[ToolCallError]:
        """What is wrong with the others."""
        return [found for found in self.outcomes if isinstance(found, ToolCallError)]


def read_reply(
    envelope: Envelope, *, schema: dict[str, Any] | None = None, tools: Sequence[dict[str, Any]] = ()
) -> Reply:
    """Read a reply. `tools` are the definitions that were offered (`{"type": "function", "function": {...}}`).

    Raises:
        ModelError: not_json, schema_mismatch, truncated (detail "thinking" where the cap went into thinking),
            empty_reply, thinking_only, or a ToolCallError where no call of it can be made.
    """
    if schema is not None:
        is_json, value = _as_json(envelope.content)
        if is_json:
            # No tools were offered with the schema: a call that a server makes up beside it is not one to carry out.
            beside = [NATIVE_BESIDE_JSON] if envelope.native_calls and not tools else []
            return Reply(envelope.thinking, _meeting(value, schema), repairs=beside)
    inline, text = split_thinking(envelope.content)
    reply = Reply("\n".join(part for part in (envelope.thinking, inline) if part))
    if envelope.native_calls and schema is not None and not tools:
        raise ModelError("not_json", "the reply is a tool call in a form that was not asked for; write the JSON object")
    if envelope.native_calls:
        reply.outcomes, reply.source = read_native(envelope.native_calls, tools, reply.repairs), "native"
    elif not text:
        raise nothing_said(reply.thinking, envelope.finish)
    elif schema is not None:
        reply.answer = _meeting(_one_value(text, schema, envelope, reply.repairs), schema)
    elif tools:
        reply.outcomes = calls_in_text(text, tools, reply.repairs)
        reply.source = "text" if reply.outcomes else "none"
    if envelope.finish == "length" and schema is None and not reply.calls:
        raise cut_off()
    if reply.faults and not reply.calls:
        raise reply.faults[0]
    if schema is None and not reply.outcomes:
        reply.answer = text
    return reply


def read_text(envelope: Envelope) -> Reply:
    """A constrained reply as text, for a strategy that reads it itself; whatever a cut one holds whole is of use.

    Raises:
        ModelError: truncated, thinking_only or empty_reply: there is no text.
    """
    inline, text = split_thinking(envelope.content)
    thinking = "\n".join(part for part in (envelope.thinking, inline) if part)
    if not text:
        raise nothing_said(thinking, envelope.finish)
    return Reply(thinking, text, is_cut=envelope.finish == "length")


def read_thinking(envelope: Envelope) -> Reply:
    """Read a reply that was asked for as thinking, wherever the server put it. A cut one is thinking all the same.

    Raises:
        ModelError: empty_reply.
    """
    parts = (envelope.thinking.strip(), leading_thinking(envelope.content))
    reply = Reply("\n".join(part for part in parts if part))
    if not reply.thinking:
        raise ModelError("empty_reply", "the reply holds no thinking")
    if envelope.native_calls:
        reply.repairs.append(NATIVE_BESIDE_THINKING)
    if envelope.finish == "length":
        reply.repairs.append(CUT_THINKING)
    return reply


def holds_call(envelope: Envelope, tools: Sequence[dict[str, Any]]) -> bool:
    """Whether a reply that was to be JSON holds a call of one of these tools in another form."""
    if not tools:
        return False
    return bool(envelope.native_calls) or bool(calls_in_text(split_thinking(envelope.content)[1], tools, []))


def nothing_said(thinking: str, finish: str | None) -> ModelError:
    """The error for a reply in which nothing stands, or nothing but thinking."""
    if finish == "length":
        return cut_off(in_thinking=bool(thinking))
    if thinking:
        return ModelError("thinking_only", "the reply holds thinking and no answer; give the answer itself")
    return ModelError("empty_reply", "the reply is empty; answer in the form that was asked for")


def cut_off(*, in_thinking: bool = False) -> ModelError:
    """The error for a reply that its token limit ended before there was anything to use in it."""
    where = "the whole reply went into thinking and was" if in_thinking else "the reply was"
    detail = "thinking" if in_thinking else None
    return ModelError("truncated", f"{where} cut off at its token limit; be shorter", detail=detail)


def _as_json(text: str) -> tuple[bool, Any]:
    try:
        return True, strict_json.loads(text)
    except ValueError:
        return False, None


def _meeting(value: Any, schema: dict[str, Any]) -> Any:
    mismatch = first_mismatch(value, schema)
    if mismatch is not None:
        raise ModelError("schema_mismatch", f"the JSON does not have the form that was asked for: {mismatch}")
    return value


def _one_value(text: str, schema: dict[str, Any], envelope: Envelope, repairs: list[str]) -> Any:
    """The JSON of a reply in which other text may stand around it, but no second JSON value."""
    start = _STARTS.get(str(schema.get("type")), _ANY_START)
    begins = start.search(text)
    try:
        if begins is None:
            raise ValueError("no JSON in it")
        value, end = strict_json.value_at(text, begins.start())
    except ValueError as error:
        if envelope.finish == "length":
            raise cut_off() from None
        raise ModelError("not_json", f"the reply must be one JSON value and nothing else: {error}") from None
    before, after = text[: begins.start()].strip(), text[end:].strip()
    if _holds_value(after, start):
        raise ModelError("not_json", "the reply must be one JSON value and nothing else: it holds more than one")
    if before or after:
        repairs.append("fence" if _FENCE_OPEN.fullmatch(before) and after in ("", "```") else "prose")
    return value


def _holds_value(text: str, start: re.Pattern[str]) -> bool:
    begins = start.search(text)
    if begins is None:
        return False
    try:
        strict_json.value_at(text, begins.start())
    except ValueError:
        return False
    return True
