"""The texts of the react strategy: one system message for a whole run, one user message a turn."""

from __future__ import annotations

from agent.prompts import notices
from agent.prompts.budget_line import BudgetLeft, budget_line
from agent.prompts.untrusted import inert_markers
from agent.state import StepRecord, ToolCall, ToolResult

PROGRESS_WORDS = ("on_track", "stuck")

_SYSTEM = """\
You solve tasks with tools. You cannot look things up, calculate, or run code yourself: a tool does it.

Tools:
{tools}

Each turn you write one JSON object with these four fields, in this order, and nothing else:
- "progress_check": {progress}.
- "thought": one short sentence: what you need to find out, and which tool can find it.
- "action": the tool to call now, as an object with "tool" (its name) and "args" (its parameters). null when you give \
the final answer.
- "final_answer": null while you use a tool. The full answer to the task, as text, when you are done.

The result of a tool comes back as an observation. If it failed, try a different call. When the observations answer \
the task, give the final answer. Calls are limited: the last line of each message says what is left."""


def system_prompt(tools_prose: str) -> str:
    """The system message: the contract, then the tools."""
    return _SYSTEM.format(progress=" or ".join(f'"{word}"' for word in PROGRESS_WORDS), tools=tools_prose)


def task_message(task: str, left: BudgetLeft, *, answer_only: bool) -> str:
    """The first user message."""
    return _with_tail([f"Task: {task}"], left, answer_only=answer_only)


def observation_message(step: StepRecord, left: BudgetLeft, *, answer_only: bool) -> str:
    """The user message after a step: what came of it, what the guards say, what is left."""
    parts = [_observation(call, result) for call, result in zip(step.actions, step.results, strict=True)]
    parts += [notices.invalid_reply(inert_markers(fault)) for fault in step.faults]
    said = {result.error for result in step.results}  # a repeated call's guard speaks through its result
    parts += [event.message for event in step.guards if event.message not in said]
    return _with_tail(parts, left, answer_only=answer_only)


def _observation(call: ToolCall, result: ToolResult) -> str:
    name = inert_markers(call.name)
    if result.success:
        return f"Observation from {name}: {inert_markers(result.data)}"
    return f"Observation from {name}: FAILED ({result.error_type}): {inert_markers(result.error or '')}"


def _with_tail(parts: list[str], left: BudgetLeft, *, answer_only: bool) -> str:
    tail = [notices.ANSWER_ONLY] if answer_only else []
    return "\n".join([*parts, *tail, budget_line(left)])
