"""Ollama's own wrapping: `/api/chat` and `/api/generate`, one object or one a line. Durations come in nanoseconds."""

from __future__ import annotations

import json
from typing import Any

from agent.errors import BackendError, RequestError
from agent.llm.backends.base import Envelope
from agent.llm.faults import one_line
from agent.llm.strict_json import whole_characters
from agent.llm.wire_values import as_calls, as_count, as_seconds, as_text, merged
from agent.state import Usage

_NANOSECONDS = 1e-9


def read_native(documents: list[dict[str, Any]]) -> Envelope:
    """The objects of one reply, in order, as an Envelope; `finish` stays None where no object ends it.

    Raises:
        BackendError: an object is no piece of a reply.
        RequestError: our request held no prompt, so that nothing was generated.
    """
    envelope, reason = Envelope(), None
    content, thinking = [], []
    for document in documents:
        message = document.get("message", document)
        if not isinstance(message, dict) or not ({"message", "response", "done"} & document.keys()):
            raise BackendError("bad_reply", f"not a reply: {one_line(json.dumps(document))}")
        content.append(as_text(message.get("content")) or as_text(document.get("response")))
        thinking.append(as_text(message.get("thinking")))
        envelope.native_calls += as_calls(message.get("tool_calls"))
        envelope.usage = merged(envelope.usage, native_usage(document))
        reason = as_text(document.get("done_reason")) or reason
        envelope.finish = reason or ("stop" if document.get("done") is True else envelope.finish)
        _note_times(envelope, document)
    envelope.content, envelope.thinking = whole_characters("".join(content)), whole_characters("".join(thinking))
    _refuse_empty_load(envelope, reason)
    return envelope


def native_usage(document: dict[str, Any]) -> Usage:
    """What one object counts. Ollama does not tell how much of a prompt it had cached."""
    return Usage(
        prompt_tokens=as_count(document.get("prompt_eval_count")),
        completion_tokens=as_count(document.get("eval_count")),
    )


def _note_times(envelope: Envelope, document: dict[str, Any]) -> None:
    envelope.load_seconds = as_seconds(document.get("load_duration"), _NANOSECONDS, envelope.load_seconds)
    prompt, completion = document.get("prompt_eval_duration"), document.get("eval_duration")
    envelope.prompt_seconds = as_seconds(prompt, _NANOSECONDS, envelope.prompt_seconds)
    envelope.completion_seconds = as_seconds(completion, _NANOSECONDS, envelope.completion_seconds)


def _refuse_empty_load(envelope: Envelope, reason: str | None) -> None:
    """A request without messages only loads (or unloads) the model; older servers give no reason for the silence."""
    nothing = not (envelope.content or envelope.thinking or envelope.native_calls)
    silent = nothing and reason is None and envelope.finish is not None and envelope.usage == Usage()
    if reason in ("load", "unload") or silent:
        detail = "unload" if reason == "unload" else None
        raise RequestError("empty_load", "the server found no prompt in our request: it wrote nothing", detail=detail)
