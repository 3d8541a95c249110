"""SYNTHESIZE: the answer as plain text, held to the numbers that it may say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from agent.errors import ModelError
from agent.guards.grounding import unfounded_numbers
from agent.llm.client import LLMClient
from agent.prompts import pipeline as prompts
from agent.state import AgentState, GuardEvent
from agent.strategies.base import Decision
from agent.strategies.conversation import Conversation


def ask_answer(talk: Conversation, llm: LLMClient, text: str, sources: Sequence[str], noted: Decision) -> str:
    """The answer; asked for once more where it says numbers that no source does and the budget pays for that.

    Without sources an answer is free to say any. What was unfounded is noted, each time.

    Raises:
        ModelError: there is no usable answer.
        BudgetExceededError: nothing was sent.
    """
    reply = talk.ask(llm, text, "answer", phase="answer")
    noted.thinking = reply.thinking
    answer = str(reply.answer)
    numbers = _unfounded(answer, sources, noted)
    if numbers and talk.can_answer(llm, again := prompts.unfounded(numbers)):
        with suppress(ModelError):  # then the answer that there is stands
            answer = str(talk.ask(llm, again, "answer", phase="answer").answer)
            _unfounded(answer, sources, noted)
    return answer


def said_so_far(state: AgentState) -> list[str]:
    """What an answer may rest on: the user's words and what the tools gave, over the whole run."""
    results = [result for step in state.steps for result in step.results]
    given = [result.data if result.success else result.error or "" for result in results]
    return [state.task, *state.follow_ups, *given]


def _unfounded(answer: str, sources: Sequence[str], noted: Decision) -> list[str]:
    numbers = unfounded_numbers(answer, sources) if sources else []
    if numbers:
        message = f"the answer says {', '.join(numbers)}, and no result and no word of the user does"
        noted.events.append(GuardEvent(guard="unfounded_numbers", tier=0, message=message))
    return numbers
