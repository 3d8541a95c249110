"""LLMClient, the only door to a model: for every attempt reserve -> send -> settle -> record -> only then read.

Retries, probes and repairs are attempts like any other: each is reserved, charged and recorded. A reply that cannot
be read has been paid for. Calls for vectors go the same way (agent/llm/embedder.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.budget import BudgetEnforcer
from agent.errors import BackendError, BudgetExceededError, ModelError
from agent.journal import Journal
from agent.llm.attempts import Attempt, Attempts, refuse_overshoot
from agent.llm.backends.base import Backend, ChatRequest, EmbeddingBackend, Envelope, RawReply
from agent.llm.bounds import Bound, answer_bound, rendered_bound
from agent.llm.embedder import Embedder
from agent.llm.history import Base, History, chargeable, prompt_bound
from agent.llm.opening import call_error, open_envelope, refuse_cut_prompt
from agent.llm.replies import TOOL_CALL, Reply, holds_call, read_reply, read_text, read_thinking
from agent.llm.vectors import Vector
from agent.prompts.budget_line import BudgetLeft
from agent.reporter import Reporter
from agent.state import AgentState, LLMCall, Message, Purpose, content_hash

# A strategy checks the fields of a constrained reply itself, so that the model is told which one is wrong.
ANY_OBJECT: dict[str, Any] = {"type": "object"}
ANY_ARRAY: dict[str, Any] = {"type": "array"}


@dataclass(frozen=True)
class Ask:
    """What a strategy wants: a reply to `messages`, JSON meeting `schema` where one is given.

    `phase` is the strategy's word for the call (route, extract, ...). `tools` are offered as native definitions;
    without `send_tools` they only say which calls may be found in the text. A reply ends before any of `stop`. With
    `continues` the last message is the model's own, and the reply goes on from it: only where `state.model.continues`.
    `stream` shows the reply as it comes. With `as_text` the strategy reads a constrained reply itself. With `thinks`
    all of the reply is thinking.
    """

    messages: tuple[Message, ...]
    purpose: Purpose
    schema: dict[str, Any] | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    send_tools: bool = True
    stream: bool = False
    phase: str = ""
    stop: tuple[str, ...] = ()
    continues: bool = False
    as_text: bool = False
    thinks: bool = False


class LLMClient:
    """One run's door. It appends to `state.calls` and `state.ledger`; `step` says which step is asking.

    `secrets` are taken out of a reply before anything of it is read or kept.
    """

    def __init__(  # noqa: PLR0913  the parts of a run, each by its name
        self,
        backend: Backend,
        enforcer: BudgetEnforcer,
        state: AgentState,
        *,
        journal: Journal,
        reporter: Reporter,
        embedding: EmbeddingBackend | None = None,
        call_timeout_seconds: float = 120.0,
        cancelled: threading.Event | None = None,
        sleep: Callable[[float], None] = time.sleep,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._backend = backend
        self._enforcer = enforcer
        self._state = state
        self._reporter = reporter
        self._cancelled = cancelled or threading.Event()
        self._attempts = Attempts(
            enforcer, state, journal, reporter, call_timeout_seconds, self._cancelled, sleep, secrets
        )
        self._embedder = Embedder(embedding, self._attempts) if embedding else None
        self._history = History()
        self._hashes: dict[int, tuple[Any, str]] = {}
        self._answer_caps: list[int] = []

    @property
    def step(self) -> int:
        """Which step is asking, from 0."""
        return self._attempts.step

    @step.setter
    def step(self, index: int) -> None:
        self._attempts.step = index

    @property
    def embed(self) -> Callable[[Sequence[str]], list[Vector]] | None:
        """Gives texts as vectors (see `Embedder.embed`); None where the run has no embedding model."""
        return self._embedder.embed if self._embedder else None

    @property
    def can_constrain(self) -> bool:
        """Whether the server holds a reply to a JSON schema while it writes."""
        return self._backend.can_constrain

    @property
    def last_content(self) -> str | None:
        """The text of the last reply as the server gave it, thinking apart; None where none could be taken out."""
        return self._history.last_reply

    def budget_left(self) -> BudgetLeft:
        """What may still be spent in this run, for the line in the prompt."""
        gate, limits = self._enforcer, self._enforcer.limits
        return BudgetLeft(
            gate.calls_left(), limits.max_calls, gate.microusd_left(), limits.max_cost_microusd, limits.max_seconds
        )

    def refuse_late(self) -> None:
        """Nothing, or where the run's time is over or a person has stopped it, its error: for steps without a call.

        Raises:
            BudgetExceededError: the cap is seconds.
            CancelledRunError: the person asked to stop.
        """
        self._attempts.refuse_cancelled()
        self._enforcer.refuse_late()

    def is_over(self) -> bool:
        """Whether the run's time is over or a person has stopped it."""
        left = self._enforcer.seconds_left()
        return self._cancelled.is_set() or (left is not None and left <= 0)

    def answer_cap(self, messages: Sequence[Message]) -> int:
        """How many tokens a final answer to `messages` may take as things stand; 0 where none can be paid for.

        A strategy that constrains the answer asks, so that the constraint ends before the money does.

        Raises:
            BackendError: the server was asked to count the prompt and did not answer.
        """
        request = self._request(Ask(tuple(messages), "answer"))
        bound = self._bound(request)
        try:
            cap = self._enforcer.payable_completion_tokens(bound.tokens, self._fitting_cap(bound))
        except BudgetExceededError:
            cap = 0
        self._answer_caps.append(cap)
        return cap

    def chat(self, ask: Ask) -> Reply:
        """One reply, over as many attempts as the fault and the budget allow.

        Raises:
            OnlyAnswerLeftError, BudgetExceededError: nothing (more) was sent.
            ModelError: the reply cannot be used; it was paid for and recorded.
            BackendError: the server or the machine failed.
            CancelledRunError: the person asked to stop.
        """
        return self._attempts.repeated(lambda number: self._attempt(ask, number))

    # -- one attempt --------------------------------------------------------------------------------------------

    def _attempt(self, ask: Ask, attempt: int) -> Reply:
        self._attempts.refuse_cancelled()
        request = self._request(ask)
        bound = self._bound(request)
        reservation = self._enforcer.reserve(
            bound.tokens,
            self._fitting_cap(bound),
            purpose=ask.purpose,
            bound_kind=bound.kind,
            answer_tokens_bound=answer_bound(ask.purpose, request.messages, request.tools, bound),
        )
        entry = reservation.entry
        base = self._history.base(request.messages)
        call = self._new_call(request, ask.phase, entry.index, attempt, base)
        capped = replace(request, max_completion_tokens=entry.max_completion_tokens)
        raw = self._attempts.make(
            Attempt(
                call,
                reservation,
                send=lambda seconds: self._send(replace(capped, deadline_seconds=seconds)),
                believed=lambda usage: chargeable(usage, request.messages, base, call.tools_hash),
                sent=lambda entry, usage: self._history.sent(
                    call.index, request.messages, entry, usage, call.tools_hash
                ),
            )
        )
        return self._read(ask, call, raw)

    def _send(self, request: ChatRequest) -> RawReply:
        return self._backend.send(request, self._reporter.text if request.stream else None)

    def _request(self, ask: Ask) -> ChatRequest:
        sampling = self._state.sampling
        return ChatRequest(
            messages=ask.messages,
            max_completion_tokens=sampling.max_completion_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed,
            num_ctx=sampling.num_ctx,
            deadline_seconds=self._attempts.deadline_seconds(),
            schema=ask.schema if self._backend.can_constrain else None,
            tools=ask.tools if ask.send_tools else None,
            stream=ask.stream,
            stop=ask.stop,
            continues=ask.continues,
        )

    def _bound(self, request: ChatRequest) -> Bound:
        try:
            exact = self._backend.count_prompt_tokens(request)
        except BackendError as error:
            error.retry = False  # only a call is tried again, and nothing was called
            raise
        if exact is not None:
            return Bound(exact, "exact")
        base, tools_hash = self._history.base(request.messages), self._hash(request.tools)
        bound = prompt_bound(request.messages, base, tools=request.tools, tools_hash=tools_hash)
        if bound.kind == "sent_bytes" and request.tools and (rendered := self._rendered(request)) is not None:
            return rendered_bound(rendered)
        return bound

    def _rendered(self, request: ChatRequest) -> int | None:
        """The bytes of the prompt as the server renders it, where it does so without generating."""
        try:
            return self._backend.rendered_bytes(request)
        except BackendError as error:
            error.retry = False  # nothing was called
            raise

    def _fitting_cap(self, bound: Bound) -> int:
        """The completion cap, kept inside the model's window where the prompt's size is known exactly."""
        cap = self._state.sampling.max_completion_tokens
        if bound.kind != "exact":
            return cap
        room = self._state.sampling.num_ctx - bound.tokens
        if room < min(64, cap):
            raise BudgetExceededError(
                "context",
                f"a prompt of {bound.tokens} tokens leaves no room in a window of {self._state.sampling.num_ctx}",
            )
        return min(cap, room)

    def _new_call(self, request: ChatRequest, phase: str, index: int, attempt: int, base: Base | None) -> LLMCall:
        carried = base.carried if base else 0
        return LLMCall(
            index=index,
            step=self.step,
            attempt=attempt,
            phase=phase,
            after=base.index if base else None,
            carried=carried,
            appended=list(request.messages[carried:]),
            continues=request.continues,
            stop=list(request.stop),
            answer_caps=self._asked_caps(),
            schema_hash=self._hash(request.schema),
            tools_hash=self._hash(request.tools),
            temperature=request.temperature,
            seed=request.seed,
            num_ctx=request.num_ctx,
            endpoint="",
            streamed=request.stream,
        )

    def _asked_caps(self) -> list[int]:
        caps, self._answer_caps = self._answer_caps, []
        return caps

    # -- reading ------------------------------------------------------------------------------------------------

    def _read(self, ask: Ask, call: LLMCall, raw: RawReply) -> Reply:
        try:
            reply = self._decoded(ask, call, raw)
            call.repairs = list(reply.repairs)
        except (ModelError, BackendError) as error:
            call.error = call_error(error)
            raise
        finally:
            self._reporter.call_finished(self._state, call)
        return reply

    def _decoded(self, ask: Ask, call: LLMCall, raw: RawReply) -> Reply:
        entry = self._state.ledger[call.index]
        refuse_overshoot(entry)
        envelope = open_envelope(raw)
        self._note_timing(call, envelope)
        self._history.replied(envelope.content)
        exact = entry.prompt_tokens_bound if entry.bound_kind == "exact" else None
        refuse_cut_prompt(ask.messages, call.usage, self._state.sampling.num_ctx, exact)
        if ask.thinks:
            return read_thinking(envelope)
        if ask.schema is None:
            return read_reply(envelope, tools=ask.tools or ())
        if ask.as_text:
            return read_text(envelope)
        try:
            return read_reply(envelope, schema=ANY_ARRAY if ask.schema.get("type") == "array" else ANY_OBJECT)
        except ModelError as error:
            if error.detail is None and holds_call(envelope, ask.tools or ()):
                error.detail = TOOL_CALL
            raise

    @staticmethod
    def _note_timing(call: LLMCall, envelope: Envelope) -> None:
        call.timing.load = envelope.load_seconds
        call.timing.prompt = envelope.prompt_seconds
        call.timing.completion = envelope.completion_seconds

    # -- small things -------------------------------------------------------------------------------------------

    def _hash(self, value: Any) -> str | None:
        """Schemas are shared and never change: each is hashed once, and held so that its id stays its own."""
        if value is None:
            return None
        key = id(value)
        if key not in self._hashes:
            self._hashes[key] = (value, content_hash(value))
        return self._hashes[key][1]
