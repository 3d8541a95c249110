"""The wrapping of `/v1/chat/completions` and `/v1/completions`, one object or many pieces.

With the `timings` that llama.cpp adds.
"""

from __future__ import annotations

import json
from typing import Any

from agent.errors import BackendError
from agent.llm.backends.base import Envelope
from agent.llm.faults import one_line
from agent.llm.strict_json import whole_characters
from agent.llm.wire_values import as_calls, as_count, as_dict, as_seconds, as_text, as_whole, merged
from agent.state import Usage

_MILLISECONDS = 1e-3


def read_v1(documents: list[dict[str, Any]], *, streamed: bool) -> Envelope:
    """The objects of one reply, in order, as an Envelope; `finish` stays None where no object ends it.

    Raises:
        BackendError: an object is no piece of a completion.
    """
    envelope = Envelope()
    content, thinking = [], []
    latest: dict[int | None, dict[str, Any]] = {}  # the call that a further piece of an index belongs to
    for document in documents:
        envelope.usage = merged(envelope.usage, v1_usage(document))
        _note_times(envelope, as_dict(document.get("timings")))
        choice = _first_choice(document)
        message = as_dict(choice.get("message") or choice.get("delta"))
        content.append(as_text(message.get("content")) or as_text(choice.get("text")))
        thinking.append(as_text(message.get("reasoning_content")) or as_text(message.get("reasoning")))
        if "delta" not in choice:
            latest = {}
        envelope.native_calls += _new_calls(message.get("tool_calls"), latest)
        envelope.finish = as_text(choice.get("finish_reason")) or envelope.finish
    envelope.content, envelope.thinking = whole_characters("".join(content)), whole_characters("".join(thinking))
    for call in envelope.native_calls:
        call["arguments"] = _joined(call["arguments"])
    if envelope.finish is None and not streamed and envelope.usage.completion_tokens is not None:
        envelope.finish = "stop"  # some servers give no reason; one that counted the reply has finished it
    return envelope


def v1_usage(document: dict[str, Any]) -> Usage:
    """What one object counts. llama.cpp's `prompt_n` leaves out the tokens that were cached."""
    usage, timings = as_dict(document.get("usage")), as_dict(document.get("timings"))
    cached = as_whole(as_dict(usage.get("prompt_tokens_details")).get("cached_tokens"))
    if cached is None:
        cached = as_whole(timings.get("cache_n"))
    prompt, evaluated = as_count(usage.get("prompt_tokens")), as_whole(timings.get("prompt_n"))
    if prompt is None and evaluated is not None and cached is not None:
        prompt = as_count(evaluated + cached)
    completion = as_count(usage.get("completion_tokens")) or as_count(timings.get("predicted_n"))
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)


def _note_times(envelope: Envelope, timings: dict[str, Any]) -> None:
    envelope.prompt_seconds = as_seconds(timings.get("prompt_ms"), _MILLISECONDS, envelope.prompt_seconds)
    envelope.completion_seconds = as_seconds(timings.get("predicted_ms"), _MILLISECONDS, envelope.completion_seconds)


def _first_choice(document: dict[str, Any]) -> dict[str, Any]:
    if "choices" not in document:
        raise BackendError("bad_reply", f"not a chat completion: {one_line(json.dumps(document))}")
    choices = document["choices"]
    # The piece that carries the usage has no choices at all.
    return as_dict(choices[0]) if isinstance(choices, list) and choices else {}


def _new_calls(found: Any, latest: dict[int | None, dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls that begin here; pieces of earlier ones are added to those.

    A new id or name is a new call, whatever its index: Ollama's are all 0.
    """
    new = []
    for call in as_calls(found):
        old = latest.get(call["index"])
        is_new = call["id"] != old["id"] if old and call["id"] else bool(call["name"])
        if old is not None and not is_new:
            old["arguments"].append(call["arguments"])
            continue
        latest[call["index"]] = {**call, "arguments": [call["arguments"]]}
        new.append(latest[call["index"]])
    return new


def _joined(pieces: list[Any]) -> Any:
    """The arguments that came in pieces of text; what is no text stays as the server gave it."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return whole_characters("".join(texts)) if texts else pieces[0]
