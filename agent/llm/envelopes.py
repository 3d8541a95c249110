"""A body off the wire -> an Envelope, or whose fault it is that there is none.

Two wrappings: Ollama's `/api/chat` and `/api/generate` (one object, or one a line); `/v1/chat/completions` and
`/v1/completions` (one object, or server-sent events). Pure: bytes in, types out. Any body, however broken, gives an
Envelope or one of the errors of `agent.errors`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from agent.errors import BackendError, ModelError
from agent.llm.backends.base import OLLAMA_EMBED, V1_EMBED, Envelope, RawReply
from agent.llm.faults import error_text, has_crashed, looks_like_html, one_line, raise_for_status, raise_for_text
from agent.llm.native_envelope import native_usage, read_native
from agent.llm.v1_envelope import read_v1, v1_usage
from agent.llm.wire_values import as_dict, merged
from agent.state import Usage


def decode(reply: RawReply) -> Envelope:
    """Take a reply out of its wrapping.

    Raises:
        ModelError: the server could not read what the model wrote.
        RequestError: our request was wrong.
        BackendError: the server failed, or the reply is cut or is none.
    """
    raise_for_status(reply)
    documents, whole = _documents(reply)
    for document in documents:
        _raise_for_error(document, reply)
    envelope = read_v1(documents, streamed=reply.streamed) if _is_v1(reply) else read_native(documents)
    if not whole and envelope.finish is None:
        raise _incomplete(reply, envelope)
    return envelope


def usage_of(reply: RawReply) -> Usage:
    """The tokens that a reply counts, whatever else is wrong with it. Never raises.

    A stream may count as it goes; where it broke off nothing is known, for the server may have gone on.
    """
    usage, (documents, whole) = Usage(), _documents(reply, strict=False)
    if reply.streamed and not whole and not any(map(_ends_reply, documents)):
        return usage
    for document in documents:
        usage = merged(usage, v1_usage(document) if _is_v1(reply) else native_usage(document))
    if reply.endpoint in (OLLAMA_EMBED, V1_EMBED) and usage.prompt_tokens is not None:
        return usage.model_copy(update={"completion_tokens": 0})  # nothing is written where texts become vectors
    return usage


def _ends_reply(document: dict[str, Any]) -> bool:
    choices = document.get("choices")
    reasons = [as_dict(choice).get("finish_reason") for choice in choices] if isinstance(choices, list) else []
    return document.get("done") is True or bool(document.get("done_reason")) or any(reasons)


def object_of(reply: RawReply) -> dict[str, Any]:
    """The JSON object of a reply that is no generation (`/api/tags`, `/v1/models`, ...).

    Raises:
        BackendError: the server refused, or what came is not a JSON object.
    """
    try:
        raise_for_status(reply)
        documents, _ = _documents(reply)
        _raise_for_error(documents[0], reply)
    except ModelError as error:  # so the server words it, but no model has written anything here
        raise BackendError("server_error", f"{reply.endpoint} failed: {error}") from None
    return documents[0]


def prompt_was_cut(counted: int, sent_estimate: int, num_ctx: int) -> bool:
    """Whether the server silently cut a prompt of about `sent_estimate` tokens to its window and read `counted`.

    A cut prompt keeps half the window and two or three tokens more; old servers fill the window. `sent_estimate` is a
    best guess, not a bound: an honest prompt is never taken for a cut one while the guess is below 1.4 times the
    truth.
    """
    halved, filled = counted - num_ctx // 2 in (2, 3), counted >= num_ctx - 1
    return (halved or filled) and sent_estimate > 1.42 * counted


# -- from a body to its JSON objects ----------------------------------------------------------------------------------


def _is_v1(reply: RawReply) -> bool:
    return "/v1/" in reply.endpoint


def _documents(reply: RawReply, *, strict: bool = True) -> tuple[list[dict[str, Any]], bool]:
    """The JSON objects of a body in order, and whether its end was marked as such (`data: [DONE]`).

    Where not `strict`, what cannot be read is left out; else it raises.
    """
    whole = _object(reply.body)
    if whole is not None:
        return [whole], False
    found: list[dict[str, Any]] = []
    for line in _event_lines(reply.body) if _is_v1(reply) else _lines(reply.body):
        if line == "[DONE]" and found:
            return found, True
        document = _object(line)
        if document is not None:
            found.append(document)
        elif strict:
            raise _unreadable(reply, found)
    if strict and not found:
        raise _unreadable(reply, found)
    return found, False


def _lines(body: str) -> Iterator[str]:
    # Not str.splitlines: that also splits at U+2028, which may stand unescaped in a JSON string.
    return (line for raw in body.split("\n") if (line := raw.strip()))


def _event_lines(body: str) -> Iterator[str]:
    """The data of server-sent events; `error:` is how older llama.cpp servers name one."""
    for line in _lines(body):
        if line.startswith(("data:", "error:")):
            yield line.partition(":")[2].strip()
        elif not line.startswith((":", "event:", "id:", "retry:")):
            yield line


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


# NaN and the like are no JSON, but servers write them (log-probabilities); as null they spoil nothing else.
_DECODER = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite)


# -- what is wrong with it --------------------------------------------------------------------------------------------


def _unreadable(reply: RawReply, found: list[dict[str, Any]]) -> BackendError:
    if looks_like_html(reply):
        return BackendError("proxy_error", "a page of HTML came instead of a reply: a proxy or gateway answered")
    if found or (reply.streamed and not reply.body.strip()):
        return BackendError("stream_incomplete", f"the stream broke off inside its object {len(found) + 1}")
    said = one_line(reply.body) or "an empty body"
    return BackendError("bad_reply", f"{reply.endpoint} gave no JSON object: {said}")


def _raise_for_error(document: dict[str, Any], reply: RawReply) -> None:
    text = error_text(document)
    if text is None:
        return
    raise_for_text(text, status=reply.status, native=not _is_v1(reply))
    if reply.streamed:
        raise BackendError("stream_error", f"the server failed while it answered: {one_line(text)}", retry=True)
    raise BackendError("server_error", f"the server failed: {one_line(text)}", retry=has_crashed(text))


def _incomplete(reply: RawReply, envelope: Envelope) -> BackendError:
    """Ollama ends a reply that repeats one token without a last object: a reply without an end may be just that."""
    repeats = not reply.streamed and bool(envelope.content or envelope.thinking)
    why = "the server stopped a reply that repeats itself" if repeats else "the reply ends before it is finished"
    return BackendError("stream_incomplete", why, detail="repetition" if repeats else None)
