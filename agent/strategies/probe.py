"""PROBE: one small question on its own, whether a message needs a tool and which; where the reply is nonsense its words
decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.errors import ModelError, ToolCallError
from agent.llm.client import LLMClient
from agent.prompts.dispatch import NO_TOOL
from agent.state import GuardEvent
from agent.strategies.base import Decision
from agent.strategies.conversation import Conversation
from agent.strategies.routing import note_fault


def probe(
    talk: Conversation, llm: LLMClient, text: str, offered: Sequence[str], by_words: str | None, noted: Decision
) -> str | None:
    """The offered tool that the model chose, None where it chose none; `by_words`, noted, where it says neither.

    Raises:
        OnlyAnswerLeftError, BudgetExceededError: nothing was sent.
    """
    choices = [*offered, NO_TOOL]
    try:
        reply = talk.ask(llm, text, "act", phase="probe", schema=_schema(choices))
        chosen = _chosen(reply.answer, choices)
    except ModelError as error:
        note_fault(noted, error)
        fallback = f"{error}; by the words of the message: {by_words or NO_TOOL}"
        noted.events.append(GuardEvent(guard="keyword_route", tier=0, message=fallback))
        return by_words
    noted.repairs += reply.repairs
    return chosen


def _schema(choices: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"tool": {"enum": list(choices)}},
        "required": ["tool"],
        "additionalProperties": False,
    }


def _chosen(value: Any, choices: Sequence[str]) -> str | None:
    name = value.get("tool")
    if not isinstance(name, str):
        raise ModelError("schema_mismatch", 'the reply gives no "tool"')
    if name not in choices:
        raise ToolCallError("unknown_tool", f"the reply chooses {name[:40]!r}, which is not offered", tool=name)
    return None if name == NO_TOOL else name
