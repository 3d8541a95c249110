"""A conversation with the model that only grows at its end, so that a server's prefix cache holds what came before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.errors import ModelError
from agent.llm.client import Ask, LLMClient
from agent.llm.replies import TOOL_CALL, Reply
from agent.prompts.budget_line import budget_line
from agent.state import AgentState, Message, Purpose, StepRecord
from agent.strategies.base import NO_REPLY


class Conversation:
    """One system message and what was said after it. A strategy may hold several in one run.

    `tools` are those that the run has, for a conversation of answers: a call in one is told from words.
    """

    def __init__(self, system: str, tools: Sequence[dict[str, Any]] = ()) -> None:
        self._messages = [Message(role="system", content=system)]
        self._tools = tuple(tools) or None
        self._heard = 0  # steps of the run

    def ask(
        self,
        llm: LLMClient,
        text: str,
        purpose: Purpose,
        *,
        phase: str,
        schema: dict[str, Any] | None = None,
        as_text: bool = False,
        stream: bool = False,
    ) -> Reply:
        """The reply to `text`, which goes out with the budget line under it. Both are kept, whatever the reply is.

        Raises:
            ModelError: the reply cannot be used.
            OnlyAnswerLeftError, BudgetExceededError: nothing was sent, and nothing is kept.
        """
        tail = self._tail(llm, text)
        try:
            reply = llm.chat(
                Ask(
                    (*self._messages, tail),
                    purpose,
                    schema=schema,
                    tools=self._tools,
                    send_tools=False,
                    stream=stream,
                    phase=phase,
                    as_text=as_text,
                )
            )
        except ModelError:
            self._keep(llm, tail)
            raise
        self._keep(llm, tail)
        if reply.calls:
            raise no_more_calls()
        return reply

    def note(self, llm: LLMClient, text: str, answer: str) -> None:
        """Keep `text` as if it had been asked, with the answer that was given without asking."""
        self._grow(self._tail(llm, text), answer)

    def unheard(self, steps: Sequence[StepRecord]) -> list[StepRecord]:
        """Those of the steps that were not yet done when it was last asked."""
        return [step for step in steps if step.index >= self._heard]

    def can_answer(self, llm: LLMClient, text: str) -> bool:
        """Whether an answer to `text` could be paid for now."""
        return llm.answer_cap((*self._messages, self._tail(llm, text))) > 0

    @staticmethod
    def _tail(llm: LLMClient, text: str) -> Message:
        return Message(role="user", content=f"{text}\n{budget_line(llm.budget_left())}")

    def _keep(self, llm: LLMClient, tail: Message) -> None:
        self._grow(tail, llm.last_content)
        self._heard = llm.step

    def _grow(self, tail: Message, reply: str | None) -> None:
        self._messages += [tail, Message(role="assistant", content=reply or NO_REPLY)]


def no_more_calls() -> ModelError:
    """The error for a tool call where only an answer was asked for."""
    return ModelError("schema_mismatch", "it is a tool call, and none can be made any more", detail=TOOL_CALL)


def earlier_turns(state: AgentState) -> list[tuple[str, str]]:
    """What the user said before this turn, each with its answer."""
    answers = {step.turn: step.answer for step in state.steps if step.answer is not None}
    asked = [state.task, *state.follow_ups]
    return [(asked[turn], answer) for turn, answer in sorted(answers.items())]
