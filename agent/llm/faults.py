"""A server's refusal as a typed error: whose fault is it, and may it heal by itself?

The texts are those of Ollama (native and /v1), llama.cpp's server and vLLM. Servers change status codes between
releases more often than wording, so the wording is asked first and the status only where it says nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from agent.errors import BackendError, BackendErrorType, ModelError, RequestError
from agent.llm.backends.base import RawReply

MESSAGE_LIMIT = 300
SCANNED = 4000  # characters of a server's text that are looked at; it may be as long as a body

_MODEL_TOOL_CALL = (
    "error parsing tool call",
    "returned invalid tool call",
    "failed to parse json",
    "failed to parse tool",
    "xml syntax error",
)
_OVERFLOW = (
    "longer than the context length",
    "exceed_context_size",
    "exceeds the available context size",
    "maximum context length",
    "context length exceeded",
    "input length exceeds",
)
_MEMORY = ("requires more system memory", "out of memory", "not enough memory", "insufficient memory", "cudamalloc")
_BUSY = ("server busy", "maximum pending requests", "loading model")
_OUR_REQUEST = (
    "invalid format",
    "cannot unmarshal",
    "must be of type",
    "invalid message content type",
    "invalid tool call arguments",
    "schema conversion failed",
    "does not support chat",
    "does not support generate",
)
# A runner that fell over is started again by the next request.
_CRASHED = (
    "unexpectedly stopped",
    "runner process",
    "an error was encountered while running the model",
    "unexpected eof",
    "connection reset",
    "connection refused",
)
_NO_MODEL = re.compile(r"model\b.{0,200}?(?:not found|does not exist)", re.IGNORECASE | re.DOTALL)
_PULLABLE = re.compile(r"model ['\"]([\w.:/-]{1,200})['\"]")


def one_line(text: str) -> str:
    """A server's text, fit for a one-line message: no control characters, at most 300 characters."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[:SCANNED]).split())
    return flat if len(flat) <= MESSAGE_LIMIT else flat[: MESSAGE_LIMIT - 1] + "…"


def error_text(value: Any) -> str | None:
    """The server's words in an error body (`{"error": "..."}` or `{"error": {"message": "..."}}`), None without one."""
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict):
        error = error.get("message") or json.dumps(error)
    if isinstance(error, str) and error:
        return error
    if error:
        return json.dumps(error)
    # Ollama 0.11.3 put the words into the key.
    return next((f"{key}: {said}" for key, said in value.items() if "parsing tool call" in key), None)


def looks_like_html(reply: RawReply) -> bool:
    """Whether a page came instead of an answer: something between us and the server spoke."""
    return "html" in reply.content_type.lower() or reply.body.lstrip()[:1] == "<"


def raise_for_text(text: str, *, status: int, native: bool) -> None:
    """Raise the error that the wording names; return where it names none."""
    low, said = text[:SCANNED].lower(), one_line(text)
    if status != 400 and any(words in low for words in _MODEL_TOOL_CALL):
        raise ModelError("model_tool_parse_failed", f"the server could not read the model's tool call: {said}")
    if "token repeat limit" in low:
        raise ModelError("repetition", f"the model repeated itself until the server stopped it: {said}")
    kind = _backend_type(low, status)
    if kind == "request_invalid":
        raise RequestError("request_invalid", f"the server refused our request: {said}")
    if kind == "model_not_found":
        raise BackendError("model_not_found", said + _how_to_pull(text, native))
    if kind is not None:
        raise BackendError(kind, said, retry=kind == "server_busy")


def _backend_type(low: str, status: int) -> BackendErrorType | None:
    tests: tuple[tuple[BackendErrorType, bool], ...] = (
        ("context_overflow", any(words in low for words in _OVERFLOW)),
        ("tools_unsupported", "does not support tools" in low),
        ("thinking_unsupported", "does not support thinking" in low),
        ("out_of_memory", any(words in low for words in _MEMORY)),
        ("server_busy", any(words in low for words in _BUSY)),
        ("request_invalid", any(words in low for words in _OUR_REQUEST)),
        ("model_not_found", status in (200, 400, 404) and bool(_NO_MODEL.search(low))),
    )
    return next((kind for kind, holds in tests if holds), None)


def _how_to_pull(text: str, native: bool) -> str:
    named = _PULLABLE.search(text[:SCANNED])
    return f"; get it with: ollama pull {named.group(1)}" if native and named else ""


def raise_for_status(reply: RawReply) -> None:
    """Raise the error that a reply with a status of 300 or more stands for; return for any other.

    Raises:
        ModelError, BackendError, RequestError: see `agent.errors`.
    """
    if reply.status < 300:
        return
    if looks_like_html(reply):
        raise _from_gateway(reply, f"status {reply.status} with a page of HTML")
    text = error_text(_value_or_none(reply.body))
    if text is not None:
        raise_for_text(text, status=reply.status, native="/v1/" not in reply.endpoint)
    _raise_by_status(reply, text)


def _raise_by_status(reply: RawReply, text: str | None) -> NoReturn:
    status, said = reply.status, f"status {reply.status}: {one_line(text or reply.body) or 'no text'}"
    if status == 401:
        raise BackendError("unauthorized", f"{said}; check LLM_API_KEY")
    if status == 403:
        raise BackendError("forbidden", f"{said}; the server refused our Host or Origin header")
    if status == 404:
        raise BackendError("not_found", f"{said}; no such path as {reply.endpoint} on this server")
    if status == 429:
        raise BackendError("server_busy", said, retry=True)
    if status in (407, 502, 504) or status < 400 or (status == 503 and text is None):
        raise _from_gateway(reply, said)
    if status == 503:
        raise BackendError("server_busy", said, retry=True)
    if status < 500 and status != 499:
        raise RequestError("request_invalid", f"the server refused our request, {said}")
    raise BackendError("server_error", said, retry=has_crashed(text or ""))


def has_crashed(text: str) -> bool:
    """Whether the words tell of a runner that fell over, which a later request starts again."""
    low = text[:SCANNED].lower()
    return any(words in low for words in _CRASHED)


def _from_gateway(reply: RawReply, said: str) -> BackendError:
    hint = "it came from a proxy or gateway, not from the model server"
    return BackendError("proxy_error", f"{said}; {hint}", retry=reply.status in (502, 503, 504))


def _value_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
