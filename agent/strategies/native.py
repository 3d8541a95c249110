"""native: the server is given the tools' definitions and finds the calls in the replies itself.

One conversation, which only grows at its end. Where the server says that the model cannot call tools, the definitions
stand in the system message instead and the calls are read from the text: so the strategy can be measured everywhere,
and its first step says what was done.
"""

from __future__ import annotations

from agent.errors import BackendError, ModelError
from agent.llm.client import Ask, LLMClient
from agent.llm.replies import Reply
from agent.llm.thinking import split_thinking
from agent.prompts import native as prompts
from agent.prompts.budget_line import BudgetLeft
from agent.state import AgentState, GuardEvent, Message, ToolFault
from agent.strategies.base import NO_REPLY, Decision, steps_of_turn
from agent.strategies.conversation import no_more_calls
from agent.tools.registry import ToolRegistry

MAX_ROUNDS = 5  # of tool calls in one of the user's turns; then an answer is asked for
FALLBACK = "native_fallback"
_IN_PROMPT = "this model cannot call tools by itself: they stand in the prompt, and calls are read from the text"
_TOOLS_REFUSED = "the server takes no tools with this model; --strategy auto does without"


class Native:
    """One run's conversation with tools."""

    name = "native"

    def __init__(self, tools: ToolRegistry, _max_completion_tokens: int) -> None:
        self._tools = tuple(tools.native_tools()) or None  # one object for the whole run: the client hashes it once
        self.system_prompts = (prompts.system_prompt(), prompts.system_prompt_with_tools(self._tools or ()))
        self._messages: list[Message] = []
        self._in_prompt = False
        self._events: list[GuardEvent] = []

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """One call with the tools; without them where only an answer may follow."""
        if not self._messages:
            self._open(in_prompt=state.model.tools is False)
        final = answer_only or sum(bool(step.actions) for step in steps_of_turn(state)) >= MAX_ROUNDS
        tail = self._tail(state, llm.budget_left(), final=final)
        try:
            reply = self._ask(llm, (*self._messages, *tail), final=final)
        except ModelError as error:
            self._grow(tail, _text(llm))
            return Decision(refused=[error], events=self._told())
        if final and reply.calls:
            self._grow(tail, _text(llm))
            return Decision(thinking=reply.thinking, refused=[no_more_calls()], events=self._told())
        self._grow(tail, self._said(reply, llm))
        return self._decision(reply, llm)

    def _open(self, *, in_prompt: bool) -> None:
        self._in_prompt = in_prompt
        self._messages = [Message(role="system", content=self.system_prompts[in_prompt])]
        self._events = [GuardEvent(guard=FALLBACK, tier=0, message=_IN_PROMPT)] if in_prompt else []

    def _told(self) -> list[GuardEvent]:
        events, self._events = self._events, []
        return events

    def _ask(self, llm: LLMClient, messages: tuple[Message, ...], *, final: bool) -> Reply:
        try:
            return llm.chat(
                Ask(
                    messages,
                    "answer" if final else "act",
                    tools=self._tools,
                    send_tools=not (final or self._in_prompt),
                    stream=True,
                    phase="answer" if final else "turn",
                )
            )
        except BackendError as error:
            if error.error_type != "tools_unsupported":
                raise
            raise BackendError("tools_unsupported", f"{error}; {_TOOLS_REFUSED}", detail=error.detail) from error

    # -- the conversation ---------------------------------------------------------------------------------------

    def _tail(self, state: AgentState, left: BudgetLeft, *, final: bool) -> list[Message]:
        """What the model has not heard yet, its last line the budget: in the roles in which the server expects it."""
        steps = steps_of_turn(state)
        if not steps:
            return [Message(role="user", content=prompts.with_tail([state.turn_text], left, final=final))]
        step, calls = steps[-1], self._messages[-1].tool_calls
        notes = prompts.notes(step, without=FALLBACK)
        if not calls:
            results = [prompts.told_result(*pair) for pair in zip(step.actions, step.results, strict=True)]
            return [Message(role="user", content=prompts.with_tail([*results, *notes], left, final=final))]
        texts = [prompts.result_text(result) for result in step.results]
        # Some templates take no user message between the results and the reply.
        texts[-1] = prompts.with_tail([texts[-1], *notes], left, final=final)
        return [
            Message(role="tool", content=text, tool_name=call.name, tool_call_id=call.id)
            for text, call in zip(texts, calls, strict=True)
        ]

    def _grow(self, tail: list[Message], said: Message) -> None:
        self._messages += [*tail, said]

    def _said(self, reply: Reply, llm: LLMClient) -> Message:
        """The reply as it stands in the conversation: a call found in the text becomes one like the server's own."""
        if not reply.calls or self._in_prompt:
            return _text(llm)
        commentary = (llm.last_content or "") if reply.source == "native" else ""
        return Message(role="assistant", content=commentary, tool_calls=reply.calls)

    def _decision(self, reply: Reply, llm: LLMClient) -> Decision:
        in_text: list[ToolFault] = ["in_text" for _ in reply.calls if reply.source == "text" and not self._in_prompt]
        return Decision(
            actions=reply.calls,
            answer=reply.answer,
            thought=split_thinking(llm.last_content or "")[1] if reply.source == "native" else "",
            thinking=reply.thinking,
            repairs=list(reply.repairs),
            refused=reply.faults,
            events=self._told(),
            tool_faults=in_text,
        )


def _text(llm: LLMClient) -> Message:
    """What the model said, as it came; a message must not be empty, or some templates leave it out."""
    said = llm.last_content or ""
    return Message(role="assistant", content=said if said.strip() else NO_REPLY)
