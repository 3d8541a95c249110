"""Asserts on what the run answered. A run without an answer fails every one but the `_not_` kinds."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from agent.guards.numbers import exact, find_numbers
from agent.state import AgentState
from evals.assert_base import (
    MAX_ANSWER,
    AssertSpec,
    Finding,
    Number,
    Pattern,
    Text,
    Texts,
    Tolerant,
    fold,
    number_of,
    shorten,
)
from evals.embedded_json import find_json
from evals.patterns import MAX_TEXT, search

NO_ANSWER = Finding(False, "there is no answer")


def _answer(state: AgentState) -> str:
    """The model's answer; empty where there is none. A blank one is none, nor is what the loop put in its stead."""
    return state.answer if state.answer and state.answer.strip() and not state.answer_is_partial else ""


def _quoted(state: AgentState) -> str:
    return f"the answer is: {shorten(state.answer or '', 150)}"


class AnswerEquals(AssertSpec):
    """The whole answer is this text."""

    type: Literal["answer_equals"]
    value: Text
    case_sensitive: bool = False

    def check(self, state: AgentState) -> Finding:
        if not (answer := _answer(state)):
            return NO_ANSWER
        wanted, seen = (fold(text, case_sensitive=self.case_sensitive) for text in (self.value, answer))
        return Finding(wanted == seen, _quoted(state))


class AnswerContains(AssertSpec):
    """The answer holds this text, or every one of a list."""

    type: Literal["answer_contains"]
    value: Texts
    case_sensitive: bool = False

    def check(self, state: AgentState) -> Finding:
        if not (answer := _answer(state)):
            return NO_ANSWER
        seen = fold(answer, case_sensitive=self.case_sensitive)
        missing = [text for text in self.value if fold(text, case_sensitive=self.case_sensitive) not in seen]
        return Finding(not missing, f"not there: {shorten(', '.join(missing), 60)}; {_quoted(state)}")


class AnswerNotContains(AssertSpec):
    """The answer holds none of these texts."""

    type: Literal["answer_not_contains"]
    value: Texts
    case_sensitive: bool = False

    def check(self, state: AgentState) -> Finding:
        seen = fold(state.answer or "", case_sensitive=self.case_sensitive)
        there = [text for text in self.value if fold(text, case_sensitive=self.case_sensitive) in seen]
        return Finding(not there, f"there: {shorten(', '.join(there), 60)}; {_quoted(state)}")


class AnswerRegex(AssertSpec):
    """A regular expression is found in the answer's first 4,000 characters."""

    type: Literal["answer_regex"]
    value: Pattern
    case_sensitive: bool = False

    def check(self, state: AgentState) -> Finding:
        if not (answer := _answer(state)):
            return NO_ANSWER
        return Finding(search(self.value, answer, case_sensitive=self.case_sensitive), _quoted(state))


class AnswerNotRegex(AssertSpec):
    """A regular expression is found nowhere in the answer; an answer too long to be searched whole fails."""

    type: Literal["answer_not_regex"]
    value: Pattern
    case_sensitive: bool = False

    def check(self, state: AgentState) -> Finding:
        answer = state.answer or ""
        if len(answer) > MAX_TEXT:
            return Finding(False, f"only the first {MAX_TEXT} of the answer's {len(answer)} characters can be searched")
        return Finding(not search(self.value, answer, case_sensitive=self.case_sensitive), _quoted(state))


class AnswerNumber(Tolerant):
    """The answer holds this number, or one from `min` to `max`; `which` asks any of its numbers, or the last."""

    type: Literal["answer_number"]
    value: Number | None = None
    min: Number | None = None
    max: Number | None = None
    which: Literal["any", "last"] = "any"

    @model_validator(mode="after")
    def _one_demand(self) -> Self:
        if (self.value is None) == (self.min is None and self.max is None):
            raise PydanticCustomError("number_demand", "needs either value, or min and max (or one of them)")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise PydanticCustomError("number_demand", "min is above max")
        return self

    def check(self, state: AgentState) -> Finding:
        if not (answer := _answer(state)):
            return NO_ANSWER
        numbers = find_numbers(answer[:MAX_ANSWER])
        asked = numbers[-1:] if self.which == "last" else numbers
        shown = ", ".join(shorten(str(number), 30) for number in asked[:8])
        return Finding(any(map(self._fits, asked)), f"numbers seen: {shown or 'none'}; {_quoted(state)}")

    def _fits(self, number: Any) -> bool:
        if self.value is not None:
            return self.close(number, self.value)
        above = self.min is None or number >= exact(self.min)
        return above and (self.max is None or number <= exact(self.max))


class AnswerJson(Tolerant):
    """The answer is, or holds, one JSON object or array that meets all that is asked of it.

    `fields` must be in the object itself, `each_fields` in every item of the array. `value` is a part that must be
    there: an object's fields, or for an array objects that must be among its items.
    """

    type: Literal["answer_json"]
    value: dict[str, Any] | list[Any] | None = None
    fields: Texts | None = None
    each_fields: Texts | None = None
    min_items: PositiveInt | None = None
    max_items: PositiveInt | None = None

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        if self.min_items is not None and self.max_items is not None and self.min_items > self.max_items:
            raise PydanticCustomError("items_demand", "min_items is above max_items")
        return self

    def check(self, state: AgentState) -> Finding:
        if not (answer := _answer(state)):
            return NO_ANSWER
        found = find_json(answer[:MAX_ANSWER])
        if not found:
            return Finding(False, f"there is no JSON; {_quoted(state)}")
        lacks = [self._lack(document) for document in found]
        return Finding("" in lacks, next((lack for lack in lacks if lack), ""))

    def _lack(self, document: Any) -> str:
        """What the first unmet demand is; empty where all are met."""
        if self.fields and not _has(document, self.fields):
            return f"not an object with the fields {', '.join(self.fields)}: {shorten(repr(document), 80)}"
        if (self.each_fields or self.min_items or self.max_items) and not isinstance(document, list):
            return f"not an array: {shorten(repr(document), 80)}"
        if not (self.min_items or 0) <= len(document) <= (self.max_items or len(document)):
            return f"{len(document)} items"
        poor = [item for item in document if not _has(item, self.each_fields)] if self.each_fields else []
        if poor:
            return (
                f"{len(poor)} items lack a field of {', '.join(self.each_fields or [])}: {shorten(repr(poor[0]), 80)}"
            )
        return self._lacking_value(document)

    def _lacking_value(self, document: Any) -> str:
        if isinstance(self.value, list):
            items = document if isinstance(document, list) else []
            missing = self._unmatched(self.value, items)
            return f"{len(missing)} not there, first {shorten(repr(missing[0]), 120)}" if missing else ""
        if self.value is not None and not self._matches(self.value, document):
            return f"seen: {shorten(repr(document), 150)}"
        return ""

    def _unmatched(self, wanted: list[Any], seen: list[Any]) -> list[Any]:
        """What is wanted and not there, each item of `seen` standing for one thing only."""
        left, missing = list(seen), []
        for part in wanted:
            place = next((n for n, item in enumerate(left) if self._matches(part, item)), None)
            if place is None:
                missing.append(part)
            else:
                del left[place]
        return missing

    def _matches(self, wanted: Any, seen: Any) -> bool:
        """Whether `seen` holds `wanted`: objects by the fields asked for, arrays by their items, texts folded."""
        if isinstance(wanted, dict):
            return isinstance(seen, dict) and all(
                key in seen and self._matches(value, seen[key]) for key, value in wanted.items()
            )
        if isinstance(wanted, list):
            return isinstance(seen, list) and not self._unmatched(wanted, seen)
        if isinstance(wanted, str):
            return isinstance(seen, str) and fold(wanted) == fold(seen)
        number = number_of(seen)
        if number_of(wanted) is not None:
            return number is not None and self.close(number, wanted)
        return wanted is seen


def _has(document: Any, names: list[str]) -> bool:
    return isinstance(document, dict) and all(document.get(name) is not None for name in names)
