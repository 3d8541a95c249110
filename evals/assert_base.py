"""What every assert has in common: its fields' types, how texts are compared, and what a check hands back.

Texts are compared with white space, letter case (unless `case_sensitive`) and the two kinds of apostrophe folded.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from agent.guards.numbers import MAX_DIGITS, exact, find_numbers, is_close
from agent.state import AgentState
from evals.patterns import bounded_pattern

MAX_ANSWER = 20_000  # characters of an answer or a tool's result that are read for numbers and JSON
MAX_MESSAGE = 200


class Finding(NamedTuple):
    """The outcome of one check; `seen` says what was there instead, and may hold the model's own text."""

    passed: bool
    seen: str = ""


class AssertSpec(BaseModel, ABC):
    """One demand on a finished run, as a suite states it. Pure: a check reads the state and nothing else.

    With `turn` (from 1) it is held against that one of the user's turns: its steps, its calls and its answer.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    type: str
    turn: Annotated[int, Field(ge=1)] | None = None

    @abstractmethod
    def check(self, state: AgentState) -> Finding:
        """Whether the demand holds for this state, be it a whole run or one turn of it."""

    def holds(self, state: AgentState) -> Finding:
        """Whether the demand holds for this run."""
        return self.check(state if self.turn is None else of_turn(state, self.turn - 1))


def of_turn(state: AgentState, turn: int) -> AgentState:
    """One turn of a run (from 0) as if it were all of it. What the run wrote to its workspace is not told apart."""
    steps = [step for step in state.steps if step.turn == turn]
    calls = {call for step in steps for call in step.calls}
    part: dict[str, object] = {
        "steps": steps,
        "calls": [call for call in state.calls if call.index in calls],
        "ledger": [entry for entry in state.ledger if entry.index in calls],
    }
    if turn != state.turn:
        answer = steps[-1].answer if steps else None
        part |= {"answer": answer, "answer_is_partial": False, "status": "completed" if answer else state.status}
    return state.model_copy(update=part)


def text_due(value: object) -> object:
    """Refuse what YAML made of an unquoted word where a text is due, and texts that say nothing."""
    if isinstance(value, bool | int | float) or value is None:
        shown = "nothing" if value is None else str(value).lower()
        raise PydanticCustomError("text_due", "needs a text, not {shown}: put it in quotes", {"shown": shown})
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("text_due", "needs a text that is not blank")
    return value


def _listed(value: object) -> object:
    checked = text_due(value)
    if not isinstance(checked, str | list):
        raise PydanticCustomError("text_due", "needs a text or a list of texts")
    return [checked] if isinstance(checked, str) else checked


def number_due(value: object) -> object:
    """Refuse what is no number; true and false are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("number_due", "needs a number, not {shown}", {"shown": shorten(repr(value), 40)})
    if not _is_usable(value):
        raise PydanticCustomError("number_due", "needs a finite number")
    return value


def _pattern(value: str) -> str:
    try:
        return bounded_pattern(value)
    except ValueError as error:
        raise PydanticCustomError("pattern", "{why}", {"why": str(error)}) from None


Text = Annotated[str, BeforeValidator(text_due), Field(max_length=MAX_ANSWER)]
Texts = Annotated[list[Text], BeforeValidator(_listed), Field(min_length=1, max_length=100)]
Pattern = Annotated[Text, AfterValidator(_pattern)]
Number = Annotated[int | float, BeforeValidator(number_due)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(number_due)]


class Tolerant(AssertSpec, ABC):
    """An assert that compares numbers: the larger of both tolerances counts, `rel_tolerance` is a share (0.05)."""

    tolerance: Share = 0.0
    rel_tolerance: Share = 0.0

    def holds_number(self, text: str, wanted: float) -> bool:
        """Whether a text holds a number that is close enough."""
        return any(self.close(number, wanted) for number in find_numbers(text[:MAX_ANSWER]))

    def close(self, seen: Decimal, wanted: float) -> bool:
        """Whether one number is close enough to another."""
        return is_close(seen, wanted, self.tolerance, self.rel_tolerance)


def fold(text: str, *, case_sensitive: bool = False) -> str:
    """A text as it is compared."""
    plain = " ".join(unicodedata.normalize("NFC", text).replace("\u2019", "'").split())
    return plain if case_sensitive else plain.casefold()


def shorten(text: str, room: int = MAX_MESSAGE) -> str:
    """At most `room` characters of a text, on one line."""
    line = " ".join(text[: 4 * room].split())
    return line if len(line) <= room else line[: room - 1] + "…"


def number_of(value: Any) -> Decimal | None:
    """A JSON number, exactly; None for anything else, true and false and what is not finite included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_usable(value):
        return None
    return exact(value)


def _is_usable(value: float) -> bool:
    return bool(abs(value) < 10**MAX_DIGITS)  # false for infinity, and for NaN, which is below nothing
