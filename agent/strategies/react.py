"""react: one JSON object a turn (progress_check, thought, action, final_answer), held to a schema where the server can.

The system message never changes within a run and the conversation only grows at its end.
"""

from __future__ import annotations

import json
from typing import Any

from agent.errors import ModelError
from agent.guards.evidence import has_evidence
from agent.llm.client import Ask, LLMClient
from agent.prompts import react as prompts
from agent.prompts.budget_line import BudgetLeft
from agent.state import AgentState, Message, ToolCall
from agent.strategies.base import Decision
from agent.tools.registry import ToolRegistry

# Bounds on what a grammar may write: small models run on otherwise, often in digits at a token each. An answer may
# take what the completion cap leaves beside the rest of the object, at 2.5 characters a token (English has about 4).
MAX_THOUGHT_CHARS = 160
REST_OF_TURN_TOKENS = 150
ANSWER_CHARS_PER_TOKEN = 2.5
MIN_ANSWER_CHARS = 200
MAX_ANSWER_CHARS = 1500  # llama.cpp compiles repetitions below 2,000 only
NO_REPLY = "(no usable reply)"
_FIELDS = ("progress_check", "thought", "action", "final_answer")


class React:
    """One run's conversation under the JSON contract."""

    name = "react"

    def __init__(self, tools: ToolRegistry, max_completion_tokens: int) -> None:
        self.system_prompt = prompts.system_prompt(tools.prose())
        self._messages: list[Message] = [Message(role="system", content=self.system_prompt)]
        acting = _turn_schema(tools.action_schema(), {"type": "null"})
        answering = _turn_schema({"type": "null"}, _text(answer_chars(max_completion_tokens)))
        self._schemas: dict[str, dict[str, Any]] = {
            "act": acting,
            "answer": answering,
            "either": {"anyOf": [acting, answering]},
        }

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """One turn: the tail of the conversation goes out, one JSON object comes back."""
        tail = Message(role="user", content=self._tail(state, llm.budget_left(), answer_only=answer_only))
        ask = Ask(
            messages=(*self._messages, tail),
            purpose="answer" if answer_only else "act",
            schema=self._schemas[_allowed(state, answer_only=answer_only)],
        )
        try:
            reply = llm.chat(ask)
        except ModelError:
            self._grow(tail, llm.last_content)
            raise
        self._grow(tail, llm.last_content)
        decision = read_turn(reply.answer)
        decision.thinking = reply.thinking
        decision.repairs = [*reply.repairs, *decision.repairs]
        return decision

    def _tail(self, state: AgentState, left: BudgetLeft, *, answer_only: bool) -> str:
        if not state.steps:
            return prompts.task_message(state.task, left, answer_only=answer_only)
        return prompts.observation_message(state.steps[-1], left, answer_only=answer_only)

    def _grow(self, tail: Message, reply: str | None) -> None:
        self._messages += [tail, Message(role="assistant", content=reply or NO_REPLY)]


def _allowed(state: AgentState, *, answer_only: bool) -> str:
    """Which kind of turn the schema offers: after a rejected answer, only an action, until one has succeeded."""
    if answer_only:
        return "answer"
    rejected = any(event.guard == "evidence" for step in state.steps for event in step.guards)
    return "act" if rejected and not has_evidence(state) else "either"


def answer_chars(max_completion_tokens: int) -> int:
    """How long a final answer a grammar admits under a completion cap."""
    room = int((max_completion_tokens - REST_OF_TURN_TOKENS) * ANSWER_CHARS_PER_TOKEN)
    return min(max(MIN_ANSWER_CHARS, room), MAX_ANSWER_CHARS)


def _text(max_length: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": max_length}


def _turn_schema(action: dict[str, Any], final_answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "progress_check": {"enum": list(prompts.PROGRESS_WORDS)},
            "thought": _text(MAX_THOUGHT_CHARS),
            "action": action,
            "final_answer": final_answer,
        },
        "required": list(_FIELDS),
        "additionalProperties": False,
    }


def read_turn(value: Any) -> Decision:
    """The contract checked field by field, wherever the reply came from.

    Raises:
        ModelError: schema_mismatch, with a message for the model that names the field and what it must be.
    """
    if not isinstance(value, dict):
        raise _mismatch("it must be one JSON object.")
    if unknown := sorted(set(value) - set(_FIELDS)):
        raise _mismatch(f"unknown field {unknown[0]!r:.60}; the fields are {', '.join(_FIELDS)}.")
    progress, thought = value.get("progress_check"), value.get("thought", "")
    if progress is not None and progress not in prompts.PROGRESS_WORDS:
        raise _mismatch(f'"progress_check" must be one of {", ".join(prompts.PROGRESS_WORDS)}.')
    if not isinstance(thought, str):
        raise _mismatch('"thought" must be a text.')
    action, answer = value.get("action"), value.get("final_answer")
    if (action is None) == (answer is None):
        raise _mismatch('exactly one of "action" and "final_answer" must be given, the other null.')
    decision = Decision(progress_check=progress, thought=thought)
    if action is not None:
        decision.actions = [_read_action(action)]
    else:
        decision.answer, decision.repairs = _read_answer(answer)
    return decision


def _read_action(action: Any) -> ToolCall:
    if not isinstance(action, dict) or set(action) != {"tool", "args"}:
        raise _mismatch('"action" must be an object with exactly "tool" and "args".')
    if not isinstance(action["tool"], str) or not isinstance(action["args"], dict):
        raise _mismatch('"tool" must be a name and "args" an object.')
    return ToolCall(name=action["tool"], arguments=action["args"])


def _read_answer(answer: Any) -> tuple[str, list[str]]:
    if isinstance(answer, str):
        if not answer.strip():
            raise _mismatch('"final_answer" must not be empty.')
        return answer, []
    # A model asked for JSON may put the value itself here instead of its text; nothing is lost by writing it out.
    return json.dumps(answer, ensure_ascii=False), ["answer_as_json"]


def _mismatch(message: str) -> ModelError:
    return ModelError("schema_mismatch", message)
