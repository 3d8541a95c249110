"""The first look at a reply that was paid for: its envelope opened, and whether the whole prompt was read."""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import BackendError, ModelError
from agent.llm.backends.base import Envelope, RawReply
from agent.llm.bounds import message_bytes
from agent.llm.envelopes import decode, prompt_was_cut
from agent.state import CallError, Message, Usage

BYTES_PER_TOKEN = 4  # a usual figure for English, used to notice a cut prompt, never to bound a cost


def open_envelope(raw: RawReply) -> Envelope:
    """The envelope. A server that stopped a model for repeating itself did its duty: that is the model's fault.

    Raises:
        ModelError, BackendError: see `decode`.
    """
    try:
        return decode(raw)
    except BackendError as error:
        if error.detail == "repetition":
            raise ModelError("repetition", str(error)) from None
        raise


def refuse_cut_prompt(messages: Sequence[Message], usage: Usage, num_ctx: int, exact: int | None) -> None:
    """An answer to half a question is no answer. `exact` is what the server counted before the call, if it did.

    Raises:
        BackendError: prompt_truncated; the count shows that the server cut the prompt to its window.
    """
    if usage.prompt_tokens is None:
        return
    estimate = sum(map(message_bytes, messages)) // BYTES_PER_TOKEN if exact is None else exact
    if (exact is not None and usage.prompt_tokens < exact) or prompt_was_cut(usage.prompt_tokens, estimate, num_ctx):
        raise BackendError(
            "prompt_truncated",
            f"the server read {usage.prompt_tokens} tokens of a prompt of about {estimate}: it cut the prompt to its"
            " window; raise NUM_CTX or shorten the task",
        )


def call_error(error: ModelError | BackendError) -> CallError:
    """An error as a trace holds it, with whose fault it is."""
    return CallError(
        error_type=error.error_type,
        message=str(error),
        fault="model" if isinstance(error, ModelError) else "server",
        detail=error.detail,
        retry=error.retry,
    )
