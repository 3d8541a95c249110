"""llama.cpp's own server, beyond `/v1/chat/completions`: exact counts, replies that go on, what its template knows.

Facts, measured with xllamacpp 2026.10: `/v1/chat/completions/input_tokens` counts a prompt exactly as the completion
will (24 of 24 conversations), and so does `/tokenize` for a prompt that is completed as it stands. A schema stands
beside such a prompt as `json_schema`; a last message that is the model's own would be continued by the chat endpoint
too, but not under a schema.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from agent.errors import BackendError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import Call, generating
from agent.llm.backends.open_reply import before_open, with_open
from agent.llm.backends.openai import OpenAIBackend, text_of_events, wire_messages
from agent.llm.envelopes import object_of
from agent.llm.wire_values import as_count, as_dict, as_text

COMPLETIONS = "/v1/completions"
COUNT = "/v1/chat/completions/input_tokens"
PROPS = "/props"
TEMPLATE = "/apply-template"
TOKENIZE = "/tokenize"
LOOK_UP_SECONDS = 30.0  # none of these generates, but they wait for one another


class LlamaCppServer:
    """One model on one llama.cpp server. `sampler` is sent with every request."""

    def __init__(self, url: str, model: str, *, key: str, sampler: dict[str, float]) -> None:
        self._model = model
        self._extra_body = {"cache_prompt": True, **sampler}
        self._chat = OpenAIBackend(url, model, api_key=key, extra_body=self._extra_body)
        self._transport = Transport(url, bearer=key)

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One chat completion; where the reply was begun, one completion of its rendered prompt.

        Raises:
            NotSentError, BackendError: see `Transport.send`.
        """
        if not request.continues:
            return self._chat.send(request, on_text)
        started = time.monotonic()
        body = self._completion_body(request, self._prompt(request, request.deadline_seconds))
        left = max(0.001, request.deadline_seconds - (time.monotonic() - started))
        call = generating(COMPLETIONS, replace(request, deadline_seconds=left), body)
        reply = self._transport.send(call, text_of_events(on_text) if on_text and request.stream else None)
        return replace(reply, seconds=time.monotonic() - started)

    def count_prompt_tokens(self, request: ChatRequest) -> int:
        """The exact count of a request's prompt.

        Raises:
            BackendError: the server does not answer, or gives no count.
        """
        if request.continues:
            # As a completion reads its prompt: markers are tokens, and what the model wants at the head is put there.
            body = {"content": self._prompt(request, LOOK_UP_SECONDS), "add_special": True, "parse_special": True}
            tokens = self._ask(TOKENIZE, body).get("tokens")
            count = len(tokens) if isinstance(tokens, list) else None
        else:
            count = as_count(self._ask(COUNT, _conversation(request)).get("input_tokens"))
        if not count:
            raise BackendError("bad_reply", "the embedded server did not count a prompt that it was asked to count")
        return count

    def facts(self) -> dict[str, Any]:
        """What the server's list says of the model's file (n_params, n_ctx_train, ftype, ...).

        Raises:
            BackendError: the server does not answer.
        """
        return as_dict(as_dict((self._chat.models() or {}).get(self._model)).get("meta"))

    def calls_tools(self) -> bool:
        """Whether the model's chat template has a place for tools. Where it has none, they are ignored without a word.

        Raises:
            BackendError: the server does not answer.
        """
        told = object_of(self._transport.send(Call("GET", PROPS, LOOK_UP_SECONDS)))
        return as_dict(told.get("chat_template_caps")).get("supports_tools") is True

    def close(self) -> None:
        """Hang up the calls that are under way."""
        self._chat.close()
        self._transport.close()

    def _prompt(self, request: ChatRequest, deadline_seconds: float) -> str:
        body = {**_conversation(before_open(request)), "add_generation_prompt": True}
        rendered = as_text(self._ask(TEMPLATE, body, deadline_seconds).get("prompt"))
        return with_open(rendered, request)

    def _completion_body(self, request: ChatRequest, prompt: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            **self._extra_body,
            "model": self._model,
            "prompt": prompt,
            "max_tokens": request.max_completion_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "stream": request.stream,
        }
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        if request.schema is not None:
            body["json_schema"] = request.schema
        if request.stop:
            body["stop"] = list(request.stop)
        return body

    def _ask(self, endpoint: str, body: dict[str, Any], deadline_seconds: float = LOOK_UP_SECONDS) -> dict[str, Any]:
        return object_of(self._transport.send(Call("POST", endpoint, deadline_seconds, body)))


def _conversation(request: ChatRequest) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": wire_messages(request.messages)}
    if request.tools:
        body["tools"] = list(request.tools)
    return body
