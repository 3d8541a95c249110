"""What a backend is: it sends one request once and hands back the body as it came, of replies or of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.state import Message, ModelInfo, Usage

OLLAMA_EMBED = "/api/embed"
V1_EMBED = "/v1/embeddings"


@dataclass(frozen=True)
class ChatRequest:
    """One request for a reply to `messages`, the whole conversation.

    `max_completion_tokens` is the reserved cap and must be sent. `schema` constrains the reply to JSON where the
    server can. `deadline_seconds` is total: connecting, loading, generating and reading. The reply ends before any of
    `stop`. With `continues` the last message is the model's own, left open: the reply goes on from its last character.
    Only a backend whose `describe().continues` is true is asked that.
    """

    messages: tuple[Message, ...]
    max_completion_tokens: int
    temperature: float
    seed: int
    num_ctx: int
    deadline_seconds: float
    schema: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    think: bool = False
    stream: bool = False
    stop: tuple[str, ...] = ()
    continues: bool = False


@dataclass(frozen=True)
class RawReply:
    """A body as it came off the wire. `endpoint` says which envelope to read it with (agent/llm/envelopes.py)."""

    endpoint: str
    status: int
    content_type: str
    body: str
    streamed: bool
    seconds: float


@dataclass
class Envelope:
    """A reply taken out of its server's wrapping, meaning not yet read.

    `finish` is the server's reason (stop, length, tool_calls, ...), None where it gave none.
    """

    content: str = ""
    thinking: str = ""
    native_calls: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None
    load_seconds: float | None = None
    prompt_seconds: float | None = None
    completion_seconds: float | None = None


OnText = Callable[[str], None]


class Backend(Protocol):
    """One model on one server."""

    name: str
    can_constrain: bool

    def describe(self) -> ModelInfo:
        """Which weights will answer.

        Raises:
            BackendError: the server does not answer, or does not have the model.
        """

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:
        """The exact prompt count of a request where the server can tell without generating, else None."""

    def rendered_bytes(self, request: ChatRequest) -> int | None:
        """The UTF-8 bytes of a request's whole prompt where the server renders it without generating, else None.

        Raises:
            BackendError: it does not answer, or refuses the request.
        """

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One attempt. Any HTTP status comes back as a RawReply; reading it is the client's.

        Raises:
            NotSentError: nothing left this process.
            BackendError: the connection broke, or the deadline passed, after something was sent.
        """

    def close(self) -> None:
        """Let go of processes and sockets. Harmless when called twice."""


class EmbeddingBackend(Protocol):
    """One embedding model on one server."""

    def describe(self) -> ModelInfo:
        """Which weights will compare the texts.

        Raises:
            BackendError: the server does not answer, or does not have the model.
        """

    def embed(self, texts: Sequence[str], deadline_seconds: float) -> RawReply:
        """One attempt for all texts. Any HTTP status comes back as a RawReply.

        Raises:
            NotSentError: nothing left this process.
            BackendError: the connection broke, or the deadline passed, after something was sent.
        """

    def close(self) -> None:
        """Hang up a call that is under way."""
