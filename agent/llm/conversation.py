"""What is known of a run's conversation from the call before: it bounds the next prompt and shortens its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.llm.backends.base import ChatRequest
from agent.llm.bounds import Bound, PreviousCall, believable, grown_bound, sent_bytes_bound
from agent.state import LedgerEntry, Message, Usage


class Conversation:
    """Remembers the last call that was sent. Belongs to one run."""

    def __init__(self) -> None:
        self._previous: PreviousCall | None = None

    @property
    def last_reply(self) -> str | None:
        """The text of the last reply as the server gave it, thinking apart; None where none could be taken out."""
        return self._previous.reply if self._previous else None

    def bound(self, request: ChatRequest, exact: int | None, tools_hash: str | None) -> Bound:
        """The best bound of a prompt: the server's exact count, the growth since the last call, or its bytes."""
        if exact is not None:
            return Bound(exact, "exact")
        grown = grown_bound(request.messages, self._previous, tools_hash) if self._previous else None
        return grown or sent_bytes_bound(request.messages, request.tools)

    def carried(self, messages: Sequence[Message]) -> int:
        """How many messages a prompt has in common with the one before it, from its head."""
        before = self._previous.messages if self._previous else ()
        for place, (old, new) in enumerate(zip(before, messages, strict=False)):
            if old is not new and old != new:
                return place
        return min(len(before), len(messages))

    def chargeable(self, usage: Usage, messages: Sequence[Message]) -> Usage:
        """The counts that may be believed; see `bounds.believable`."""
        return believable(usage, messages, self._previous)

    def sent(self, request: ChatRequest, entry: LedgerEntry, usage: Usage, tools_hash: str | None) -> None:
        """Note a call that was sent and settled with these counts."""
        counted = usage.prompt_tokens
        self._previous = PreviousCall(
            messages=request.messages,
            reply=None,
            prompt_tokens=entry.prompt_tokens_bound if counted is None else counted,
            completion_tokens=usage.completion_tokens,
            tools_hash=tools_hash,
            counted_prompt=counted,
        )

    def replied(self, text: str) -> None:
        """Note the text of the reply to the last call."""
        if self._previous is not None:
            self._previous = replace(self._previous, reply=text)
