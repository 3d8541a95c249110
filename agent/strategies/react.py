"""react: one JSON object a turn (progress_check, thought, action, final_answer), held to a schema where the server can.

The system message never changes within a run and the conversation only grows at its end.
"""

from __future__ import annotations

import json
from typing import Any

from agent.errors import ModelError
from agent.guards.evidence import has_evidence
from agent.llm.client import Ask, LLMClient
from agent.llm.replies import ACTION, TOOL_CALL
from agent.prompts import react as prompts
from agent.prompts.budget_line import BudgetLeft
from agent.state import AgentState, Message, ToolCall
from agent.strategies.answer_room import answer_chars
from agent.strategies.base import NO_REPLY, Decision, steps_of_turn
from agent.tools.registry import ToolRegistry

# Bounds on what a grammar may write: small models run on otherwise.
MAX_THOUGHT_CHARS = 160
MAX_LAST_THOUGHT_CHARS = 60  # the last call may be short of tokens, and nothing follows for a thought to plan
MAX_ANSWER_CHARS = 1500  # llama.cpp compiles repetitions below 2,000 only
_FIELDS = ("progress_check", "thought", "action", "final_answer")


class React:
    """One run's conversation under the JSON contract."""

    name = "react"

    def __init__(self, tools: ToolRegistry, max_completion_tokens: int) -> None:
        self.system_prompts = (prompts.system_prompt(tools.prose()),)
        self._messages: list[Message] = [Message(role="system", content=self.system_prompts[0])]
        self._tools = tuple(tools.native_tools())
        self._act = _turn_schema(tools.action_schema(), {"type": "null"})
        self._either = {"anyOf": [self._act, answer_schema(max_completion_tokens, MAX_THOUGHT_CHARS)]}

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """One turn: the tail of the conversation goes out, one JSON object comes back."""
        tail = Message(role="user", content=self._tail(state, llm.budget_left(), answer_only=answer_only))
        messages = (*self._messages, tail)
        if answer_only:
            schema = answer_schema(llm.answer_cap(messages), MAX_LAST_THOUGHT_CHARS)
            ask = Ask(messages, "answer", schema=schema, tools=self._tools, send_tools=False, phase="answer")
        else:
            schema = self._act if _must_act(state) else self._either
            ask = Ask(messages, "act", schema=schema, tools=self._tools, send_tools=False, phase="turn")
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
        steps = steps_of_turn(state)
        if not steps:
            return prompts.task_message(state.turn_text, left, answer_only=answer_only)
        return prompts.observation_message(steps[-1], left, answer_only=answer_only)

    def _grow(self, tail: Message, reply: str | None) -> None:
        self._messages += [tail, Message(role="assistant", content=reply or NO_REPLY)]


def _must_act(state: AgentState) -> bool:
    """Whether the schema offers nothing but an action: after a rejected answer, until an action has succeeded."""
    rejected = any(event.guard == "evidence" for step in state.steps for event in step.guards)
    return rejected and not has_evidence(state)


def answer_schema(max_completion_tokens: int, max_thought_chars: int) -> dict[str, Any]:
    """The turn that answers, with as much room as the completion cap leaves beside a thought of that many digits."""
    chars = answer_chars(max_completion_tokens - max_thought_chars, MAX_ANSWER_CHARS)
    return _turn_schema({"type": "null"}, _text(chars), max_thought_chars)


def _text(max_length: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": max_length}


def _turn_schema(
    action: dict[str, Any], final_answer: dict[str, Any], max_thought_chars: int = MAX_THOUGHT_CHARS
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "progress_check": {"enum": list(prompts.PROGRESS_WORDS)},
            "thought": _text(max_thought_chars),
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
        is_call = "name" in unknown and not {"arguments", "parameters"}.isdisjoint(unknown)
        detail = TOOL_CALL if is_call else None
        raise _mismatch(f"unknown field {unknown[0]!r:.60}; the fields are {', '.join(_FIELDS)}.", detail)
    action, answer = value.get("action"), value.get("final_answer")
    if (action is None) == (answer is None):
        raise _mismatch('exactly one of "action" and "final_answer" must be given, the other null.')
    decision = Decision()
    if action is not None:
        decision.actions = [_read_action(action)]
    else:
        decision.answer, decision.repairs = _read_answer(answer)
    _read_reflection(value, decision)
    return decision


def _read_reflection(value: dict[str, Any], decision: Decision) -> None:
    """The fields that nothing is carried out from: what to do is clear without them, and no call is lost for them."""
    progress, thought = value.get("progress_check"), value.get("thought")
    if progress in prompts.PROGRESS_WORDS:
        decision.progress_check = progress
    else:
        decision.repairs = [*decision.repairs, "progress_check"]
    if isinstance(thought, str):
        decision.thought = thought
    else:
        decision.repairs = [*decision.repairs, "thought"]


def _read_action(action: Any) -> ToolCall:
    if not isinstance(action, dict) or set(action) != {"tool", "args"}:
        raise _mismatch('"action" must be an object with exactly "tool" and "args".', ACTION)
    if not isinstance(action["tool"], str) or not isinstance(action["args"], dict):
        raise _mismatch('"tool" must be a name and "args" an object.', ACTION)
    return ToolCall(name=action["tool"], arguments=action["args"])


def _read_answer(answer: Any) -> tuple[str, list[str]]:
    if isinstance(answer, str):
        if not answer.strip():
            raise _mismatch('"final_answer" must not be empty.')
        return answer, []
    # A model asked for JSON may put the value itself here instead of its text; nothing is lost by writing it out.
    return json.dumps(answer, ensure_ascii=False), ["answer_as_json"]


def _mismatch(message: str, detail: str | None = None) -> ModelError:
    return ModelError("schema_mismatch", message, detail=detail)
