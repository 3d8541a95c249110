"""A backend whose replies stand in a file or come from a function: for tests, demonstrations and benchmarks.

It answers in Ollama's own envelope, so a scripted reply is decoded, charged and read like any other. As a server would,
it ends a reply before the request's stop texts, and cuts one that is longer than the completion cap.

A file of replies (`--scripted FILE`) is a JSON list, or a mapping from case id to list. A reply is a text, or an object
with the fields of ScriptedReply: docs/suites.md shows one file for each strategy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

from agent.errors import BackendError, NotSentError, UsageError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.backends.ollama import CHAT, GENERATE
from agent.llm.bounds import message_bytes
from agent.state import ModelInfo

BYTES_PER_TOKEN = 4
THINK_END = "</think>"
MAX_SECONDS = 3600
_WRAPPED = 'a reply that is itself JSON is written {"content": ...}'
# What a field of a reply in a file may be, in words and as types. true and false are no numbers.
_COUNT = ("a whole number of tokens, or null", (int, NoneType))
_DUE: dict[str, tuple[str, tuple[type, ...]]] = {
    "content": ("a text, or a JSON object or list", (str, dict, list)),
    "thinking": ("a text", (str,)),
    "tool_calls": ("a list of objects with a name and, as an object, arguments", (list,)),
    "prompt_tokens": _COUNT,
    "completion_tokens": _COUNT,
    "status": ("a whole number", (int,)),
    "body": ("a text, a JSON object or list, or null", (str, dict, list, NoneType)),
    "not_sent": ("true or false", (bool,)),
    "seconds": (f"a number from 0 to {MAX_SECONDS}", (int, float)),
}


@dataclass(frozen=True)
class ScriptedReply:
    """One reply. Counts that are not given are made from the bytes (four to a token); -1 leaves a count out.

    `tool_calls` are native calls, each an object of `name` and `arguments`; a cap that ends the reply loses them.
    `body` replaces the whole envelope (with `status`); `not_sent` plays a refused connection.
    """

    content: str = ""
    thinking: str = ""
    tool_calls: Sequence[dict[str, Any]] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    status: int = 200
    body: str | None = None
    not_sent: bool = False
    seconds: float = 0.0


Script = Callable[[ChatRequest, int], ScriptedReply]


class ScriptedBackend:
    """Plays a script: the function gets the request and the number of requests before it."""

    name = "scripted"
    can_constrain = True

    def __init__(self, script: Script | Sequence[ScriptedReply | str], *, model: str = "scripted") -> None:
        self._script = script if callable(script) else _in_order(script)
        self._model = model
        self._sent = 0

    def describe(self) -> ModelInfo:
        """The script's name; there are no weights. A script can play a call, and go on from what was begun."""
        return ModelInfo(name=self._model, backend=self.name, tools=True, continues=True)

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:  # noqa: ARG002  the protocol's signature
        """A script cannot count ahead, as Ollama cannot."""
        return None

    def rendered_bytes(self, request: ChatRequest) -> int | None:  # noqa: ARG002  # the protocol's signature
        """None: there is no template."""
        return None

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """The next reply of the script, in the envelope of `/api/generate` where it goes on from what was begun.

        Raises:
            NotSentError: the script says that the connection is refused.
            BackendError: the script has come to its end.
        """
        reply = self._script(request, self._sent)
        if reply.not_sent:
            raise NotSentError("unreachable", "the script refuses the connection")
        self._sent += 1
        if reply.seconds:
            time.sleep(reply.seconds)
        body = reply.body
        if body is None:
            written, finish = _as_written(request, reply)
            body = _envelope(request, written, finish)
            if on_text:
                on_text(written.content)
        endpoint = GENERATE if request.continues else CHAT
        return RawReply(endpoint, reply.status, "application/json", body, streamed=False, seconds=reply.seconds)

    def close(self) -> None:
        """Nothing is held."""


def load_script(path: Path, case_id: str | None = None) -> list[ScriptedReply]:
    """The replies of a JSON file: a list, or a mapping from case id to list ("*" for any other case).

    Raises:
        UsageError: the file cannot be read, is not such JSON, or has no replies for the case.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: cannot be read as a script ({why}); it must be a JSON list of replies") from None
    if isinstance(value, dict):
        value = value.get(case_id or "*", value.get("*"))
    if not isinstance(value, list):
        case, place = ("a single task", "") if case_id is None else (f"case {case_id!r}", "its id, or under ")
        raise UsageError(f"{path}: holds no list of replies for {case}; give one under {place}'*'")
    return [_reply(item, f"{path}, reply {number}") for number, item in enumerate(value, 1)]


def _reply(item: Any, where: str) -> ScriptedReply:
    if isinstance(item, str):
        return ScriptedReply(content=item)
    if not isinstance(item, dict):
        raise UsageError(f"{where}: must be a text or an object; {_WRAPPED}")
    for name, value in item.items():
        if name not in _DUE:
            raise UsageError(f"{where}: unknown field {name!a:.60}; known are {', '.join(_DUE)}; {_WRAPPED}")
        if not _is_due(name, value):
            raise UsageError(f"{where}: {name} must be {_DUE[name][0]}")
    for field in ("content", "body"):  # an object stands for its JSON text, to spare authors the quoting
        if isinstance(item.get(field), dict | list):
            item = {**item, field: json.dumps(item[field])}
    return ScriptedReply(**item)


def _is_due(name: str, value: Any) -> bool:
    kinds = _DUE[name][1]
    fits = bool in kinds if isinstance(value, bool) else isinstance(value, kinds)
    if fits and name == "tool_calls":
        return _are_calls(value)
    return fits and (name != "seconds" or 0 <= value <= MAX_SECONDS)


def _are_calls(value: list[Any]) -> bool:
    return all(
        isinstance(call, dict)
        and call.keys() == {"name", "arguments"}
        and isinstance(call["name"], str)
        and isinstance(call["arguments"], dict)
        for call in value
    )


def _in_order(replies: Iterable[ScriptedReply | str]) -> Script:
    ready = [ScriptedReply(content=r) if isinstance(r, str) else r for r in replies]

    def script(_request: ChatRequest, number: int) -> ScriptedReply:
        if number >= len(ready):
            raise BackendError(
                "stream_incomplete", f"the script has only {len(ready)} replies and a further one was asked for"
            )
        return ready[number]

    return script


def _as_written(request: ChatRequest, reply: ScriptedReply) -> tuple[ScriptedReply, str]:
    """What of a reply a model would come to write before a stop text or the cap, and the reason for its end."""
    thought = f"{reply.thinking}{THINK_END}" if reply.thinking else ""
    whole = thought + reply.content
    ends = [place for stop in request.stop if (place := whole.find(stop)) >= 0]
    if ends:
        end = min(ends)
        content = whole[len(thought) : end]
        reply = replace(reply, thinking=reply.thinking[:end], content=content, tool_calls=())
    cap = request.max_completion_tokens * BYTES_PER_TOKEN
    if reply.completion_tokens is not None or _size(reply.content, reply.tool_calls) <= cap:
        return reply, "stop"
    content = reply.content.encode("utf-8", "replace")[:cap].decode("utf-8", "ignore")
    return replace(reply, content=content, tool_calls=()), "length"


def _envelope(request: ChatRequest, reply: ScriptedReply, finish: str) -> str:
    message: dict[str, Any] = {"response" if request.continues else "content": reply.content}
    if reply.thinking:
        message["thinking"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{place}", "function": {"index": place, **call}} for place, call in enumerate(reply.tool_calls)
        ]
    body = {"model": "scripted", "done": True, "done_reason": finish}
    body |= message if request.continues else {"message": {"role": "assistant", **message}}
    counts = {
        "prompt_eval_count": _count(reply.prompt_tokens, sum(map(message_bytes, request.messages))),
        "eval_count": _count(reply.completion_tokens, _size(reply.content + reply.thinking, reply.tool_calls)),
    }
    return json.dumps(body | {name: count for name, count in counts.items() if count >= 0})


def _size(text: str, calls: Sequence[dict[str, Any]]) -> int:
    return len(text.encode("utf-8", "replace")) + (len(json.dumps(list(calls))) if calls else 0)


def _count(given: int | None, size: int) -> int:
    return max(1, -(-size // BYTES_PER_TOKEN)) if given is None else given
