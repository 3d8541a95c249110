"""The raw reply of a recorded call, read again."""

from __future__ import annotations

from agent.errors import BackendError, ModelError
from agent.llm.backends.base import RawReply
from agent.llm.envelopes import decode
from agent.state import LLMCall


def raw_reply(call: LLMCall) -> RawReply | None:
    """The body as it came off the wire; None where none came."""
    if call.http_status is None:
        return None
    return RawReply(call.endpoint, call.http_status, call.content_type, call.raw, call.streamed, call.timing.total)


def reply_text(call: LLMCall) -> str | None:
    """What the model wrote, thinking apart; None where no reply can be taken out of the body."""
    raw = raw_reply(call)
    try:
        return None if raw is None else decode(raw).content
    except (ModelError, BackendError):
        return None
