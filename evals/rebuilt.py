"""A trace's calls with their whole prompts, rebuilt from what each one carried over and appended."""

from __future__ import annotations

from dataclasses import dataclass

from agent.llm.backends.base import RawReply
from agent.llm.history import Base, History, chargeable
from agent.state import AgentState, LedgerEntry, LLMCall, Message, Usage
from evals.replies import raw_reply, reply_text


@dataclass(frozen=True)
class Rebuilt:
    """A call with its whole prompt and the text of its reply (None: none could be read).

    `usage` is what may be charged: a count that cannot be is unknown. `base` is the earlier call that the prompt goes
    on from by its text, whatever the trace says in `after`.
    """

    call: LLMCall
    entry: LedgerEntry
    base: Base | None
    prompt: tuple[Message, ...]
    raw: RawReply | None
    reply: str | None
    usage: Usage

    def embeds(self) -> bool:
        """Whether it was a call for vectors: it has texts in place of a prompt, and no reply of the model."""
        return self.entry.purpose == "embed"

    def failed_at_server(self) -> bool:
        """Whether no reply of the model came back."""
        return self.call.error is not None and self.call.error.fault == "server"


def rebuild(state: AgentState) -> list[Rebuilt]:
    """Every call that has a ledger entry, with what it sent. Impossible `carried` values are left to the checks."""
    calls: list[Rebuilt] = []
    history = History()
    for call, entry in zip(state.calls, state.ledger, strict=False):
        source = calls[call.after].prompt if call.after is not None and 0 <= call.after < len(calls) else ()
        prompt = (*source[: max(0, call.carried)], *call.appended)
        is_chat = entry.purpose != "embed"
        base = history.base(prompt) if is_chat else None
        usage = chargeable(call.usage, prompt, base, call.tools_hash)
        reply = reply_text(call) if is_chat else None
        rebuilt = Rebuilt(call, entry, base, prompt, raw_reply(call), reply, usage)
        calls.append(rebuilt)
        _note(history, rebuilt)
    return calls


def history_of(calls: list[Rebuilt]) -> History:
    """What the client would know after these calls."""
    history = History()
    for rebuilt in calls:
        _note(history, rebuilt)
    return history


def _note(history: History, rebuilt: Rebuilt) -> None:
    if rebuilt.entry.settled_as == "refunded" or rebuilt.embeds():
        return  # the prompt of a call that was not sent leaves no mark, and texts to be embedded are no prompt
    history.sent(rebuilt.entry.index, rebuilt.prompt, rebuilt.entry, rebuilt.usage, rebuilt.call.tools_hash)
    if rebuilt.reply is not None:
        history.replied(rebuilt.reply)
