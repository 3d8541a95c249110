"""The gate: no call to a model without a reservation, and no reservation past a cap.

`reserve` checks and records the worst case under one lock, before anything is sent; `settle` charges what the server
counted and gives the rest back. All money is integer micro-dollars, rounded up, so that sums never drift.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from agent.errors import BudgetExceededError, OnlyAnswerLeftError
from agent.state import BoundKind, LedgerEntry, LimitsRecord, PricesRecord, Purpose, Usage

MIN_COMPLETION_TOKENS = 64  # a reply cut shorter than this is not worth paying for
Scope = Literal["run", "batch"]
FINAL_ANSWER_TOKENS = 256  # what is kept back for the last word of a run


@dataclass(frozen=True)
class Prices:
    """Simulated prices in micro-dollars for 1,000 tokens (which is the same number as nano-dollars a token)."""

    prompt_microusd_per_1k: int
    completion_microusd_per_1k: int
    embedding_microusd_per_1k: int = 0

    @classmethod
    def of(cls, record: PricesRecord) -> Prices:
        """The prices that stand in a trace."""
        return cls(record.prompt_microusd_per_1k, record.completion_microusd_per_1k, record.embedding_microusd_per_1k)

    def for_purpose(self, purpose: Purpose) -> Prices:
        """What a call of that purpose costs: texts to be embedded have a price of their own, and no completion."""
        return Prices(self.embedding_microusd_per_1k, 0) if purpose == "embed" else self

    def cost_microusd(self, prompt_tokens: int, completion_tokens: int) -> int:
        """The price of a call, rounded up to a whole micro-dollar."""
        nano = prompt_tokens * self.prompt_microusd_per_1k + completion_tokens * self.completion_microusd_per_1k
        return -(-nano // 1000)

    def completion_tokens_for(self, microusd: int, prompt_tokens: int) -> int | None:
        """How many completion tokens `microusd` pays for after that prompt; negative if not even the prompt.

        None means any number: completion tokens are free and the prompt is paid for.
        """
        left = microusd * 1000 - prompt_tokens * self.prompt_microusd_per_1k
        if left < 0:
            return -1
        if self.completion_microusd_per_1k == 0:
            return None
        return left // self.completion_microusd_per_1k

    def record(self) -> PricesRecord:
        """The form that stands in a trace."""
        return PricesRecord(
            prompt_microusd_per_1k=self.prompt_microusd_per_1k,
            completion_microusd_per_1k=self.completion_microusd_per_1k,
            embedding_microusd_per_1k=self.embedding_microusd_per_1k,
        )


@dataclass(frozen=True)
class Limits:
    """The caps of one enforcer; None means no cap of that kind. Seconds are kept to the microsecond."""

    max_calls: int | None = None
    max_cost_microusd: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.max_seconds is not None:  # as fine as the budget line can say it, and no finer
            object.__setattr__(self, "max_seconds", round(self.max_seconds, 6))

    def record(self) -> LimitsRecord:
        """The form that stands in a trace."""
        return LimitsRecord(
            max_calls=self.max_calls, max_cost_microusd=self.max_cost_microusd, max_seconds=self.max_seconds
        )


@dataclass
class Reservation:
    """What one call may cost at most. `max_completion_tokens` is the cap to send, shrunk to what can be paid."""

    entry: LedgerEntry
    settled: bool = False

    @property
    def max_completion_tokens(self) -> int:
        """The completion cap that must be sent with the request."""
        return self.entry.max_completion_tokens


class BudgetEnforcer:
    """One scope's caps, optionally inside a parent's (a run's inside its batch's): both must agree, atomically.

    Thread-safe. Locks are always taken from the child up to the root, so nested enforcers cannot deadlock.
    """

    def __init__(
        self,
        limits: Limits,
        prices: Prices,
        *,
        parent: BudgetEnforcer | None = None,
        scope: Scope = "run",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.prices = prices
        self.parent = parent
        self.scope = scope
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._calls = 0
        self._committed_microusd = 0  # settled, plus open reservations in full
        self._overshot = False
        self._next_index = 0

    # -- what is left -------------------------------------------------------------------------------------------

    @property
    def calls_used(self) -> int:
        """Calls reserved and not given back."""
        return self._calls

    @property
    def committed_microusd(self) -> int:
        """Settled charges plus open reservations in full."""
        return self._committed_microusd

    def calls_left(self) -> int | None:
        """Calls that may still be reserved; None without a cap."""
        return None if self.limits.max_calls is None else max(0, self.limits.max_calls - self._calls)

    def microusd_left(self) -> int | None:
        """Money not yet committed; None without a cap."""
        cap = self.limits.max_cost_microusd
        return None if cap is None else max(0, cap - self._committed_microusd)

    def seconds_left(self) -> float | None:
        """Seconds until the nearest deadline of this enforcer or a parent; None without one."""
        own = None if self.limits.max_seconds is None else self.limits.max_seconds - (self._clock() - self._started)
        above = self.parent.seconds_left() if self.parent else None
        return min((s for s in (own, above) if s is not None), default=None)

    def refuse_late(self) -> None:
        """Nothing, or where the time of this enforcer or a parent is over, its error.

        Raises:
            BudgetExceededError: the cap is seconds.
        """
        with self._locked_chain() as chain:
            for enforcer in chain:
                enforcer._refuse_late()

    # -- reserve, settle, release -------------------------------------------------------------------------------

    def reserve(
        self,
        prompt_tokens_bound: int,
        max_completion_tokens: int,
        *,
        purpose: Purpose = "answer",
        bound_kind: BoundKind = "exact",
        answer_tokens_bound: int | None = None,
    ) -> Reservation:
        """Take the worst case of one call off every cap, or refuse before anything is sent.

        With `purpose="act"` the last call, and the price of a final answer of 256 tokens, are kept back. That answer's
        prompt holds this call's; `answer_tokens_bound` bounds what it holds of it, where that is less than all. With
        `purpose="embed"` they are kept back too; its prompt has `answer_tokens_bound` tokens, and nothing is completed.

        Raises:
            OnlyAnswerLeftError: an action can no longer be paid, a final answer may be.
            BudgetExceededError: no call can be paid (or a deadline has passed, or a count overshot earlier).
        """
        if prompt_tokens_bound < 0 or max_completion_tokens < (0 if purpose == "embed" else 1):
            raise ValueError("a reservation needs a prompt bound of at least 0 and a completion cap of at least 1")
        prices = self.prices.for_purpose(purpose)
        with self._locked_chain() as chain:
            for enforcer in chain:
                enforcer._refuse_spent()
            if purpose != "answer":
                self._refuse_last_call()
            kept = prompt_tokens_bound if answer_tokens_bound is None else answer_tokens_bound
            cap, shrunk_by = self._payable_cap(chain, prompt_tokens_bound, max_completion_tokens, purpose, kept)
            cost = prices.cost_microusd(prompt_tokens_bound, cap)
            entry = LedgerEntry(
                index=self._next_index,
                purpose=purpose,
                prompt_tokens_bound=prompt_tokens_bound,
                bound_kind=bound_kind,
                answer_tokens_bound=answer_tokens_bound,
                max_completion_tokens=cap,
                prompt_microusd_per_1k=prices.prompt_microusd_per_1k,
                completion_microusd_per_1k=prices.completion_microusd_per_1k,
                shrunk_by=shrunk_by,
                reserved_microusd=cost,
            )
            self._next_index += 1
            for enforcer in chain:
                enforcer._calls += 1
                enforcer._committed_microusd += cost
        return Reservation(entry)

    def payable_completion_tokens(self, prompt_tokens_bound: int, wanted: int) -> int:
        """The completion cap that a final answer would get now, 0 where it would be refused. Nothing is taken."""
        with self._locked_chain() as chain:
            try:
                for enforcer in chain:
                    enforcer._refuse_spent()
                return self._payable_cap(chain, prompt_tokens_bound, wanted, "answer", 0)[0]
            except BudgetExceededError:
                return 0

    def settle(self, reservation: Reservation, usage: Usage) -> LedgerEntry:
        """Charge what the server counted. A missing count is unknown: then the whole reservation stands.

        A count above what was reserved is charged in full, marked `overshoot`, and no further call is admitted.
        """
        entry = reservation.entry
        is_counted = usage.prompt_tokens is not None and usage.completion_tokens is not None
        prompt = entry.prompt_tokens_bound if usage.prompt_tokens is None else usage.prompt_tokens
        completion = entry.max_completion_tokens if usage.completion_tokens is None else usage.completion_tokens
        over = prompt > entry.prompt_tokens_bound or completion > entry.max_completion_tokens
        charged = self.prices.for_purpose(entry.purpose).cost_microusd(prompt, completion)
        if not is_counted:
            charged = max(charged, entry.reserved_microusd)
        with self._locked_chain() as chain:
            self._close(reservation)
            entry.settled_microusd = charged
            entry.settled_as = "overshoot" if over else "counted" if is_counted else "unknown"
            self._overshot = self._overshot or over
            for enforcer in chain:
                enforcer._committed_microusd += charged - entry.reserved_microusd
        return entry

    def release(self, reservation: Reservation) -> LedgerEntry:
        """Give a reservation back whole. Only where nothing was sent."""
        with self._locked_chain() as chain:
            self._close(reservation)
            reservation.entry.settled_as = "refunded"
            for enforcer in chain:
                enforcer._calls -= 1
                enforcer._committed_microusd -= reservation.entry.reserved_microusd
        return reservation.entry

    # -- inside the lock ----------------------------------------------------------------------------------------

    @contextmanager
    def _locked_chain(self) -> Iterator[list[BudgetEnforcer]]:
        chain: list[BudgetEnforcer] = []
        node: BudgetEnforcer | None = self
        with ExitStack() as locks:
            while node is not None:
                locks.enter_context(node._lock)
                chain.append(node)
                node = node.parent
            yield chain

    @staticmethod
    def _close(reservation: Reservation) -> None:
        if reservation.settled:
            raise RuntimeError(f"reservation {reservation.entry.index} was already settled")
        reservation.settled = True

    def _refuse_spent(self) -> None:
        limits = self.limits
        if self._overshot:
            raise BudgetExceededError(
                "overshoot", "the server counted more than a call was allowed, so no further call is made", self.scope
            )
        if limits.max_calls is not None and self._calls >= limits.max_calls:
            raise BudgetExceededError("calls", f"all {limits.max_calls} calls are used", self.scope)
        self._refuse_late()

    def _refuse_late(self) -> None:
        limit = self.limits.max_seconds
        if limit is not None and self._clock() - self._started >= limit:
            raise BudgetExceededError("seconds", f"the {limit:g} seconds are over", self.scope)

    def _refuse_last_call(self) -> None:
        if self.limits.max_calls is not None and self.limits.max_calls - self._calls <= 1:
            raise OnlyAnswerLeftError("calls", "the last call is kept for the final answer", self.scope)

    def _payable_cap(
        self, chain: list[BudgetEnforcer], prompt: int, wanted: int, purpose: Purpose, kept_prompt: int
    ) -> tuple[int, Scope | None]:
        """The completion cap that every scope can pay for, and which one made it smaller; refuses below the floor.

        `kept_prompt` is what of this prompt the answer's will hold that is kept back beside an action.
        """
        floor = min(MIN_COMPLETION_TOKENS, wanted)
        cap, shrunk_by = wanted, None
        prices = self.prices.for_purpose(purpose)
        for enforcer in chain:
            payable = enforcer._payable_tokens(prompt, prices)
            if payable is not None and payable < cap:
                cap, shrunk_by = payable, enforcer.scope
        if cap < floor:
            scope = shrunk_by or self.scope
            what = "vectors" if purpose == "embed" else f"a call of {floor} tokens"
            raise BudgetExceededError("cost", f"the money left cannot pay {what}", scope)
        if purpose == "embed":
            self._refuse_the_answers_money(prices.cost_microusd(prompt, 0), kept_prompt)
        if purpose == "act" and (kept := self._keep_answer(prompt + kept_prompt, cap, floor)) < cap:
            cap, shrunk_by = kept, self.scope
        return cap, shrunk_by

    def _refuse_the_answers_money(self, cost: int, answer_prompt: int) -> None:
        """A call for vectors must leave what a final answer costs."""
        left = self.microusd_left()
        if left is not None and left - cost < self.prices.cost_microusd(answer_prompt, FINAL_ANSWER_TOKENS):
            raise OnlyAnswerLeftError("cost", "the money left is kept for the final answer", self.scope)

    def _payable_tokens(self, prompt: int, prices: Prices) -> int | None:
        """How many completion tokens this scope's money pays for after that prompt; None for any number."""
        cap = self.limits.max_cost_microusd
        return None if cap is None else prices.completion_tokens_for(cap - self._committed_microusd, prompt)

    def _keep_answer(self, prompts: int, cap: int, floor: int) -> int:
        """Shrink an action's cap so that a final answer can still be paid. `prompts` are the tokens of both prompts."""
        if self.limits.max_cost_microusd is None:
            return cap
        prices = self.prices
        left = self.limits.max_cost_microusd - self._committed_microusd
        # Two prompts, this call's completion paid once as written and once as read back, and the answer.
        fixed = prices.cost_microusd(prompts, FINAL_ANSWER_TOKENS)
        per_token = prices.prompt_microusd_per_1k + prices.completion_microusd_per_1k
        payable = cap if per_token == 0 else (left - fixed) * 1000 // per_token
        if left < fixed or payable < floor:
            raise OnlyAnswerLeftError("cost", "the money left is kept for the final answer", self.scope)
        return min(cap, payable)
