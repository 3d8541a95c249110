"""A reply that is an array of actions, with finish(summary) among them: its schema, and how it is read."""

from __future__ import annotations

from typing import Any

from agent.errors import ModelError
from agent.llm.replies import ACTION
from agent.prompts.two_phase import FINISH
from agent.state import ToolCall
from agent.strategies.answer_room import answer_chars
from agent.strategies.base import Decision
from agent.tools.json_schema import GRAMMAR_MAX_TEXT, Schema, action_form
from agent.tools.registry import MAX_ACTIONS


def finish_form(max_completion_tokens: int) -> Schema:
    """The bounded schema of finish(summary), with as much room as that many tokens leave."""
    length = answer_chars(max_completion_tokens, GRAMMAR_MAX_TEXT)
    summary = {"type": "string", "minLength": 1, "maxLength": length}
    arguments = {
        "type": "object",
        "properties": {"summary": summary},
        "required": ["summary"],
        "additionalProperties": False,
    }
    return action_form(FINISH, arguments)


def read_actions(value: Any, *, answer_only: bool = False) -> Decision:
    """The array checked element by element, wherever the reply came from.

    Raises:
        ModelError: schema_mismatch, with a message for the model that names the element and what it must be.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_ACTIONS:
        raise _mismatch(f"it must be an array of one to {MAX_ACTIONS} actions.")
    decision = Decision(actions=[_read_action(item, place) for place, item in enumerate(value, 1)], in_order=True)
    names = [action.name for action in decision.actions]
    if FINISH in names[:-1]:
        raise _mismatch(f"action {names.index(FINISH) + 1} is finish, and nothing may follow it.")
    if names[-1] == FINISH:
        decision.answer = _summary(decision.actions.pop())
    if answer_only and (decision.actions or decision.answer is None):
        raise _mismatch("no further action is possible: the array must hold finish alone.")
    return decision


def _read_action(item: Any, place: int) -> ToolCall:
    if not isinstance(item, dict) or set(item) != {"tool", "args"}:
        raise _mismatch(f'action {place} must be an object with exactly "tool" and "args".')
    if not isinstance(item["tool"], str) or not isinstance(item["args"], dict):
        raise _mismatch(f'action {place}: "tool" must be a name and "args" an object.')
    return ToolCall(name=item["tool"], arguments=item["args"])


def _summary(finish: ToolCall) -> str:
    summary = finish.arguments.get("summary")
    if set(finish.arguments) != {"summary"} or not isinstance(summary, str) or not summary.strip():
        raise _mismatch('finish takes exactly "summary", a text that is not empty.')
    return summary


def _mismatch(message: str) -> ModelError:
    return ModelError("schema_mismatch", message, detail=ACTION)
