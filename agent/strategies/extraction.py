"""EXTRACT: the arguments of one tool, from a conversation about nothing else. A try is told why the last one failed."""

from __future__ import annotations

from agent.errors import ModelError
from agent.llm.arguments import read_arguments
from agent.llm.client import LLMClient
from agent.prompts import pipeline as prompts
from agent.state import GuardEvent, ToolCall
from agent.strategies.base import Decision
from agent.strategies.conversation import Conversation
from agent.strategies.routing import note_fault
from agent.tools.registry import ToolRegistry

MAX_TRIES = 3


def ask_arguments(
    talk: Conversation,
    llm: LLMClient,
    text: str,
    name: str,
    tools: ToolRegistry,
    noted: Decision,
    *,
    tries: int = MAX_TRIES,
) -> ToolCall | None:
    """The call of an offered tool, or None where no try gave arguments for it. Each try that failed is noted.

    Raises:
        OnlyAnswerLeftError, BudgetExceededError: no (further) try was sent.
    """
    parameters = tools.parameters(name) or {}
    for _ in range(tries):
        try:
            reply = talk.ask(llm, text, "act", phase="extract", schema=tools.arguments_schema(name), as_text=True)
            finish = "length" if reply.is_cut else None
            read = read_arguments(reply.answer, parameters, tool=name, finish=finish)
        except ModelError as error:
            note_fault(noted, error)
            noted.events.append(GuardEvent(guard="extract", tier=0, message=f"arguments of {name}: {error}"))
            text = prompts.extract_again(str(error))
            continue
        noted.thinking = reply.thinking
        noted.repairs += [*reply.repairs, *read.repairs]
        return ToolCall(name=name, arguments=read.arguments)
    return None
