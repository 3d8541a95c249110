"""Texts as vectors for a run's tools, through the same gate as every other call to a model.

A call for vectors is one of the run's calls. Its texts are bounded by their bytes and paid at a price of their own; the
last call and the price of a final answer are kept back, as beside an action.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import BackendError
from agent.llm.attempts import Attempt, Attempts, refuse_overshoot
from agent.llm.backends.base import EmbeddingBackend
from agent.llm.bounds import believable, sent_bytes_bound
from agent.llm.opening import call_error
from agent.llm.vectors import Vector, read_vectors, without_vectors
from agent.redaction import redacted
from agent.state import LedgerEntry, LLMCall, Message

PHASE = "embed"


class Embedder:
    """One run's way to vectors."""

    def __init__(self, server: EmbeddingBackend, attempts: Attempts) -> None:
        self._server = server
        self._attempts = attempts
        self._length: int | None = None  # of this run's vectors: others cannot be compared with them

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector a text, all of one length, from one call; secrets are taken out of the texts first.

        Raises:
            ValueError: there is no text; a bug of ours.
            OnlyAnswerLeftError, BudgetExceededError: nothing (more) was sent, or the server counted too much.
            BackendError: the server or the machine failed.
            CancelledRunError: the person asked to stop.
        """
        if not texts:
            raise ValueError("no text to embed")
        clean = [redacted(text, self._attempts.secrets) for text in texts]
        return self._attempts.repeated(lambda number: self._attempt(clean, number))

    def _attempt(self, texts: Sequence[str], number: int) -> list[Vector]:
        attempts = self._attempts
        attempts.refuse_cancelled()
        messages = as_messages(texts)
        bound = sent_bytes_bound(messages)
        reservation = attempts.enforcer.reserve(
            bound.tokens,
            0,
            purpose="embed",
            bound_kind=bound.kind,
            answer_tokens_bound=tokens_of_conversation(attempts.state.ledger),
        )
        call = self._new_call(reservation.entry.index, number, messages)
        raw = attempts.make(
            Attempt(
                call,
                reservation,
                send=lambda seconds: self._server.embed(texts, seconds),
                believed=lambda usage: believable(usage, messages, None),
                sent=lambda _entry, _usage: None,
            )
        )
        try:
            refuse_overshoot(reservation.entry)
            vectors = read_vectors(raw, len(texts), self._length)
        except BackendError as error:
            call.error = call_error(error)
            raise
        finally:
            call.raw = without_vectors(raw).body
            attempts.reporter.call_finished(attempts.state, call)
        self._length = len(vectors[0])
        return vectors

    def _new_call(self, index: int, number: int, messages: tuple[Message, ...]) -> LLMCall:
        sampling = self._attempts.state.sampling
        return LLMCall(
            index=index,
            step=self._attempts.step,
            attempt=number,
            phase=PHASE,
            carried=0,
            appended=list(messages),
            temperature=sampling.temperature,
            seed=sampling.seed,
            num_ctx=sampling.num_ctx,
            endpoint="",
        )


def as_messages(texts: Sequence[str]) -> tuple[Message, ...]:
    """The texts in the form in which a trace holds what was sent."""
    return tuple(Message(role="user", content=text) for text in texts)


def tokens_of_conversation(ledger: Sequence[LedgerEntry]) -> int:
    """What the prompt of a final answer holds at most of what the model has read and written so far."""
    last = next((entry for entry in reversed(ledger) if entry.purpose != "embed"), None)
    return 0 if last is None else last.prompt_tokens_bound + last.max_completion_tokens
