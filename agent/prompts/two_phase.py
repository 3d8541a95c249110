"""The texts of the two_phase strategy: one system message, and a plain-English chronicle of what was done.

Models imitate what stands in their own turns. So between the user's messages there is no JSON and no thinking, but one
sentence that says what the model set out to do: as a thought it is a good one, and the actions follow from it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from agent.prompts.budget_line import BudgetLeft, budget_line
from agent.prompts.untrusted import inert_markers
from agent.state import StepRecord, ToolCall, ToolResult

FINISH = "finish"
THINK_END = "</think>"
NOTHING_WRITTEN = "(nothing)"
NO_ACTIONS = "I did not get anything done."
THINKING_CUT = "Your thinking was cut off at its limit. Think in fewer words."
CALL_BESIDE_THINKING = (
    "The call that you made beside your thinking was not run. Write actions when you are asked for them."
)
NO_THINKING = "You did not think. Say in words what to do before you act."
FINISH_IS_VOID = "You did not get to finish: an action before it failed."
MAX_VALUE_CHARS = 300  # of one argument in the chronicle
_MAX_NAME_CHARS = 40

THINK_NOW = f"Think now, in a few short sentences and no JSON: what is known, what to do next. End with {THINK_END}"
ACT_NOW = "Write the actions now: one JSON array and nothing else."
ANSWER_NOW = (
    f"This is the last call: no further action is possible. Write one JSON array that holds {FINISH} alone, with the"
    " answer as its summary, from what you have."
)

_SYSTEM = """\
You work on tasks with tools. You cannot look things up, calculate, run code, or see files yourself: a tool does it.

Tools:
{tools}
- {finish}: Ends the work.
    summary (text, required): The full answer to the task, or what was done.

Each step has two parts.
1. You think, in plain English and in a few short sentences: what is known, and what to do next. The thinking ends \
with {think_end} and is not kept.
2. You write the actions: a JSON array of up to {max_actions} objects, each with "tool" (its name) and "args" (its \
parameters), and nothing else. They run in order, and the first that fails stops the rest.

Then you are told what you did and what came of it. If something failed, do it in another way. When the task is done, \
use {finish}, alone or as the last action. Calls are limited: the last line of each message says what is left."""


class _Phrase(NamedTuple):
    """A call in plain English: "You tried to VERB THING", "You PAST THING"."""

    verb: str
    past: str
    thing: str


# `thing` names arguments of the tool in braces.
_PHRASES = {
    "read_file": _Phrase("read", "read", "{path}"),
    "write_file": _Phrase("write", "wrote", '"{content}" to {path} ({mode})'),
    "list_directory": _Phrase("list", "listed", "the files of {path}"),
    "web_search": _Phrase("search", "searched", 'the web for "{query}"'),
    "calculate_math": _Phrase("calculate", "calculated", "{expression}"),
    "execute_code": _Phrase("run", "ran", 'the program "{code}"'),
    "clock": _Phrase("look up", "looked up", "the time in {timezone}"),
}
# What it means where an argument is left out.
_LEFT_OUT = {
    "write_file": {"mode": "overwrite"},
    "list_directory": {"path": "the workspace"},
    "clock": {"timezone": "the usual zone"},
}


def system_prompt(tools_prose: str, max_actions: int) -> str:
    """The system message: the tools, then how a step goes."""
    return _SYSTEM.format(tools=tools_prose, finish=FINISH, think_end=THINK_END, max_actions=max_actions)


def user_message(parts: Sequence[str], instruction: str, left: BudgetLeft) -> str:
    """A user message: what there is to say, what to write now, what is left."""
    return "\n".join([*parts, instruction, budget_line(left)])


def task(text: str) -> str:
    """What the user asks for."""
    return f"Task: {text}"


def chronicle(step: StepRecord) -> list[str]:
    """What was done in a step, what could not be used, and what the guards say to it."""
    parts = [deed(call, result) for call, result in zip(step.actions, step.results, strict=True)]
    parts += [f"Your actions could not be used: {inert_markers(fault)}" for fault in step.faults]
    said = {result.error for result in step.results}  # a repeated call's guard speaks through its result
    return parts + [event.message for event in step.guards if event.message not in said]


def deed(call: ToolCall, result: ToolResult) -> str:
    """What a call did, or did not, in one sentence, and what came of it."""
    verb, past, thing = _phrase(call)
    if result.success:
        return f"You {past} {thing}: {inert_markers(result.data) or NOTHING_WRITTEN}"
    if result.error_type == "skipped":
        return f"You did not get to {verb} {thing}: an action before it failed."
    return f"You tried to {verb} {thing} and it failed: {inert_markers(result.error or '')}"


def intention(actions: Sequence[ToolCall], summary: str | None) -> str:
    """What the model set out to do, as it stands in its own turn: for an answer alone, the answer."""
    ending = [] if summary is None else [inert_markers(summary)]
    if not actions:
        return "".join(ending)
    deeds = [f"{phrase.verb} {phrase.thing}" for phrase in map(_phrase, actions)]
    return "\n".join([f"I will {', then '.join(deeds)}.", *ending])


def open_thinking(thinking: str) -> str:
    """The beginning of the model's own turn that the actions go on from."""
    return f"<think>\n{inert_markers(thinking)}\n{THINK_END}\n"


def closed_thinking(thinking: str) -> str:
    """The thinking as a whole turn. Without marks: templates take what stands between them out of earlier turns."""
    return inert_markers(thinking) or NOTHING_WRITTEN


def _phrase(call: ToolCall) -> _Phrase:
    """A call in its tool's own words; of an unknown tool, or without an argument that they name, in those for any."""
    known = _PHRASES.get(call.name)
    given = {name: _value(value) for name, value in call.arguments.items() if value is not None}
    if known is not None:
        with suppress(KeyError):
            return known._replace(thing=known.thing.format_map({**_LEFT_OUT.get(call.name, {}), **given}))
    named = ", ".join(f"{inert_markers(name[:_MAX_NAME_CHARS])} {value}" for name, value in given.items())
    thing = inert_markers(call.name[:_MAX_NAME_CHARS])
    return _Phrase("use", "used", f"{thing} with {named}" if named else thing)


def _value(value: Any) -> str:
    """One argument as text, short."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return inert_markers(text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}...")
