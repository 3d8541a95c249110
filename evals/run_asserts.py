"""Asserts on what the run did: its tool calls and their results, its status, what it used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from agent.guards.numbers import exact, find_numbers, is_close
from agent.state import NOT_MADE, AgentState, ToolCall, ToolResult
from evals.assert_base import (
    AssertSpec,
    Finding,
    Number,
    Pattern,
    Share,
    Texts,
    Tolerant,
    fold,
    number_due,
    number_of,
    shorten,
    text_due,
)
from evals.patterns import search


class ArgMatch(BaseModel):
    """What one argument of a call must be; all that is given must hold."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    equals: Any = None
    contains: Texts | None = None
    not_contains: Texts | None = None
    regex: Pattern | None = None
    number: Number | None = None
    tolerance: Share = 0.0
    rel_tolerance: Share = 0.0

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        asked = (self.equals, self.contains, self.not_contains, self.regex, self.number)
        if all(demand is None for demand in asked):
            raise PydanticCustomError("arg_demand", "needs one of equals, contains, not_contains, regex, number")
        return self

    def fits(self, value: Any) -> bool:
        """Whether an argument's value meets every demand."""
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        seen = fold(text)
        return (
            (self.equals is None or _same(self.equals, value))
            and (self.contains is None or all(fold(part) in seen for part in self.contains))
            and (self.not_contains is None or not any(fold(part) in seen for part in self.not_contains))
            and (self.regex is None or search(self.regex, text, case_sensitive=False))
            and (self.number is None or self._is_number(value))
        )

    def _is_number(self, value: Any) -> bool:
        number = number_of(value)
        if isinstance(value, str) and len(found := find_numbers(value)) == 1:
            number = found[0]
        wanted = self.number or 0
        return number is not None and is_close(number, wanted, self.tolerance, self.rel_tolerance)


def _operators(value: object) -> object:
    return value if isinstance(value, dict) else {"equals": value}


def _same(wanted: Any, seen: Any) -> bool:
    """JSON equality: 45 is 45.0, true is not 1, texts are compared as they are."""
    if isinstance(wanted, dict) and isinstance(seen, dict):
        return wanted.keys() == seen.keys() and all(_same(wanted[key], seen[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(seen, list):
        return len(wanted) == len(seen) and all(map(_same, wanted, seen))
    return isinstance(wanted, bool) == isinstance(seen, bool) and bool(wanted == seen)


Args = dict[str, Annotated[ArgMatch, BeforeValidator(_operators)]]


def _calls(state: AgentState, names: list[str], args: Args | None) -> Iterator[tuple[ToolCall, ToolResult | None]]:
    """The run's calls of these tools with these arguments, each with its result where it came to one.

    What the loop refused to make (a repeat, an action in place of the last answer) is no call.
    """
    for step in state.steps:
        for place, call in enumerate(step.actions):
            result = step.results[place] if place < len(step.results) else None
            was_refused = result is not None and result.error_type in NOT_MADE
            if not was_refused and call.name in names and _args_fit(call, args):
                yield call, result


def _args_fit(call: ToolCall, args: Args | None) -> bool:
    return all(name in call.arguments and match.fits(call.arguments[name]) for name, match in (args or {}).items())


def _called(state: AgentState) -> str:
    calls = [f"{call.name}({shorten(repr(call.arguments), 60)})" for step in state.steps for call in step.actions]
    return f"calls: {shorten(', '.join(calls), 150) or 'none'}"


class ToolCalled(AssertSpec):
    """The model called this tool (or one of a list), with these arguments, so many times.

    A call counts whether or not it succeeded, unless `success` says which.
    """

    type: Literal["tool_called"]
    value: Texts
    args: Args | None = None
    times: PositiveInt | None = None
    min_times: PositiveInt = 1
    success: bool | None = None

    def check(self, state: AgentState) -> Finding:
        results = [result for _, result in _calls(state, self.value, self.args)]
        if self.success is not None:
            results = [result for result in results if result is not None and result.success is self.success]
        fits = len(results) == self.times if self.times is not None else len(results) >= self.min_times
        return Finding(fits, f"{len(results)} such calls; {_called(state)}")


class ToolNotCalled(AssertSpec):
    """The model never called this tool (nor any of a list), or never with these arguments."""

    type: Literal["tool_not_called"]
    value: Texts
    args: Args | None = None

    def check(self, state: AgentState) -> Finding:
        return Finding(not any(_calls(state, self.value, self.args)), _called(state))


def _text_or_number(value: object) -> object:
    if value is None:
        return value
    return text_due(value) if isinstance(value, str | bool) else number_due(value)


class ToolResultIs(Tolerant):
    """One call of `tool` with these arguments succeeded, and its result holds `value`: a text, or a number.

    With `success: false` it failed instead, and `value` is looked for in its error.
    """

    type: Literal["tool_result"]
    tool: Texts
    value: Annotated[str | int | float | None, BeforeValidator(_text_or_number)] = None
    args: Args | None = None
    success: bool = True

    def check(self, state: AgentState) -> Finding:
        results = [result for _, result in _calls(state, self.tool, self.args) if result is not None]
        seen = [_text(result) for result in results]
        passed = any(
            result.success is self.success and self._holds(text) for result, text in zip(results, seen, strict=True)
        )
        return Finding(passed, f"results: {shorten(' | '.join(seen), 150)}" if seen else _called(state))

    def _holds(self, text: str) -> bool:
        if self.value is None:
            return True
        return fold(self.value) in fold(text) if isinstance(self.value, str) else self.holds_number(text, self.value)


def _text(result: ToolResult) -> str:
    return result.data if result.success else result.error or ""


# A run that is cancelled, or never ended, is invalid whatever is asked of it.
Ending = Literal["completed", "budget_exhausted", "loop_detected", "confirmation_required", "timeout", "error"]


def _status_list(value: object) -> object:
    return [text_due(value)] if not isinstance(value, list) else value


class StatusIs(AssertSpec):
    """The run ended so (or in one of a list of ways)."""

    type: Literal["status"]
    value: Annotated[list[Ending], BeforeValidator(_status_list), Field(min_length=1)]

    def check(self, state: AgentState) -> Finding:
        return Finding(state.status in self.value, f"the run ended as {state.status}")


class MaxCalls(AssertSpec):
    """At most so many calls to a model were made."""

    type: Literal["max_calls"]
    value: Annotated[int, Field(ge=0)]

    def check(self, state: AgentState) -> Finding:
        return Finding(state.calls_used <= self.value, f"{state.calls_used} calls")


class MaxCostUsd(AssertSpec):
    """At most so many (simulated) dollars were charged."""

    type: Literal["max_cost_usd"]
    value: Share

    def check(self, state: AgentState) -> Finding:
        spent = state.cost_microusd
        return Finding(spent <= exact(self.value) * 1_000_000, f"${spent / 1_000_000:.6f}")


class ScratchpadNotEmpty(AssertSpec):
    """The run kept at least one finding in its scratchpad."""

    type: Literal["scratchpad_not_empty"]

    def check(self, state: AgentState) -> Finding:
        return Finding(any(note.strip() for note in state.scratchpad), "the scratchpad is empty")
