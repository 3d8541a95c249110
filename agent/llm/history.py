"""The calls that a run has sent: they bound the next prompt and shorten its record.

A run may hold several conversations (a probe, an extraction, an answer); a prompt goes on from the earlier one that it
shares the longest head with. Used by the client and, from a trace, by the verifier: both must come to the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.llm.bounds import Bound, PreviousCall, believable, grown_bound, sent_bytes_bound
from agent.state import LedgerEntry, Message, Usage

LOOKED_BACK = 16  # calls: far more conversations than a strategy has, and the work a call stays bounded


@dataclass(frozen=True)
class Base:
    """The call that a prompt goes on from: its index in the run, what is known of it, and how many messages it lent."""

    index: int
    call: PreviousCall
    carried: int


class History:
    """Remembers the last calls that were sent. Belongs to one run."""

    def __init__(self) -> None:
        self._sent: list[tuple[int, PreviousCall]] = []

    @property
    def last_reply(self) -> str | None:
        """The text of the last reply as the server gave it, thinking apart; None where none could be taken out."""
        return self._sent[-1][1].reply if self._sent else None

    def base(self, messages: Sequence[Message]) -> Base | None:
        """The earlier call with the longest common head of messages; None where none has any.

        Of several the latest, but before all one that stands in it whole: what that was counted at can be built upon.
        """
        best: Base | None = None
        best_rank = (0, True)
        for index, call in reversed(self._sent):
            carried = common_head(call.messages, messages)
            rank = (carried, carried == len(call.messages))
            if rank > best_rank:
                best, best_rank = Base(index, call, carried), rank
        return best

    def sent(
        self,
        index: int,
        messages: tuple[Message, ...],
        entry: LedgerEntry,
        usage: Usage,
        tools_hash: str | None,
    ) -> None:
        """Note a call that was sent and settled with these counts."""
        counted = usage.prompt_tokens
        previous = PreviousCall(
            messages=messages,
            reply=None,
            prompt_tokens=entry.prompt_tokens_bound if counted is None else counted,
            completion_tokens=usage.completion_tokens,
            tools_hash=tools_hash,
            counted_prompt=counted,
        )
        self._sent = [*self._sent[1 - LOOKED_BACK :], (index, previous)]

    def replied(self, text: str) -> None:
        """Note the text of the reply to the last call."""
        index, call = self._sent[-1]
        self._sent[-1] = (index, replace(call, reply=text))


def common_head(old: Sequence[Message], new: Sequence[Message]) -> int:
    """How many messages two prompts have in common, from their first."""
    for place, (before, after) in enumerate(zip(old, new, strict=False)):
        if before is not after and before != after:
            return place
    return min(len(old), len(new))


def prompt_bound(
    messages: Sequence[Message],
    base: Base | None,
    *,
    tools: Sequence[dict[str, object]] | None = None,
    tools_hash: str | None = None,
) -> Bound:
    """The bound of a prompt that the server does not count ahead: its growth since `base`, or its bytes."""
    grown = grown_bound(messages, base.call, tools_hash) if base else None
    return grown or sent_bytes_bound(messages, tools)


def chargeable(usage: Usage, messages: Sequence[Message], base: Base | None, tools_hash: str | None) -> Usage:
    """The counts that may be believed; see `bounds.believable`."""
    return believable(usage, messages, base.call if base else None, tools_hash)
