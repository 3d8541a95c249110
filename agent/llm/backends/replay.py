"""Answers from a trace, byte for byte. A request that the trace does not hold at this place is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agent.errors import BackendError, BackendErrorType, CancelledRunError, NotSentError, ReplayMismatchError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.bounds import MESSAGE_ALLOWANCE
from agent.llm.vectors import with_blank_vectors
from agent.state import AgentState, LLMCall, Message, ModelInfo, content_hash

SHOWN_CHARS = 120


class ReplayBackend:
    """Plays back the calls of one run in their order."""

    name = "replay"

    def __init__(self, trace: AgentState) -> None:
        self._trace = trace
        self._prompts = prompts_of(trace.calls)
        self._next = 0
        self.can_constrain = any(call.schema_hash for call in trace.calls)

    @property
    def is_finished(self) -> bool:
        """Whether every call of the trace was asked for."""
        return self._next == len(self._trace.calls)

    def describe(self) -> ModelInfo:
        """The weights that answered the first time."""
        return self._trace.model

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:  # noqa: ARG002  the protocol's signature
        """The count that the server gave ahead the first time, if it could."""
        if self.is_finished:
            return None
        entry = self._trace.ledger[self._next]
        return entry.prompt_tokens_bound if entry.bound_kind == "exact" else None

    def rendered_bytes(self, request: ChatRequest) -> int | None:  # noqa: ARG002  the protocol's signature
        """The size that the server's rendering had the first time, where it was asked for one."""
        entry = None if self.is_finished else self._trace.ledger[self._next]
        is_rendered = entry is not None and entry.bound_kind == "rendered"
        return entry.prompt_tokens_bound - MESSAGE_ALLOWANCE if entry is not None and is_rendered else None

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:  # noqa: ARG002  nothing streams
        """The recorded reply to this very request, or the recorded failure.

        Raises:
            ReplayMismatchError: another request was recorded here; the message shows the first difference.
        """
        if self.is_finished:
            raise ReplayMismatchError(f"the trace ends after {self._next} calls and a further one was asked for")
        self._refuse_other(request, self._trace.calls[self._next], self._prompts[self._next])
        return self._reply()

    def _reply(self) -> RawReply:
        """The next recorded reply."""
        call = self._trace.calls[self._next]
        self._next += 1
        if call.http_status is None:
            raise self._failure(call)
        return RawReply(
            call.endpoint, call.http_status, call.content_type, call.raw, call.streamed, seconds=call.timing.total
        )

    @property
    def embeds_next(self) -> bool:
        """Whether the next recorded call is one for vectors."""
        return not self.is_finished and self._trace.embeds(self._next)

    @property
    def only_embeds_left(self) -> bool:
        """Whether all recorded calls from here on are for vectors."""
        return all(self._trace.embeds(place) for place in range(self._next, len(self._trace.calls)))

    def next_texts(self) -> list[str]:
        """What the next recorded call sent, text by text."""
        return [message.content for message in self._prompts[self._next]]

    def embed(self, texts: Sequence[str], deadline_seconds: float) -> RawReply:  # noqa: ARG002  the protocol's form
        """The recorded reply for these very texts, with vectors that say nothing, or the recorded failure.

        Raises:
            ReplayMismatchError: something else was recorded here.
        """
        if not self.embeds_next or self.next_texts() != list(texts):
            raise ReplayMismatchError(f"call {self._next + 1}: other texts, or none, were embedded here")
        return with_blank_vectors(self._reply())

    def close(self) -> None:
        """Nothing is held."""

    def _refuse_other(self, request: ChatRequest, call: LLMCall, prompt: list[Message]) -> None:
        entry = self._trace.ledger[call.index]
        pairs: list[tuple[str, object, object]] = [
            ("temperature", call.temperature, request.temperature),
            ("seed", call.seed, request.seed),
            ("context window", call.num_ctx, request.num_ctx),
            ("schema", call.schema_hash, content_hash(request.schema) if request.schema else None),
            ("tools", call.tools_hash, content_hash(request.tools) if request.tools else None),
            ("stop texts", call.stop, list(request.stop)),
            ("open last message", call.continues, request.continues),
            ("number of messages", len(prompt), len(request.messages)),
            *(
                (f"message {place + 1} ({old.role})", old.model_dump(), new.model_dump())
                for place, (old, new) in enumerate(zip(prompt, request.messages, strict=False))
            ),
            ("completion cap", entry.max_completion_tokens, request.max_completion_tokens),
        ]
        for what, recorded, asked in pairs:
            if recorded != asked:
                raise ReplayMismatchError(f"call {call.index + 1}: {what} differs: {_difference(recorded, asked)}")

    def _failure(self, call: LLMCall) -> Exception:
        if call.error is None:
            return CancelledRunError("the person stopped the run here")
        kind = NotSentError if self._trace.ledger[call.index].settled_as == "refunded" else BackendError
        return kind(
            cast(BackendErrorType, call.error.error_type),
            call.error.message,
            retry=call.error.retry,
            detail=call.error.detail,
        )


def prompts_of(calls: list[LLMCall]) -> list[list[Message]]:
    """The whole prompt of every call: what it carried over from an earlier one, and what it appended."""
    prompts: list[list[Message]] = []
    for call in calls:
        source = prompts[call.after] if call.after is not None and 0 <= call.after < len(prompts) else []
        prompts.append([*source[: call.carried], *call.appended])
    return prompts


def _difference(recorded: object, asked: object) -> str:
    """Both values from a little before the first character that differs."""
    old, new = str(recorded), str(asked)
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - 20)
    return f"recorded {old[start : start + SHOWN_CHARS]!r}, asked {new[start : start + SHOWN_CHARS]!r}"
