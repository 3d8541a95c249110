"""A body off the wire -> an Envelope, or whose fault it is that there is none.

Three wrappings: Ollama's `/api/chat` and `/api/generate` (one object, or one a line) and `/v1/chat/completions` (one
object, or server-sent events) with what llama.cpp adds to it. Pure: bytes in, types out. Any body, however broken,
gives an Envelope or one of the errors of `agent.errors`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from agent.errors import BackendError, RequestError
from agent.llm.backends.base import Envelope, RawReply
from agent.llm.faults import error_text, has_crashed, looks_like_html, one_line, raise_for_status, raise_for_text
from agent.llm.strict_json import whole_characters
from agent.state import Usage

_LARGEST_COUNT = 2**53  # above this it is no count of tokens, and other readers of a trace would round it
_NANOSECONDS = 1e-9
_MILLISECONDS = 1e-3


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
    envelope = _read_v1(reply, documents) if _is_v1(reply) else _read_native(documents)
    if not whole and envelope.finish is None:
        raise _incomplete(reply, envelope)
    return envelope


def usage_of(reply: RawReply) -> Usage:
    """The tokens that a reply counts, whatever else is wrong with it. Never raises."""
    usage = Usage()
    for document in _documents(reply, strict=False)[0]:
        usage = _merged(usage, _v1_usage(document) if _is_v1(reply) else _native_usage(document))
    return usage


def object_of(reply: RawReply) -> dict[str, Any]:
    """The JSON object of a reply that is no generation (`/api/tags`, `/v1/models`, ...).

    Raises:
        BackendError: the server refused, or what came is not a JSON object.
    """
    raise_for_status(reply)
    documents, _ = _documents(reply)
    _raise_for_error(documents[0], reply)
    return documents[0]


def prompt_was_cut(counted: int, sent_estimate: int, num_ctx: int) -> bool:
    """Whether the server silently cut a prompt of about `sent_estimate` tokens to its window and read `counted`.

    A cut prompt keeps half the window and two or three tokens more; old servers fill the window. `sent_estimate` is a
    best guess, not a bound: an honest prompt is never taken for a cut one while the guess is within 1.4 times of the
    truth, either way.
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
    lines = _event_lines(reply.body) if _is_v1(reply) else _lines(reply.body)
    for line in lines:
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


def _unreadable(reply: RawReply, found: list[dict[str, Any]]) -> BackendError:
    if looks_like_html(reply):
        return BackendError("proxy_error", "a page of HTML came instead of a reply: a proxy or gateway answered")
    if found:
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


# -- Ollama -----------------------------------------------------------------------------------------------------------


def _read_native(documents: list[dict[str, Any]]) -> Envelope:
    envelope, reason = Envelope(), None
    content, thinking = [], []
    for document in documents:
        message = document.get("message", document)
        if not isinstance(message, dict) or not ({"message", "response", "done"} & document.keys()):
            raise BackendError("bad_reply", f"not a reply: {one_line(json.dumps(document))}")
        content.append(_text(message.get("content")) or _text(document.get("response")))
        thinking.append(_text(message.get("thinking")))
        envelope.native_calls += _calls(message.get("tool_calls"))
        envelope.usage = _merged(envelope.usage, _native_usage(document))
        reason = _text(document.get("done_reason")) or reason
        envelope.finish = reason or ("stop" if document.get("done") is True else envelope.finish)
        envelope.load_seconds = _seconds(document, "load_duration", _NANOSECONDS, envelope.load_seconds)
        envelope.prompt_seconds = _seconds(document, "prompt_eval_duration", _NANOSECONDS, envelope.prompt_seconds)
        envelope.completion_seconds = _seconds(document, "eval_duration", _NANOSECONDS, envelope.completion_seconds)
    envelope.content, envelope.thinking = whole_characters("".join(content)), whole_characters("".join(thinking))
    _refuse_empty_load(envelope, reason)
    return envelope


def _refuse_empty_load(envelope: Envelope, reason: str | None) -> None:
    """A request without messages only loads (or unloads) the model; older servers give no reason for the silence."""
    nothing = not (envelope.content or envelope.thinking or envelope.native_calls)
    silent = nothing and reason is None and envelope.finish is not None and envelope.usage == Usage()
    if reason in ("load", "unload") or silent:
        detail = "unload" if reason == "unload" else None
        raise RequestError(
            "empty_load", "the server found no prompt in our request and generated nothing", detail=detail
        )


def _native_usage(document: dict[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=_count(document.get("prompt_eval_count")), completion_tokens=_count(document.get("eval_count"))
    )


# -- /v1 --------------------------------------------------------------------------------------------------------------


def _read_v1(reply: RawReply, documents: list[dict[str, Any]]) -> Envelope:
    envelope = Envelope()
    content, thinking = [], []
    for document in documents:
        envelope.usage = _merged(envelope.usage, _v1_usage(document))
        timings = _dict(document.get("timings"))
        envelope.prompt_seconds = _seconds(timings, "prompt_ms", _MILLISECONDS, envelope.prompt_seconds)
        envelope.completion_seconds = _seconds(timings, "predicted_ms", _MILLISECONDS, envelope.completion_seconds)
        choice = _first_choice(document)
        message = _dict(choice.get("message") or choice.get("delta"))
        content.append(_text(message.get("content")))
        thinking.append(_text(message.get("reasoning_content")) or _text(message.get("reasoning")))
        _add_v1_calls(envelope.native_calls, message.get("tool_calls"), pieces="delta" in choice)
        reason = choice.get("finish_reason")
        envelope.finish = reason if isinstance(reason, str) and reason else envelope.finish
    envelope.content, envelope.thinking = whole_characters("".join(content)), whole_characters("".join(thinking))
    for call in envelope.native_calls:
        call["arguments"] = _joined(call["arguments"])
    if envelope.finish is None and not reply.streamed and envelope.usage.completion_tokens is not None:
        envelope.finish = "stop"  # some servers give no reason; one that counted the reply has finished it
    return envelope


def _first_choice(document: dict[str, Any]) -> dict[str, Any]:
    if "choices" not in document:
        raise BackendError("bad_reply", f"not a chat completion: {one_line(json.dumps(document))}")
    choices = document["choices"]
    # The chunk that carries the usage has no choices at all.
    return _dict(choices[0]) if isinstance(choices, list) and choices else {}


def _add_v1_calls(calls: list[dict[str, Any]], found: Any, *, pieces: bool) -> None:
    """Add whole calls, or `pieces` of them. A new id or name is a new call, whatever its index: Ollama's are all 0."""
    for call in _calls(found):
        old = next((c for c in reversed(calls) if c["index"] == call["index"]), None) if pieces else None
        is_new = call["id"] != old["id"] if old and call["id"] else bool(call["name"])
        if old is None or is_new:
            calls.append({**call, "arguments": [call["arguments"]]})
        else:
            old["arguments"].append(call["arguments"])


def _joined(pieces: list[Any]) -> Any:
    """The arguments that came in pieces of text; what is no text stays as the server gave it."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return whole_characters("".join(texts)) if texts else pieces[0]


def _v1_usage(document: dict[str, Any]) -> Usage:
    usage, timings = _dict(document.get("usage")), _dict(document.get("timings"))
    details = _dict(usage.get("prompt_tokens_details"))
    cached = _whole(details.get("cached_tokens"))
    if cached is None:
        cached = _whole(timings.get("cache_n"))
    evaluated = _whole(timings.get("prompt_n"))
    prompt = _count(usage.get("prompt_tokens"))
    if prompt is None and evaluated is not None and cached is not None:
        prompt = _count(evaluated + cached)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=_count(usage.get("completion_tokens")) or _count(timings.get("predicted_n")),
        cached_tokens=cached,
    )


# -- values that may be anything --------------------------------------------------------------------------------------


def _calls(value: Any) -> list[dict[str, Any]]:
    """Native calls in one form: id, index, name, and the arguments as they came (object, JSON text or None)."""
    found = []
    for call in value if isinstance(value, list) else ():
        function = _dict(_dict(call).get("function"))
        name, ident = function.get("name"), _dict(call).get("id")
        found.append(
            {
                "id": ident if isinstance(ident, str) and ident else None,
                "index": _whole(_dict(call).get("index")),
                "name": whole_characters(name) if isinstance(name, str) else "",
                "arguments": function.get("arguments"),
            }
        )
    return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """Text, or the text parts of a list of parts; anything else is no text."""
    if isinstance(value, list):
        return "".join(_text(_dict(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_COUNT
    return value if is_count else None


def _count(value: Any) -> int | None:
    """A token count. Servers leave a missing count out or write 0, and neither prompt nor reply is ever empty."""
    return _whole(value) or None


def _seconds(document: dict[str, Any], key: str, unit: float, otherwise: float | None) -> float | None:
    value = document.get(key)
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return value * unit if is_time and value is not None else otherwise


def _merged(before: Usage, now: Usage) -> Usage:
    """Counts of a later object win; one that it does not give stays as it was."""
    return before.model_copy(update=now.model_dump(exclude_none=True))
