"""two_phase: a call that thinks freely and stops at `</think>`, then one that goes on from it and only writes actions.

The thinking then leaves the conversation, which is a chronicle in plain English and only grows at its end. A step costs
two calls: of ten, eight pay for four steps, and two for a last thought and the answer that follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.errors import ModelError
from agent.llm.client import Ask, LLMClient
from agent.llm.replies import CUT_THINKING, NATIVE_BESIDE_THINKING
from agent.prompts import two_phase as prompts
from agent.state import AgentState, GuardEvent, Message
from agent.strategies.action_array import finish_form, read_actions
from agent.strategies.base import Decision, steps_of_turn
from agent.tools.registry import MAX_ACTIONS, ToolRegistry


@dataclass(frozen=True)
class Thought:
    """What was thought about the user message `tail`; paid for, and not yet acted upon."""

    tail: Message
    text: str
    events: list[GuardEvent] = field(default_factory=list)


class TwoPhase:
    """One run's conversation: what the user and the tools said, and what the model set out to do."""

    name = "two_phase"

    def __init__(self, tools: ToolRegistry, max_completion_tokens: int) -> None:
        self.system_prompts = (prompts.system_prompt(tools.prose(), MAX_ACTIONS),)
        self._messages: list[Message] = [Message(role="system", content=self.system_prompts[0])]
        self._tools = tuple(tools.native_tools()) or None
        self._actions = tools.actions_schema(MAX_ACTIONS, extra=(finish_form(max_completion_tokens),))
        self._thought: Thought | None = None
        self._would_finish = False

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """One step: think, then act. The answer that is left asks for no thinking, but uses what was just paid for."""
        if answer_only:
            return self._answer(state, llm)
        self._thought = self._think(state, llm)
        return self._act(state, llm, self._thought)

    def _think(self, state: AgentState, llm: LLMClient) -> Thought:
        tail = self._tail(state, llm, prompts.THINK_NOW)
        stop = (prompts.THINK_END,)
        ask = Ask((*self._messages, tail), "act", stream=True, phase="think", stop=stop, thinks=True)
        try:
            reply = llm.chat(ask)
        except ModelError:  # actions may come without it
            return Thought(tail, "", [_event(prompts.NO_THINKING)])
        events = [_event(prompts.THINKING_CUT)] if CUT_THINKING in reply.repairs else []
        events += [_event(prompts.CALL_BESIDE_THINKING)] if NATIVE_BESIDE_THINKING in reply.repairs else []
        return Thought(tail, reply.thinking, events)

    def _act(self, state: AgentState, llm: LLMClient, thought: Thought) -> Decision:
        continues = state.model.continues
        if continues:
            rest = [Message(role="assistant", content=prompts.open_thinking(thought.text))]
        else:
            rest = _closed(thought, prompts.ACT_NOW, llm)
        messages = (*self._messages, thought.tail, *rest)
        ask = Ask(
            messages,
            "act",
            schema=self._actions,
            tools=self._tools,
            send_tools=False,
            phase="act",
            continues=continues,
        )
        return self._carried_out(ask, llm, thought)

    def _answer(self, state: AgentState, llm: LLMClient) -> Decision:
        thought = self._thought
        if thought is None:
            thought = Thought(self._tail(state, llm, prompts.ANSWER_NOW), "")
            messages = (*self._messages, thought.tail)
        else:
            messages = (*self._messages, thought.tail, *_closed(thought, prompts.ANSWER_NOW, llm))
        schema = {"type": "array", "items": finish_form(llm.answer_cap(messages)), "minItems": 1, "maxItems": 1}
        return self._carried_out(Ask(messages, "answer", schema=schema, phase="answer"), llm, thought)

    def _carried_out(self, ask: Ask, llm: LLMClient, thought: Thought) -> Decision:
        """The decision of a reply. Whatever it is, the thinking leaves the conversation."""
        try:
            reply = llm.chat(ask)
            decision = read_actions(reply.answer, answer_only=ask.purpose == "answer")
        except ModelError as error:
            self._grow(thought, prompts.NO_ACTIONS)
            return Decision(thinking=thought.text, refused=[error], events=thought.events)
        self._grow(thought, prompts.intention(decision.actions, decision.answer))
        self._would_finish = decision.answer is not None
        decision.thinking = "\n".join(part for part in (thought.text, reply.thinking) if part)
        decision.repairs, decision.events = reply.repairs, thought.events
        return decision

    def _grow(self, thought: Thought, done: str) -> None:
        self._messages += [thought.tail, Message(role="assistant", content=done)]
        self._thought, self._would_finish = None, False

    def _tail(self, state: AgentState, llm: LLMClient, instruction: str) -> Message:
        """What came of the last step, and a task that is new. The step that ended the user's last turn counts too."""
        parts = []
        if state.steps:
            parts += prompts.chronicle(state.steps[-1])
            is_void = self._would_finish and any(not result.success for result in state.steps[-1].results)
            parts += [prompts.FINISH_IS_VOID] if is_void else []
        if not steps_of_turn(state):
            parts.append(prompts.task(state.turn_text))
        return Message(role="user", content=prompts.user_message(parts, instruction, llm.budget_left()))


def _event(message: str) -> GuardEvent:
    return GuardEvent(guard="thinking", tier=0, message=message)


def _closed(thought: Thought, instruction: str, llm: LLMClient) -> list[Message]:
    """The thinking as a turn of its own and what to write after it."""
    told = prompts.user_message([], instruction, llm.budget_left())
    return [
        Message(role="assistant", content=prompts.closed_thinking(thought.text)),
        Message(role="user", content=told),
    ]
