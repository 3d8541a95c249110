"""The texts of the native strategy: its two system messages, and what stands around a task and a tool's result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent.prompts.budget_line import BudgetLeft, budget_line
from agent.prompts.untrusted import inert_markers
from agent.state import StepRecord, ToolCall, ToolResult

NO_MORE_TOOLS = "No tool can be called any more. Give the final answer now, in plain text, from what you have."

_SYSTEM = """\
You are an assistant with tools. Call a tool for what it can find out or do; do not guess what a tool can tell you. \
If no tool is needed, answer at once.

The result of a call comes back to you. If a call failed, try another way. When you have what you need, answer in \
plain text, from the results. Calls are limited: the last line of each message says what is left."""

_SYSTEM_WITH_TOOLS = """\
{system}

These are the tools, each with its parameters as JSON Schema:
<tools>
{definitions}
</tools>

To call a tool, write one JSON object with the keys "name" and "arguments" between <tool_call> and </tool_call>, and \
nothing else."""


def system_prompt() -> str:
    """The system message where the server itself shows the tools to the model."""
    return _SYSTEM


def system_prompt_with_tools(definitions: Sequence[dict[str, Any]]) -> str:
    """The system message where it does not: the same, then the definitions and how a call is written (Hermes' form)."""
    lines = [json.dumps(definition, ensure_ascii=False) for definition in definitions]
    return _SYSTEM_WITH_TOOLS.format(system=_SYSTEM, definitions="\n".join(lines))


def with_tail(parts: Sequence[str], left: BudgetLeft, *, final: bool) -> str:
    """A message that a reply follows: its parts, where `final` that no call may follow, and what is left."""
    tail = [NO_MORE_TOOLS] if final else []
    return "\n".join([*parts, *tail, budget_line(left)])


def result_text(result: ToolResult) -> str:
    """A tool message's text."""
    if result.success:
        return inert_markers(result.data)
    return f"FAILED ({result.error_type}): {inert_markers(result.error or '')}"


def told_result(call: ToolCall, result: ToolResult) -> str:
    """The same inside a user message."""
    return f"Result of {inert_markers(call.name)}: {result_text(result)}"


def notes(step: StepRecord, *, without: str) -> list[str]:
    """What of a step no result says: replies and calls that could not be used, and the guards but one (`without`)."""
    what = "A call was not made" if step.actions else "Your reply could not be used"
    said = {result.error for result in step.results}  # a repeated call's guard speaks through its result
    told = [event.message for event in step.guards if event.guard != without and event.message not in said]
    return [f"{what}: {inert_markers(fault)}" for fault in step.faults] + told
