"""Which server gives the tools of a command's runs texts as vectors: EMBEDDING_MODEL and what belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from agent.config import Settings
from agent.errors import BackendError, UsageError
from agent.llm.backends.base import EmbeddingBackend
from agent.llm.backends.embeddings import ollama_embeddings, v1_embeddings
from agent.tools.registry import toolset
from cli.compose import plain
from evals.plan import Plan


@contextmanager
def embeddings(settings: Settings, plans: Iterable[Plan]) -> Iterator[EmbeddingBackend | None]:
    """The server of EMBEDDING_MODEL, ready to answer and closed at the end; None where no run would ask it.

    Raises:
        UsageError: there is no server for it, or it does not have the model.
        BackendError: it does not answer.
    """
    if settings.embedding_model is None or not any(_compares_by_meaning(plan) for plan in plans):
        yield None
        return
    server = embedding_server(settings)
    try:
        _look_up(server)
        yield server
    finally:
        server.close()


def embedding_server(settings: Settings) -> EmbeddingBackend:
    """The server that EMBEDDING_MODEL is asked at: EMBEDDING_BASE_URL, else the one that the model is asked at.

    Raises:
        UsageError: that one gives no vectors.
    """
    model = settings.embedding_model or ""
    if settings.embedding_base_url is not None:
        return v1_embeddings(settings.embedding_base_url, model, api_key=plain(settings.embedding_api_key))
    if settings.llm_backend == "openai" and settings.llm_base_url is not None:
        return v1_embeddings(settings.llm_base_url, model, api_key=plain(settings.llm_api_key))
    if settings.llm_backend in ("ollama", "auto"):
        return ollama_embeddings(settings.ollama_host, model)
    raise UsageError(
        f"EMBEDDING_MODEL {model}: the {settings.llm_backend} backend gives no vectors; set EMBEDDING_BASE_URL to a /v1"
        " server that does (Ollama is one), or leave EMBEDDING_MODEL empty: tools then compare words"
    )


def _look_up(server: EmbeddingBackend) -> None:
    try:
        server.describe()
    except BackendError as error:
        if error.error_type != "model_not_found":
            raise
        raise UsageError(f"EMBEDDING_MODEL: {error}") from None


def _compares_by_meaning(plan: Plan) -> bool:
    offered = [tool for tool in toolset(plan.toolset) if plan.tools is None or tool.name in plan.tools]
    return any(tool.compares_by_meaning for tool in offered)
