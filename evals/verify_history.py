"""The conversation of a trace, rebuilt call by call: it shows a call that was dropped, doubled or moved.

Three witnesses that do not depend on indexes or sums: each reply stands in the next prompt; each prompt ends with the
budget that the ledger had left then; each bound follows from the prompt and from the counts of the call before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agent.errors import BackendError, ModelError
from agent.llm.backends.base import RawReply
from agent.llm.bounds import Bound, answer_bound, grown_bound, sent_bytes_bound
from agent.llm.embedder import PHASE, tokens_of_conversation
from agent.llm.envelopes import decode, usage_of
from agent.llm.vectors import Vector, read_vectors, with_blank_vectors
from agent.prompts.budget_line import BudgetLeft, parse_budget_line
from agent.state import AgentState, LedgerEntry, LLMCall, Message, Usage, content_hash
from agent.strategies.base import NO_REPLY
from evals.rebuilt import Rebuilt, rebuild
from evals.verify_ledger import SECONDS_SLACK

ONE_CONVERSATION = frozenset({"react"})
# What servers write into every reply and never twice the same: Ollama's and /v1's time, /v1's id.
_STAMPS = ('"created_at":', '"created":')


def history_faults(state: AgentState) -> Iterator[str]:
    """One line for each place where calls, replies and prompts contradict each other."""
    stamps: set[str] = set()
    last: Rebuilt | None = None
    last_embedding: Rebuilt | None = None
    length: int | None = None  # of the vectors so far
    for place, rebuilt in enumerate(rebuild(state)):
        is_cut_short = state.status == "cancelled" and place == len(state.calls) - 1
        if not (is_cut_short and rebuilt.raw):  # a person's stop may fall while the reply was being noted
            yield from _raw_faults(place, rebuilt, length)
        if rebuilt.call.raw in stamps:
            yield f"calls[{place}]: its raw reply, with the server's own stamp, is that of an earlier call"
        if any(stamp in rebuilt.call.raw for stamp in _STAMPS):
            stamps.add(rebuilt.call.raw)
        yield from _base_faults(place, rebuilt)
        yield from _bound_faults(place, rebuilt)
        if rebuilt.embeds():
            yield from _embedding_faults(state, place, rebuilt, last_embedding)
            last_embedding, length = rebuilt, length or _length_of(rebuilt)
            continue
        yield from _kept_back(place, rebuilt)
        yield from _continuation(state, place, rebuilt, last)
        yield from _prompt_faults(state, place, rebuilt)
        last = rebuilt


# -- a call and its raw reply -----------------------------------------------------------------------------------------


def _raw_faults(place: int, rebuilt: Rebuilt, length: int | None) -> Iterator[str]:
    call, raw = rebuilt.call, rebuilt.raw
    if raw is None and call.raw:
        yield f"calls[{place}]: has a reply without an HTTP status"
    counted = Usage() if raw is None else usage_of(raw)
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        said, found = getattr(call.usage, name), getattr(counted, name)
        if said != found:
            yield f"calls[{place}]: usage.{name} is {said}, and its raw reply says {found}"
    yield from _error_faults(place, call, raw, _embedded(rebuilt, length) if rebuilt.embeds() else decode)


def _error_faults(place: int, call: LLMCall, raw: RawReply | None, read: Callable[[RawReply], object]) -> Iterator[str]:
    """The recorded error is the one that the raw reply gives; a cut prompt shows in the counts only."""
    said = call.error.error_type if call.error else None
    if raw is None:
        if call.error is not None and call.error.fault != "server":
            yield f"calls[{place}]: error {said} is called the model's, and there is no reply"
        return
    try:
        read(raw)
    except (ModelError, BackendError) as error:
        found = "repetition" if error.detail == "repetition" else error.error_type
        if said not in (found, None) or (said is None and isinstance(error, BackendError)):
            yield f"calls[{place}]: error is {said}, and its raw reply gives {found}"
    else:
        if call.error is not None and call.error.fault == "server" and said != "prompt_truncated":
            yield f"calls[{place}]: error is {said}, and its raw reply is sound"


# -- a call and the one before it -------------------------------------------------------------------------------------


def _base_faults(place: int, rebuilt: Rebuilt) -> Iterator[str]:
    """What a prompt says that it carried over is all that it has in common with an earlier one."""
    call, base = rebuilt.call, rebuilt.base
    said, found = (call.after, call.carried), (base.index, base.carried) if base else (None, 0)
    if said != found:
        yield f"calls[{place}]: carries {said[1]} messages of call {said[0]}; its prompt has {found[1]} of {found[0]}"


def _continuation(state: AgentState, place: int, rebuilt: Rebuilt, last: Rebuilt | None) -> Iterator[str]:
    """A call opens a conversation, sends the same again, or goes on from what came before it.

    Where a strategy holds one conversation, each reply must stand in the next prompt; with several, the replay shows
    that every prompt is the one that the replies before it lead to.
    """
    if last is None:
        if rebuilt.call.attempt != 0 or [message.role for message in rebuilt.prompt[:2]] != ["system", "user"]:
            yield f"calls[{place}]: is the first, and its prompt does not open with one system and one user message"
    elif rebuilt.call.attempt > 0:
        yield from _retry(place, rebuilt, last)
    elif state.strategy in ONE_CONVERSATION:
        yield from _goes_on(place, rebuilt, last)


def _goes_on(place: int, rebuilt: Rebuilt, last: Rebuilt) -> Iterator[str]:
    """One conversation: the reply and one user message are appended to the prompt before."""
    call, roles = rebuilt.call, [message.role for message in rebuilt.call.appended]
    if last.failed_at_server():
        # Nothing came back, and what is left no longer pays for an action: the last message asks for an answer instead.
        never_sent, kept = last.entry.settled_as == "refunded", len(last.prompt) - 1
        if never_sent or call.step != last.call.step or call.carried != kept or roles != ["user"]:
            yield f"calls[{place}]: does not go on from the failed call before it"
    elif call.carried != len(last.prompt) or roles != ["assistant", "user"]:
        yield f"calls[{place}]: does not go on from the call before it: the reply and one user message must be appended"
    elif call.appended[0].content != (last.reply or NO_REPLY):
        yield f"calls[{place}]: appends another reply than the one that the call before it received"


def _retry(place: int, rebuilt: Rebuilt, last: Rebuilt | None) -> Iterator[str]:
    if last is None:
        yield f"calls[{place}]: is a retry, and nothing was tried before it"
        return
    call, error = rebuilt.call, last.call.error
    if call.attempt != last.call.attempt + 1 or call.step != last.call.step:
        yield f"calls[{place}]: attempt {call.attempt} of step {call.step} does not follow the call before it"
    if error is None or error.fault != "server" or not error.retry:
        yield f"calls[{place}]: is a retry, and the call before it has no error that may heal"
    if rebuilt.prompt != last.prompt:
        yield f"calls[{place}]: is a retry, and its prompt is not the one before"


# -- a prompt and the ledger ------------------------------------------------------------------------------------------


def _prompt_faults(state: AgentState, place: int, rebuilt: Rebuilt) -> Iterator[str]:
    prompt = rebuilt.prompt
    if not prompt:
        yield f"calls[{place}]: has an empty prompt"
        return
    if state.system_prompt_hashes and content_hash(prompt[0].content) not in state.system_prompt_hashes:
        yield f"calls[{place}]: system_prompt_hashes has none for its first message"
    if place == 0 and not state.follow_ups and state.task not in "\n".join(message.content for message in prompt):
        yield "task: does not stand in the first prompt"
    last_heard = next((m for m in reversed(prompt) if m.role in ("user", "tool")), prompt[-1])
    if rebuilt.call.attempt > 0 or not any(message is last_heard for message in rebuilt.call.appended):
        return  # the message was written before an earlier call, and is sent again as it was
    told = parse_budget_line(last_heard.content)
    if told is None:
        yield f"calls[{place}]: its prompt does not end with the budget that is left"
    elif told != (left := _left(state, place)):
        yield f"calls[{place}]: the model was told that {_words(told)}, and by the ledger {_words(left)}"


def _left(state: AgentState, place: int) -> BudgetLeft:
    earlier, limits = state.ledger[:place], state.limits
    used = sum(entry.settled_as != "refunded" for entry in earlier)
    spent = sum(entry.settled_microusd for entry in earlier)
    return BudgetLeft(
        None if limits.max_calls is None else max(0, limits.max_calls - used),
        limits.max_calls,
        None if limits.max_cost_microusd is None else max(0, limits.max_cost_microusd - spent),
        limits.max_cost_microusd,
        limits.max_seconds,
    )


def _words(left: BudgetLeft) -> str:
    return (
        f"{left.calls_left} of {left.max_calls} calls and {left.microusd_left} of {left.max_cost_microusd}"
        f" micro-dollars are left, within {left.max_seconds} seconds"
    )


def _bound_faults(place: int, rebuilt: Rebuilt) -> Iterator[str]:
    """A bound that rests on what the trace holds is worked out again. Tool schemas are not in it, only their hash."""
    call, entry, base, prompt = rebuilt.call, rebuilt.entry, rebuilt.base, rebuilt.prompt
    if entry.bound_kind == "grown":
        grown = grown_bound(prompt, base.call, call.tools_hash) if base else None
        expected = grown.tokens if grown else None
    elif entry.bound_kind == "sent_bytes" and call.tools_hash is None:
        expected = sent_bytes_bound(prompt).tokens
    elif entry.bound_kind == "rendered" and entry.prompt_tokens_bound < sum(
        len(m.content.encode("utf-8", "surrogatepass")) for m in prompt
    ):
        expected = None
    else:
        return  # an exact count is the server's: below its later count it is an overshoot, and that is checked
    if expected != entry.prompt_tokens_bound:
        yield (
            f"ledger[{place}]: a prompt bound of {entry.prompt_tokens_bound} tokens ({entry.bound_kind}), and the"
            f" prompt gives {'none of that kind' if expected is None else expected}"
        )


def _kept_back(place: int, rebuilt: Rebuilt) -> Iterator[str]:
    """What is kept back beside an action for the answer that may have to follow."""
    call, entry = rebuilt.call, rebuilt.entry
    kept = answer_bound(entry.purpose, rebuilt.prompt, [{}] if call.tools_hash else None, _bound_of(entry))
    if entry.answer_tokens_bound != kept:
        yield f"ledger[{place}]: keeps back an answer of {entry.answer_tokens_bound} prompt tokens, and it is {kept}"


def _embedded(rebuilt: Rebuilt, length: int | None) -> Callable[[RawReply], list[Vector]]:
    """Reads a kept reply to a call for vectors, of which the earlier ones had that length."""
    return lambda raw: read_vectors(with_blank_vectors(raw), len(rebuilt.call.appended), length)


def _length_of(rebuilt: Rebuilt) -> int | None:
    """How long the vectors of a call were; None where it gave none."""
    if rebuilt.raw is None or rebuilt.call.error is not None or rebuilt.entry.settled_as == "overshoot":
        return None
    try:
        return len(_embedded(rebuilt, None)(rebuilt.raw)[0])
    except (ModelError, BackendError):
        return None


def _embedding_faults(state: AgentState, place: int, rebuilt: Rebuilt, last: Rebuilt | None) -> Iterator[str]:
    """A call for vectors: texts alone, for a tool of its step, by the run's embedding model."""
    call, entry = rebuilt.call, rebuilt.entry
    if state.embedder is None:
        yield f"calls[{place}]: asks for vectors, and the run has no embedding model"
    if not call.appended or any(message != Message(role="user", content=message.content) for message in call.appended):
        yield f"calls[{place}]: asks for vectors, and does not hold texts alone"
    if call.phase != PHASE or call.schema_hash or call.tools_hash or call.stop or call.answer_caps or call.continues:
        yield f"calls[{place}]: asks for vectors, and holds what belongs to a chat"
    if (kept := tokens_of_conversation(state.ledger[:place])) != entry.answer_tokens_bound:
        yield f"ledger[{place}]: keeps back an answer of {entry.answer_tokens_bound} prompt tokens, and it is {kept}"
    step = state.steps[call.step] if 0 <= call.step < len(state.steps) else None
    if step is not None and not step.actions:
        yield f"calls[{place}]: asks for vectors, and no tool was called in its step"
    if step is not None and len(step.results) == len(step.actions):
        took = sum(result.seconds for result in step.results)
        if call.timing.total > took + SECONDS_SLACK:
            yield f"calls[{place}]: took {call.timing.total:g} s, and the tools of its step {took:g} s"
    if entry.bound_kind != "sent_bytes":
        yield f"ledger[{place}]: texts are bounded by their bytes, and this bound is {entry.bound_kind}"
    if call.attempt > 0:
        yield from _retry(place, rebuilt, last)


def _bound_of(entry: LedgerEntry) -> Bound:
    return Bound(entry.prompt_tokens_bound, entry.bound_kind)
