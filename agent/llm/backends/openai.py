"""Any server that speaks `/v1/chat/completions`: llama.cpp's, LM Studio, vLLM, Ollama itself.

One attempt each; what a reply means is read elsewhere. `num_ctx` cannot be sent this way: the server's own window
holds. `content` is always text, never null: some servers refuse null even beside tool calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import BackendError, RequestError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.backends.host import v1_url
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import Call, generating
from agent.llm.envelopes import object_of
from agent.llm.faults import one_line
from agent.llm.wire_values import as_dict, as_text, object_in
from agent.state import Message, ModelInfo

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
LOOK_UP_SECONDS = 10.0


class OpenAIBackend:
    """One model on one `/v1` server.

    `base_url` may end in `/v1` or not. `settings` is what the names of the settings that it came from begin with, for
    messages. `extra_body` holds fields that only this server knows (`cache_prompt`);
    nothing that is sent anyway can be changed by it.
    """

    name = "openai"
    can_constrain = True

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        extra_body: Mapping[str, Any] | None = None,
        settings: str = "LLM",
    ) -> None:
        self.url = v1_url(base_url, settings)
        self.model = model
        self._settings = settings
        self._extra_body = dict(extra_body or {})
        self._transport = Transport(self.url, bearer=api_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, {self.model!r})"

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One chat completion; `on_text` is given each piece of the reply's text where `request.stream` is set.

        Raises:
            NotSentError, BackendError: see `Transport.send`.
            RequestError: a reply was to go on, for which `/v1` has no request.
        """
        if request.continues:
            raise RequestError("request_invalid", "no /v1 request goes on from a reply that was begun")
        call = generating(CHAT, request, self.chat_body(request))
        return self._transport.send(call, text_of_events(on_text) if on_text and request.stream else None)

    def chat_body(self, request: ChatRequest) -> dict[str, Any]:
        """What is sent for a request."""
        body: dict[str, Any] = {
            **self._extra_body,
            "model": self.model,
            "messages": wire_messages(request.messages),
            "max_tokens": request.max_completion_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "stream": request.stream,
        }
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        if request.schema is not None:
            contract = {"name": "reply", "schema": request.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": contract}
        if request.tools:
            body["tools"] = list(request.tools)
        if request.stop:
            body["stop"] = list(request.stop)
        return body

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:  # noqa: ARG002  # the protocol's signature
        """None: `/v1` has no way to count without generating."""
        return None

    def rendered_bytes(self, request: ChatRequest) -> int | None:  # noqa: ARG002  # the protocol's signature
        """None: `/v1` renders nothing by itself."""
        return None

    def describe(self) -> ModelInfo:
        """Which model will answer. A server without a list of models is taken at its word.

        Raises:
            BackendError: the server does not answer, or lists other models only (model_not_found).
        """
        listed = self.models()
        found = {} if listed is None else listed.get(self.model)
        if found is None:
            there = ", ".join(sorted(listed or {})) or "no model at all"
            raise BackendError(
                "model_not_found",
                f"{self.url} has no model {self.model!r}; set {self._settings}_MODEL to one of: {one_line(there)}",
            )
        meta = found.get("meta")
        trained_for = meta.get("n_ctx_train") if isinstance(meta, dict) else None
        window = found.get("max_model_len") or trained_for
        return ModelInfo(
            name=self.model,
            backend=self.name,
            context_window=window if isinstance(window, int) and window > 0 else None,
        )

    def models(self) -> dict[str, dict[str, Any]] | None:
        """What the server lists, by id; None where it keeps no list.

        Raises:
            BackendError: the server does not answer, or refuses.
        """
        reply = self._transport.send(Call("GET", MODELS, LOOK_UP_SECONDS))
        if reply.status in (404, 405, 501):
            return None
        data = object_of(reply).get("data")
        entries = [e for e in data if isinstance(e, dict)] if isinstance(data, list) else []  # null where there is none
        return {entry["id"]: entry for entry in entries if isinstance(entry.get("id"), str)}

    def close(self) -> None:
        """Hang up a call that is under way."""
        self._transport.close()


def wire_messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """A conversation as /v1 wants it: arguments as JSON text, and an id that ties every result to its call."""
    wire: list[dict[str, Any]] = []
    waiting: list[str] = []  # ids of calls that no result has answered yet
    for place, message in enumerate(messages):
        item: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            waiting = [call.id or f"call_{place}_{n}" for n, call in enumerate(message.tool_calls)]
            item["tool_calls"] = [
                {
                    "id": ident,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for ident, call in zip(waiting, message.tool_calls, strict=True)
            ]
        if message.role == "tool":
            item["tool_call_id"] = message.tool_call_id or (waiting[0] if waiting else f"call_{place}")
            waiting = [ident for ident in waiting if ident != item["tool_call_id"]]
        wire.append(item)
    return wire


def text_of_events(on_text: OnText) -> Callable[[bytes], None]:
    """Tells `on_text` the reply's text in each event of a streamed chat or completion."""

    def line(data: bytes) -> None:
        field, _, value = data.partition(b":")
        choices = object_in(value).get("choices") if field == b"data" else None
        choice = as_dict(choices[0]) if isinstance(choices, list) and choices else {}
        text = as_text(as_dict(choice.get("delta")).get("content")) or as_text(choice.get("text"))
        if text:
            on_text(text)

    return line
