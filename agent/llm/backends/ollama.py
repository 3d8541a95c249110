"""Ollama's own API. One attempt each; what a reply means is read elsewhere.

Sent with every chat and never changed within a batch, because a change reloads the model: `num_ctx` and `shift:false`
(a full window ends the reply instead of losing its beginning). `truncate:false` asks the server to refuse a prompt
that does not fit rather than to cut it. `think` is always explicit: models that can think do so unasked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.errors import BackendError, RequestError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.backends.host import ollama_url
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import Call, generating
from agent.llm.backends.ollama_models import LocalModel, capabilities, context_window, full_name, models_in
from agent.llm.backends.ollama_pull import OnProgress, PullProgress
from agent.llm.backends.open_reply import before_open, with_open
from agent.llm.envelopes import object_of
from agent.llm.faults import one_line
from agent.llm.wire_values import as_dict, as_text, object_in
from agent.state import Message, ModelInfo

CHAT = "/api/chat"
GENERATE = "/api/generate"
LOOK_UP_SECONDS = 10.0  # these calls touch no model and answer at once, or the server is not well
PULL_SECONDS = 24 * 3600.0
PULL_SILENCE_SECONDS = 300.0
# The oldest release on which `_debug_render_only` was seen to render and not to generate; older ones may ignore it.
RENDERS_SINCE = (0, 32)


class OllamaBackend:
    """One model on one Ollama server.

    `host` is any form of OLLAMA_HOST. `keep_alive` (seconds, or a duration like "10m") says how long the model stays
    loaded; None leaves that to the server.
    """

    name = "ollama"
    can_constrain = True

    def __init__(self, host: str, model: str, *, keep_alive: str | int | None = None) -> None:
        self.url = ollama_url(host)
        self.model = full_name(model)
        self._keep_alive = keep_alive
        self._renders: bool | None = None  # not asked yet
        self._transport = Transport(self.url)

    def __repr__(self) -> str:
        return f"OllamaBackend({self.url!r}, {self.model!r})"

    # -- generating ---------------------------------------------------------------------------------------------

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One `/api/chat`; `on_text` is given each piece of the reply's text where `request.stream` is set.

        A reply that was begun is rendered first, without generating, and goes on with one `/api/generate`.

        Raises:
            NotSentError, BackendError: see `Transport.send`.
            RequestError: a reply was to go on, and this server is too old for that.
        """
        if request.continues:
            return self._continue(request, on_text)
        call = generating(CHAT, request, self.chat_body(request))
        return self._transport.send(call, _text_of_lines(on_text) if on_text and request.stream else None)

    def generate(
        self, prompt: str, request: ChatRequest, *, raw: bool = True, on_text: OnText | None = None
    ) -> RawReply:
        """One `/api/generate`: continue `prompt` as it stands (`raw`), under the request's schema and limits.

        The request's messages and tools are not sent.

        Raises:
            NotSentError, BackendError: see `Transport.send`.
        """
        body = {**self._common(request), "prompt": prompt, "raw": raw}
        call = generating(GENERATE, request, body)
        return self._transport.send(call, _text_of_lines(on_text) if on_text and request.stream else None)

    def _continue(self, request: ChatRequest, on_text: OnText | None) -> RawReply:
        started = time.monotonic()
        if not self.can_render():
            raise RequestError("request_invalid", f"{self.url} is too old to go on from a reply that was begun")
        rendering = self._render(before_open(request))
        if rendering.status != 200:
            return rendering
        rendered = _rendered_in(rendering)
        if rendered is None:
            raise BackendError("bad_reply", f"{self.url} was asked to render a prompt and did something else")
        left = max(0.001, request.deadline_seconds - (time.monotonic() - started))
        reply = self.generate(with_open(rendered, request), replace(request, deadline_seconds=left), on_text=on_text)
        return replace(reply, seconds=time.monotonic() - started)

    def chat_body(self, request: ChatRequest) -> dict[str, Any]:
        """What is sent for a request."""
        body = {**self._common(request), "messages": [_wire_message(m) for m in request.messages]}
        if request.tools:
            body["tools"] = list(request.tools)
        return body

    def _common(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "stream": request.stream,
            # With a schema, thinking would make the server generate twice and count once.
            "think": request.think and request.schema is None,
            "truncate": False,
            "shift": False,
            "options": {
                "num_ctx": request.num_ctx,
                "num_predict": request.max_completion_tokens,
                "temperature": request.temperature,
                "seed": request.seed,
            },
        }
        if request.stop:
            body["options"]["stop"] = list(request.stop)
        if request.schema is not None:
            body["format"] = request.schema
        if self._keep_alive is not None:
            body["keep_alive"] = self._keep_alive
        return body

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:  # noqa: ARG002  # the protocol's signature
        """None: Ollama counts only while it generates."""
        return None

    def rendered_bytes(self, request: ChatRequest) -> int | None:
        """The size of the rendered prompt, tools included; None where this server is too old to be asked.

        Raises:
            NotSentError, BackendError: the server does not answer, or refuses.
        """
        rendered = self.render_prompt(request)
        return None if rendered is None else len(rendered.encode("utf-8", "surrogatepass"))

    def render_prompt(self, request: ChatRequest) -> str | None:
        """The prompt as the model would see it, without generating; None where this server is too old to be asked.

        Loads the model.

        Raises:
            NotSentError, BackendError: the server does not answer, or refuses.
        """
        if not self.can_render():
            return None
        rendered = _rendered_in(self._render(request))
        if rendered is None:  # it does not know the field, whatever its release: it is not asked again
            self._renders = False
        return rendered

    def can_render(self) -> bool:
        """Whether this server renders a prompt without generating; it is asked once.

        Raises:
            BackendError: the server does not answer.
        """
        if self._renders is None:
            self._renders = _release(self.version()) >= RENDERS_SINCE
        return self._renders

    def _render(self, request: ChatRequest) -> RawReply:
        body = {**self.chat_body(request), "stream": False, "_debug_render_only": True}
        # Should a later release not know the field any more, it must not write much.
        body["options"] = {**body["options"], "num_predict": 1}
        return self._transport.send(Call("POST", CHAT, request.deadline_seconds, body))

    # -- looking up ---------------------------------------------------------------------------------------------

    def describe(self) -> ModelInfo:
        """Which weights will answer, as `/api/tags` and `/api/show` tell.

        Raises:
            BackendError: the server does not answer, or does not have the model (model_not_found).
        """
        known = {model.name: model for model in self.models()}
        found = known.get(self.model)
        if found is None:
            there = one_line(", ".join(sorted(known))) or "no model at all"
            raise BackendError(
                "model_not_found",
                f"{self.url} does not have {self.model}; get it with: ollama pull {self.model} (there: {there})",
            )
        show = self.show()
        # Not the list's: it leaves out tools that only the weights' own template knows.
        can = capabilities(show)
        version = self.version()
        self._renders = _release(version) >= RENDERS_SINCE
        return ModelInfo(
            name=self.model,
            backend=self.name,
            backend_version=version,
            digest=found.digest,
            quantization=found.quantization,
            parameters=found.parameters,
            context_window=found.context_window or context_window(show),
            tools="tools" in can if can else None,
            continues=self._renders,
        )

    def version(self) -> str | None:
        """The server's release, None where it does not tell.

        Raises:
            BackendError: the server does not answer.
        """
        return as_text(self._look_up("/api/version").get("version")) or None

    def models(self) -> list[LocalModel]:
        """All models the server holds, in its order.

        Raises:
            BackendError: the server does not answer.
        """
        return models_in(self._look_up("/api/tags"))

    def running(self) -> list[LocalModel]:
        """The models loaded now; `context_window` is the window each is served with.

        Raises:
            BackendError: the server does not answer.
        """
        return models_in(self._look_up("/api/ps"))

    def show(self) -> dict[str, Any]:
        """All that `/api/show` tells of the model (template, capabilities, model_info, ...).

        Raises:
            BackendError: the server does not answer, or does not have the model.
        """
        return self._look_up("/api/show", {"model": self.model})

    def pull(self, on_progress: OnProgress) -> None:
        """Fetch the model; `on_progress(status, completed_bytes, total_bytes)` is told of every line of it.

        Raises:
            BackendError: there is no such model, the server lost its way to it, or fell silent for five minutes.
        """
        body = {"model": self.model, "stream": True}
        call = Call("POST", "/api/pull", PULL_SECONDS, body, streamed=True, silence_seconds=PULL_SILENCE_SECONDS)
        progress = PullProgress(self.model, on_progress)
        reply = self._transport.send(call, progress.line)
        if reply.status != 200:
            object_of(reply)
        progress.finish()

    def close(self) -> None:
        """Hang up a call that is under way."""
        self._transport.close()

    def _look_up(self, endpoint: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        method = "GET" if body is None else "POST"
        return object_of(self._transport.send(Call(method, endpoint, LOOK_UP_SECONDS, body)))


def _wire_message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [
            {**({"id": c.id} if c.id else {}), "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    for key in ("tool_name", "tool_call_id"):
        value = getattr(message, key)
        if value is not None:
            wire[key] = value
    return wire


def _rendered_in(reply: RawReply) -> str | None:
    return as_text(as_dict(object_of(reply).get("_debug_info")).get("rendered_template")) or None


def _text_of_lines(on_text: OnText) -> Callable[[bytes], None]:
    def line(data: bytes) -> None:
        said = object_in(data)
        text = as_text(as_dict(said.get("message")).get("content")) or as_text(said.get("response"))
        if text:
            on_text(text)

    return line


def _release(version: str | None) -> tuple[int, ...]:
    numbers = (version or "").partition("-")[0].split(".")
    return tuple(int(n) for n in numbers) if all(n.isascii() and n.isdigit() for n in numbers) else ()
