"""A backend whose replies stand in a file or come from a function: for tests, demonstrations and benchmarks.

It answers in Ollama's own envelope, so a scripted reply is decoded, charged and read like any other. It keeps the
completion cap as a server would: a longer reply is cut and says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import BackendError, NotSentError, UsageError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.bounds import message_bytes
from agent.state import ModelInfo

BYTES_PER_TOKEN = 4
_FIELDS = {"content", "thinking", "prompt_tokens", "completion_tokens", "status", "body", "not_sent", "seconds"}


@dataclass(frozen=True)
class ScriptedReply:
    """One reply. Counts that are not given are made from the bytes (four to a token); -1 leaves a count out.

    `body` replaces the whole envelope (with `status`); `not_sent` plays a refused connection.
    """

    content: str = ""
    thinking: str = ""
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
        """The script's name; there are no weights."""
        return ModelInfo(name=self._model, backend=self.name)

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:  # noqa: ARG002  the protocol's signature
        """A script cannot count ahead, as Ollama cannot."""
        return None

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """The next reply of the script.

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
        body = reply.body if reply.body is not None else _envelope(request, reply)
        if on_text and reply.body is None:
            on_text(reply.content)
        return RawReply("/api/chat", reply.status, "application/json", body, streamed=False, seconds=reply.seconds)

    def close(self) -> None:
        """Nothing is held."""


def load_script(path: Path, case_id: str | None = None) -> list[ScriptedReply]:
    """The replies of a JSON file: a list, or a mapping from case id to list ("*" for any other case).

    Raises:
        UsageError: the file cannot be read, is not such JSON, or has no replies for the case.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as a script ({error}); it must be a JSON list of replies") from None
    if isinstance(value, dict):
        value = value.get(case_id or "*", value.get("*"))
    if not isinstance(value, list):
        raise UsageError(f"{path}: holds no list of replies for case {case_id!r}; give one under its id, or under '*'")
    return [_reply(item, f"{path}, reply {number}") for number, item in enumerate(value, 1)]


def _reply(item: Any, where: str) -> ScriptedReply:
    if isinstance(item, str):
        return ScriptedReply(content=item)
    if not isinstance(item, dict):
        raise UsageError(f"{where}: must be a text or an object, not {type(item).__name__}")
    if unknown := set(item) - _FIELDS:
        raise UsageError(f"{where}: unknown field {sorted(unknown)[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    for field in ("content", "body"):  # an object stands for its JSON text, to spare authors the quoting
        if isinstance(item.get(field), dict | list):
            item = {**item, field: json.dumps(item[field])}
    return ScriptedReply(**item)


def _in_order(replies: Iterable[ScriptedReply | str]) -> Script:
    ready = [ScriptedReply(content=r) if isinstance(r, str) else r for r in replies]

    def script(_request: ChatRequest, number: int) -> ScriptedReply:
        if number >= len(ready):
            raise BackendError(
                "stream_incomplete", f"the script has only {len(ready)} replies and a further one was asked for"
            )
        return ready[number]

    return script


def _envelope(request: ChatRequest, reply: ScriptedReply) -> str:
    prompt = _count(reply.prompt_tokens, sum(map(message_bytes, request.messages)))
    content, finish = _within_cap(reply, request.max_completion_tokens)
    completion = _count(reply.completion_tokens, len((content + reply.thinking).encode("utf-8", "replace")))
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reply.thinking:
        message["thinking"] = reply.thinking
    body = {"model": "scripted", "message": message, "done": True, "done_reason": finish}
    if prompt >= 0:
        body["prompt_eval_count"] = prompt
    if completion >= 0:
        body["eval_count"] = completion
    return json.dumps(body)


def _within_cap(reply: ScriptedReply, cap: int) -> tuple[str, str]:
    if reply.completion_tokens is not None:
        return reply.content, "stop"
    data = reply.content.encode("utf-8", "replace")
    if -(-len(data) // BYTES_PER_TOKEN) <= cap:
        return reply.content, "stop"
    return data[: cap * BYTES_PER_TOKEN].decode("utf-8", "ignore"), "length"


def _count(given: int | None, size: int) -> int:
    return max(1, -(-size // BYTES_PER_TOKEN)) if given is None else given
