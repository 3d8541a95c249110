"""A trace's calls with their whole prompts, rebuilt from what each one carried over and appended."""

from __future__ import annotations

from dataclasses import dataclass

from agent.llm.backends.base import RawReply
from agent.llm.bounds import PreviousCall, believable
from agent.state import AgentState, LedgerEntry, LLMCall, Message, Usage
from evals.replies import raw_reply, reply_text


@dataclass(frozen=True)
class Rebuilt:
    """A call with its whole prompt and the text of its reply (None: none could be read).

    `usage` is what may be charged: a count that cannot be is unknown.
    `before` is the last call before it that was sent: the prompt of one that was not sent leaves no mark.
    """

    call: LLMCall
    entry: LedgerEntry
    before: Rebuilt | None
    prompt: tuple[Message, ...]
    raw: RawReply | None
    reply: str | None
    usage: Usage

    def as_previous(self) -> PreviousCall:
        """What the bound of the call after it stands on."""
        counted = self.usage.prompt_tokens
        return PreviousCall(
            messages=self.prompt,
            reply=self.reply,
            prompt_tokens=self.entry.prompt_tokens_bound if counted is None else counted,
            completion_tokens=self.usage.completion_tokens,
            tools_hash=self.call.tools_hash,
            counted_prompt=counted,
        )

    def failed_at_server(self) -> bool:
        """Whether no reply of the model came back."""
        return self.call.error is not None and self.call.error.fault == "server"


def rebuild(state: AgentState) -> list[Rebuilt]:
    """Every call that has a ledger entry, with what it sent. Impossible `carried` values are left to the checks."""
    calls: list[Rebuilt] = []
    before: Rebuilt | None = None
    for call, entry in zip(state.calls, state.ledger, strict=False):
        carried = before.prompt[: max(0, call.carried)] if before else ()
        prompt = (*carried, *call.appended)
        usage = believable(call.usage, prompt, before.as_previous() if before else None)
        calls.append(Rebuilt(call, entry, before, prompt, raw_reply(call), reply_text(call), usage))
        before = before if entry.settled_as == "refunded" else calls[-1]
    return calls
