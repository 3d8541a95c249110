"""The texts of the pipeline strategy: one system message for each kind of call, and what is asked under it.

A conversation need not hear of every step: each text says the task anew, with what its conversation does not know yet.
The budget line is put under it where it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from agent.prompts.untrusted import inert_markers
from agent.state import StepRecord, ToolCall, ToolResult

NO_TOOL = "none"

# How much of what was said and found goes along. A choice or a few arguments need less of it than an answer.
MAX_EARLIER_TURNS = 3
MAX_EARLIER_CHARS = 300
MAX_RESULTS = 6
MAX_ARGUMENTS_CHARS = 200
RESULT_CHARS_TO_ACT = 1500
RESULT_CHARS_TO_ANSWER = 3000

MUST_USE_TOOL = "An answer without the result of a tool was rejected. Choose a tool."

_ROUTE_SYSTEM = """\
You choose the tool for a task. You do not solve the task yourself.

Tools:
{headlines}
{none}: no tool is needed, or what was found already answers the task.

Reply with one JSON object and nothing else. It has two fields:
- "tool": the name of the one tool to use now, from the list.
- "enough": true if the result of this one tool is all that the answer needs, false if another tool has to follow."""

_EXTRACT_SYSTEM = """\
You fill in the arguments of one tool. You do not solve the task yourself.

The tool and its arguments:
{tool}

Take the values from the task and from what was found. Leave out an optional argument that the task does not ask for.
Reply with one JSON object that holds the arguments by their names, and nothing else."""

ANSWER_SYSTEM = """\
You answer the user in plain words, directly and in short.
Where results of tools are given, answer from them alone: say nothing that they do not say, and copy numbers and names \
exactly. If they do not answer the question, say what could not be found out."""


def route_system(headlines: str) -> str:
    """The system message of every ROUTE call."""
    return _ROUTE_SYSTEM.format(headlines=headlines, none=NO_TOOL)


def extract_system(tool_prose: str) -> str:
    """The system message of every EXTRACT call for one tool."""
    return _EXTRACT_SYSTEM.format(tool=tool_prose)


def route_message(
    task: str, earlier: Sequence[tuple[str, str]], steps: Sequence[StepRecord], notes: Iterable[str]
) -> str:
    """Which tool now? `earlier` are the user's turns before this one with their answers, `notes` what guards said.

    `steps` are those whose results are to be told.
    """
    return _joined(_context(task, earlier, steps), *notes, "Which tool is needed now?")


def given_up(name: str) -> str:
    """The note on a tool whose arguments the model could not write."""
    return f"{name} cannot be used any more: its arguments could not be read. Choose another, or {NO_TOOL}."


def extract_message(task: str, earlier: Sequence[tuple[str, str]], steps: Sequence[StepRecord], name: str) -> str:
    """Which arguments for the tool `name`?"""
    return _joined(_context(task, earlier, steps), f"Write the arguments of {name}.")


def extract_again(reason: str) -> str:
    """After arguments that cannot be used: what is wrong with them."""
    return f"That cannot be used: {inert_markers(reason).rstrip('.')}.\nWrite the arguments again, with this put right."


def answer_message(task: str, steps: Sequence[StepRecord]) -> str:
    """The question, and what the tools gave at its tail."""
    results = _results(steps, RESULT_CHARS_TO_ANSWER)
    return _joined(f"Question: {task}", f"Results of tools:\n{results}" if results else "")


def answer_again(reason: str) -> str:
    """After an answer that cannot be used: what is wrong with it."""
    return f"That cannot be used: {inert_markers(reason).rstrip('.')}.\nAnswer the question again."


def unfounded(numbers: Sequence[str]) -> str:
    """After an answer with numbers that stand nowhere."""
    return f"No result and no word of the user says {', '.join(numbers)}. Answer again, with numbers that were given."


def _context(task: str, earlier: Sequence[tuple[str, str]], steps: Sequence[StepRecord]) -> str:
    said = "\n".join(
        f"User: {_short(asked, MAX_EARLIER_CHARS)}\nAnswer: {inert_markers(_short(answer, MAX_EARLIER_CHARS))}"
        for asked, answer in earlier[-MAX_EARLIER_TURNS:]
    )
    found = _results(steps, RESULT_CHARS_TO_ACT)
    return _joined(
        f"Said before:\n{said}" if said else "", f"Task: {task}", f"What was found:\n{found}" if found else ""
    )


def _results(steps: Sequence[StepRecord], max_chars: int) -> str:
    """The latest results, a paragraph each. A call that was not made again brought none."""
    pairs = [pair for step in steps for pair in zip(step.actions, step.results, strict=True)]
    told = [_result(call, result, max_chars) for call, result in pairs if result.error_type != "repeated"]
    return "\n".join(told[-MAX_RESULTS:])


def _result(call: ToolCall, result: ToolResult, max_chars: int) -> str:
    arguments = _short(json.dumps(call.arguments, ensure_ascii=False), MAX_ARGUMENTS_CHARS)
    said = result.data if result.success else f"FAILED ({result.error_type}): {result.error}"
    return inert_markers(f"- {call.name} {arguments}: {_short(said, max_chars)}")


def _short(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars] + " [cut]"


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
