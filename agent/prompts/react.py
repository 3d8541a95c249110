"""The texts of the react strategy: one system message for a whole run, one user message a turn."""

from __future__ import annotations

from agent.prompts import notices
from agent.prompts.budget_line import BudgetLeft, budget_line
from agent.state import StepRecord, ToolCall, ToolResult

PROGRESS_WORDS = ("on_track", "stuck", "done")

_SYSTEM = """\
You solve the user's task by calling tools and then giving a final answer. You work in turns. In each turn you reply \
with exactly one JSON object with these four fields, in this order, and nothing else:
- "progress_check": one of {progress}.
- "thought": what you know, and what to do next, in one short sentence.
- "action": the one tool call to make now, as {{"tool": its name, "args": its arguments}}; or null.
- "final_answer": the answer to the task as text; or null.
Exactly one of "action" and "final_answer" is null. After an action you are shown its result as an observation. Base \
the final answer on observations. Calls are limited: the last line of each message says what is left.

Tools:
{tools}"""


def system_prompt(tools_prose: str) -> str:
    """The system message: the contract, then the tools."""
    return _SYSTEM.format(progress=", ".join(f'"{word}"' for word in PROGRESS_WORDS), tools=tools_prose)


def task_message(task: str, left: BudgetLeft, *, answer_only: bool) -> str:
    """The first user message."""
    return _with_tail([f"Task: {task}"], left, answer_only=answer_only)


def observation_message(step: StepRecord, left: BudgetLeft, *, answer_only: bool) -> str:
    """The user message after a step: what came of it, what the guards say, what is left."""
    parts = [_observation(call, result) for call, result in zip(step.actions, step.results, strict=True)]
    parts += [notices.invalid_reply(fault) for fault in step.faults]
    said = {result.error for result in step.results}  # a repeated call's guard speaks through its result
    parts += [event.message for event in step.guards if event.message not in said]
    return _with_tail(parts, left, answer_only=answer_only)


def _observation(call: ToolCall, result: ToolResult) -> str:
    if result.success:
        return f"Observation from {call.name}: {result.data}"
    return f"Observation from {call.name}: FAILED ({result.error_type}): {result.error}"


def _with_tail(parts: list[str], left: BudgetLeft, *, answer_only: bool) -> str:
    tail = [notices.ANSWER_ONLY] if answer_only else []
    return "\n".join([*parts, *tail, budget_line(left)])
