"""What the host answers without a model: explicit arithmetic and questions for the clock.

Pure: from a message, and what the run's tools have given so far, to the tool call that answers it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from agent.state import AgentState, ToolCall, ToolResult
from agent.strategies.fast_arithmetic import arithmetic
from agent.strategies.fast_clock import clock_arguments

CALCULATOR, CLOCK = "calculate_math", "clock"
_LONE_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def fast_call(text: str, previous: str | None, offered: Collection[str]) -> ToolCall | None:
    """The call that answers the whole message, None where a model has to look at it.

    `previous` is the number that "it" stands for, `offered` are the names of the run's tools.
    """
    expression = arithmetic(text, previous) if CALCULATOR in offered else None
    if expression is not None:
        return ToolCall(name=CALCULATOR, arguments={"expression": expression})
    arguments = clock_arguments(text) if CLOCK in offered else None
    return None if arguments is None else ToolCall(name=CLOCK, arguments=dict(arguments))


def previous_number(state: AgentState) -> str | None:
    """The number that the user's last turn came to: the last result of a tool in it, where that is one number."""
    results = [result for step in state.steps if step.turn == state.turn - 1 for result in step.results]
    last = results[-1] if results else None
    number = last.data.strip() if last is not None and last.success else ""
    return number if _LONE_NUMBER.fullmatch(number) else None


def host_answer(call: ToolCall, result: ToolResult) -> str:
    """The answer to a message that `fast_call` made the call for: what the tool gave, digit for digit."""
    if call.name == CALCULATOR:
        return f"{call.arguments['expression']} = {result.data}"
    return f"It is {result.data}"
