"""Servers of embedding models: texts out, one vector a text back. One attempt each; a reply is read elsewhere.

Ollama's `/api/embed` cuts a text that is longer than its model's window (its default); `/v1/embeddings` refuses it.
Both take all texts in one request and count their tokens together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.llm.backends.base import OLLAMA_EMBED, V1_EMBED, EmbeddingBackend, RawReply
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import MAX_BODY_BYTES, Call
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.state import ModelInfo

_BODY_BYTES_BESIDE = 64 * 1024
_BODY_BYTES_PER_TEXT = 128 * 1024  # a vector of some thousand numbers, each of up to 25 characters


@dataclass(frozen=True)
class _Embeddings:
    """What both servers share: the model is looked up as any other, and asked for vectors at one path."""

    models: OllamaBackend | OpenAIBackend
    transport: Transport
    endpoint: str

    def describe(self) -> ModelInfo:
        return self.models.describe()

    def embed(self, texts: Sequence[str], deadline_seconds: float) -> RawReply:
        body: dict[str, Any] = {"model": self.models.model, "input": list(texts)}
        largest = _BODY_BYTES_BESIDE + _BODY_BYTES_PER_TEXT * len(texts)
        return self.transport.send(
            Call("POST", self.endpoint, deadline_seconds, body, max_body_bytes=min(MAX_BODY_BYTES, largest))
        )

    def close(self) -> None:
        self.models.close()
        self.transport.close()


def ollama_embeddings(host: str, model: str) -> EmbeddingBackend:
    """An embedding model on an Ollama server; `host` is any form of OLLAMA_HOST."""
    server = OllamaBackend(host, model)
    return _Embeddings(server, Transport(server.url), OLLAMA_EMBED)


def v1_embeddings(base_url: str, model: str, *, api_key: str | None = None) -> EmbeddingBackend:
    """An embedding model on any server that speaks `/v1/embeddings`; `base_url` may end in `/v1` or not."""
    server = OpenAIBackend(base_url, model, api_key=api_key, settings="EMBEDDING")
    return _Embeddings(server, Transport(server.url, bearer=api_key), V1_EMBED)
