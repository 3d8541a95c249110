"""One attempt of a call to a model: what was reserved is sent, settled and recorded, whatever becomes of it.

Shared by all calls of a run, for replies and for vectors: nothing else sends, and so nothing is sent unreserved.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.budget import BudgetEnforcer, Reservation
from agent.errors import BackendError, BudgetExceededError, CancelledRunError, NotSentError
from agent.journal import Journal
from agent.llm.backends.base import RawReply
from agent.llm.clean_replies import without_secrets
from agent.llm.envelopes import usage_of
from agent.llm.opening import call_error
from agent.reporter import Reporter
from agent.state import AgentState, LedgerEntry, LLMCall, Timing, Usage

# How often a fault that may heal is tried again, by its type; each try is a call of the budget.
RETRIES = {"server_busy": 3, "proxy_error": 1, "server_error": 1, "stream_error": 1, "stream_incomplete": 1}
BACK_OFF_SECONDS = 0.5  # doubled at each further try
R = TypeVar("R")


@dataclass(frozen=True)
class Attempt:
    """What is to be sent, under its reservation. `send` is given the seconds that it may take in all.

    `believed` says which of the server's counts may be charged; `sent` is told of a call that was sent and settled.
    """

    call: LLMCall
    reservation: Reservation
    send: Callable[[float], RawReply]
    believed: Callable[[Usage], Usage]
    sent: Callable[[LedgerEntry, Usage], None]


@dataclass
class Attempts:
    """What the attempts of one run share. `step` says which step is asking.

    `secrets` are taken out of a reply before anything of it is read or kept.
    """

    enforcer: BudgetEnforcer
    state: AgentState
    journal: Journal
    reporter: Reporter
    call_timeout_seconds: float
    cancelled: threading.Event
    sleep: Callable[[float], None]
    secrets: tuple[str, ...] = field(default=(), repr=False)
    step: int = 0

    def deadline_seconds(self) -> float:
        """What a call may take now: no more than the run has left."""
        left = self.enforcer.seconds_left()
        return self.call_timeout_seconds if left is None else max(0.001, min(left, self.call_timeout_seconds))

    def refuse_cancelled(self) -> None:
        """Nothing, or where a person has stopped the run, its error.

        Raises:
            CancelledRunError: they have.
        """
        if self.cancelled.is_set():
            raise CancelledRunError

    def repeated(self, attempt: Callable[[int], R]) -> R:
        """What `attempt(number)` gives, over as many attempts as the fault and the budget allow.

        Raises:
            BackendError: the server or the machine failed, and a further try is not made. And what `attempt` raises.
        """
        number = 0
        while True:
            try:
                return attempt(number)
            except BackendError as error:
                if not error.retry or number >= RETRIES.get(error.error_type, 0):
                    raise
                self._wait(number, error)
            number += 1

    def make(self, attempt: Attempt) -> RawReply:
        """Send, settle and record. The call and its entry stand in the state before anything is sent.

        Raises:
            NotSentError: nothing was sent, and the reservation is given back.
            BudgetExceededError: the time of the run was over before the reply was whole.
            BackendError: the server or the machine failed; the call is charged.
            CancelledRunError: the person asked to stop.
        """
        entry = attempt.reservation.entry
        self.state.ledger.append(entry)
        self.state.calls.append(attempt.call)
        self.journal.reserved(self.state.run_id, entry)
        raw = self._sent(attempt)
        self._settle(attempt, raw)
        return raw

    def _sent(self, attempt: Attempt) -> RawReply:
        started, call = time.perf_counter(), attempt.call
        try:
            raw = attempt.send(self.deadline_seconds())
            return replace(raw, body=without_secrets(raw.body, self.secrets))
        except NotSentError as error:
            call.error = call_error(error)
            self.journal.settled(self.state.run_id, self.enforcer.release(attempt.reservation))
            raise
        except BaseException as error:  # whatever ended it, Ctrl-C included, something was sent and is paid for
            call.timing = Timing(total=time.perf_counter() - started)
            stopped = self.cancelled.is_set()  # then whoever stopped the run also hung up on the server
            if isinstance(error, BackendError) and not stopped:
                call.error = call_error(error)
            self._settle(attempt, None)
            if isinstance(error, BackendError) and stopped:
                raise CancelledRunError from error
            self._refuse_late(error)
            raise

    def _refuse_late(self, error: BaseException) -> None:
        """A call that the run's own clock ended is no fault of the server."""
        left = self.enforcer.seconds_left()
        if isinstance(error, BackendError) and error.error_type == "deadline" and left is not None and left <= 0:
            raise BudgetExceededError("seconds", "the time of the run was over before the reply was whole") from error

    def _settle(self, attempt: Attempt, raw: RawReply | None) -> None:
        call = attempt.call
        if raw is not None:
            call.endpoint, call.http_status, call.content_type = raw.endpoint, raw.status, raw.content_type
            call.raw, call.streamed = raw.body, raw.streamed
            call.usage = usage_of(raw)
            call.timing = Timing(total=raw.seconds)
        usage = attempt.believed(call.usage)
        entry = self.enforcer.settle(attempt.reservation, usage)
        attempt.sent(entry, usage)
        self.journal.settled(self.state.run_id, entry)

    def _wait(self, number: int, error: BackendError) -> None:
        seconds = BACK_OFF_SECONDS * 2**number
        left = self.enforcer.seconds_left()
        if left is not None and left <= seconds:
            raise error
        self.reporter.notice(f"{error.error_type}: {error}; trying again in {seconds:g} s (the try counts as a call)")
        self.sleep(seconds)


def refuse_overshoot(entry: LedgerEntry) -> None:
    """Nothing, or where a call was counted higher than it was reserved, the end of its run.

    Raises:
        BudgetExceededError: the cap is overshoot.
    """
    if entry.settled_as == "overshoot":
        raise BudgetExceededError(
            "overshoot", "the server counted more tokens than the call was allowed; the run ends here"
        )
