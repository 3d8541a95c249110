"""LLMClient, the only door to a model: for every attempt reserve -> send -> settle -> record -> only then read.

Retries, probes and repairs are attempts like any other: each is reserved, charged and recorded. A reply that cannot
be read has been paid for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.budget import BudgetEnforcer, Reservation
from agent.errors import BackendError, BudgetExceededError, CancelledRunError, ModelError, NotSentError
from agent.journal import Journal
from agent.llm.backends.base import Backend, ChatRequest, Envelope, RawReply
from agent.llm.bounds import Bound, answer_bound, rendered_bound
from agent.llm.envelopes import usage_of
from agent.llm.history import Base, History, chargeable, prompt_bound
from agent.llm.opening import call_error, open_envelope, refuse_cut_prompt
from agent.llm.replies import TOOL_CALL, Reply, holds_call, read_reply, read_text, read_thinking
from agent.prompts.budget_line import BudgetLeft
from agent.redaction import redacted
from agent.reporter import Reporter
from agent.state import AgentState, LLMCall, Message, Purpose, Timing, content_hash

# How often a fault that may heal is tried again, by its type; each try is a call of the budget.
RETRIES = {"server_busy": 3, "proxy_error": 1, "server_error": 1, "stream_error": 1, "stream_incomplete": 1}
BACK_OFF_SECONDS = 0.5  # doubled at each further try
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
        call_timeout_seconds: float = 120.0,
        cancelled: threading.Event | None = None,
        sleep: Callable[[float], None] = time.sleep,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._backend = backend
        self._enforcer = enforcer
        self._state = state
        self._journal = journal
        self._reporter = reporter
        self._call_timeout_seconds = call_timeout_seconds
        self._cancelled = cancelled or threading.Event()
        self._sleep = sleep
        self._secrets = secrets
        self._history = History()
        self._hashes: dict[int, tuple[Any, str]] = {}
        self._answer_caps: list[int] = []
        self.step = 0

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
        if self._cancelled.is_set():
            raise CancelledRunError
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
        attempt = 0
        while True:
            try:
                return self._attempt(ask, attempt)
            except BackendError as error:
                if not error.retry or attempt >= RETRIES.get(error.error_type, 0):
                    raise
                self._wait(attempt, error)
            attempt += 1

    # -- one attempt --------------------------------------------------------------------------------------------

    def _attempt(self, ask: Ask, attempt: int) -> Reply:
        if self._cancelled.is_set():
            raise CancelledRunError
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
        self._state.ledger.append(entry)
        base = self._history.base(request.messages)
        call = self._new_call(request, ask.phase, entry.index, attempt, base)
        self._state.calls.append(call)
        request = replace(
            request, max_completion_tokens=entry.max_completion_tokens, deadline_seconds=self._deadline_seconds()
        )
        self._journal.reserved(self._state.run_id, entry)
        raw = self._send(request, reservation, call)
        self._settle(reservation, call, request, raw)
        return self._read(ask, call, raw)

    def _request(self, ask: Ask) -> ChatRequest:
        sampling = self._state.sampling
        return ChatRequest(
            messages=ask.messages,
            max_completion_tokens=sampling.max_completion_tokens,
            temperature=sampling.temperature,
            seed=sampling.seed,
            num_ctx=sampling.num_ctx,
            deadline_seconds=self._deadline_seconds(),
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

    def _deadline_seconds(self) -> float:
        left = self._enforcer.seconds_left()
        return self._call_timeout_seconds if left is None else max(0.001, min(left, self._call_timeout_seconds))

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

    def _send(self, request: ChatRequest, reservation: Reservation, call: LLMCall) -> RawReply:
        started = time.perf_counter()
        try:
            raw = self._backend.send(request, self._reporter.text if request.stream else None)
            return replace(raw, body=redacted(raw.body, self._secrets))
        except NotSentError as error:
            self._give_back(reservation, call, error)
            raise
        except BaseException as error:  # whatever ended it, Ctrl-C included, something was sent and is paid for
            call.timing = Timing(total=time.perf_counter() - started)
            stopped = self._cancelled.is_set()  # then whoever stopped the run also hung up on the server
            if isinstance(error, BackendError) and not stopped:
                call.error = call_error(error)
            self._settle(reservation, call, request, None)
            if isinstance(error, BackendError) and stopped:
                raise CancelledRunError from error
            self._refuse_late(error)
            raise

    def _refuse_late(self, error: BaseException) -> None:
        """A call that the run's own clock ended is no fault of the server."""
        left = self._enforcer.seconds_left()
        if isinstance(error, BackendError) and error.error_type == "deadline" and left is not None and left <= 0:
            raise BudgetExceededError("seconds", "the time of the run was over before the reply was whole") from error

    def _give_back(self, reservation: Reservation, call: LLMCall, error: NotSentError) -> None:
        call.error = call_error(error)
        self._journal.settled(self._state.run_id, self._enforcer.release(reservation))

    def _settle(self, reservation: Reservation, call: LLMCall, request: ChatRequest, raw: RawReply | None) -> None:
        if raw is not None:
            call.endpoint, call.http_status, call.content_type = raw.endpoint, raw.status, raw.content_type
            call.raw, call.streamed = raw.body, raw.streamed
            call.usage = usage_of(raw)
            call.timing = Timing(total=raw.seconds)
        usage = chargeable(call.usage, request.messages, self._history.base(request.messages), call.tools_hash)
        entry = self._enforcer.settle(reservation, usage)
        self._history.sent(call.index, request.messages, entry, usage, call.tools_hash)
        self._journal.settled(self._state.run_id, entry)

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
        if entry.settled_as == "overshoot":
            raise BudgetExceededError(
                "overshoot", "the server counted more tokens than the call was allowed; the run ends here"
            )
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

    def _wait(self, attempt: int, error: BackendError) -> None:
        seconds = BACK_OFF_SECONDS * 2**attempt
        left = self._enforcer.seconds_left()
        if left is not None and left <= seconds:
            raise error
        self._reporter.notice(f"{error.error_type}: {error}; trying again in {seconds:g} s (the try counts as a call)")
        self._sleep(seconds)

    # -- small things -------------------------------------------------------------------------------------------

    def _hash(self, value: Any) -> str | None:
        """Schemas are shared and never change: each is hashed once, and held so that its id stays its own."""
        if value is None:
            return None
        key = id(value)
        if key not in self._hashes:
            self._hashes[key] = (value, content_hash(value))
        return self._hashes[key][1]
