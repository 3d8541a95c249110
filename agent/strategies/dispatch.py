"""dispatch: the host owns control, and asks the model one small thing at a time.

Guard (is there code in the message?) -> fast path (arithmetic, clock: no model call) | probe (which tool, if any?) ->
extraction (its arguments, from a conversation of that alone) -> the loop runs it -> synthesis (the answer, with the
result at the tail). At most one tool answers a turn of the user's: what takes several is for other strategies.

Only the synthesis goes on from turn to turn; what the host answered stands in it as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.guards.code_guard import holds_code, only_discusses_code
from agent.llm.client import LLMClient
from agent.prompts import dispatch as prompts
from agent.prompts.pipeline import extract_again
from agent.state import AgentState, GuardEvent, StepRecord, ToolCall, ToolResult
from agent.strategies.base import Decision, steps_of_turn
from agent.strategies.conversation import Conversation, earlier_turns
from agent.strategies.extraction import ask_arguments
from agent.strategies.fast_path import CALCULATOR, fast_call, host_answer, previous_number
from agent.strategies.keyword_router import KeywordRouter
from agent.strategies.probe import probe
from agent.strategies.routing import LEAST_FOR_TOOL, payable_calls
from agent.tools.registry import ToolRegistry

FAST_PATH = "fast_path"
MAX_EXTRACTIONS = 2  # tries in all for one turn's arguments
_REFUSED_ARGUMENTS = frozenset({"bad_args", "not_arithmetic", "prompt_bleed"})
_REFERS_BACK = re.compile(
    r"\b(?:it|its|that|this|these|those|them|same|again|there|previous|above|earlier|(?:the|your) (?:result|answer))\b",
    re.IGNORECASE,
)


class Dispatch:
    """One run: the conversation that answers, and what is known of the user's turn under way."""

    name = "dispatch"

    def __init__(self, tools: ToolRegistry, max_completion_tokens: int) -> None:  # noqa: ARG002  every strategy's form
        self._probe_system = prompts.probe_system(tools.headlines())
        self._extract_systems = {name: prompts.extract_system(tools.prose_of(name)) for name in tools.names}
        self.system_prompts = (self._probe_system, *self._extract_systems.values(), prompts.ANSWER_SYSTEM)
        self._tools, self._keywords = tools, KeywordRouter(tools)
        self._answers = Conversation(prompts.ANSWER_SYSTEM, tools.native_tools())
        self._extraction: Conversation | None = None
        self._wanted: str | None = None  # the tool that this turn needs
        self._asked_turn: int | None = None  # the last turn that the model was asked to answer
        self._noted = Decision()  # what the step under way has to tell beside its action or answer

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """The tool call that answers the turn, or its answer."""
        steps = steps_of_turn(state)
        used = _used(steps)
        if used is not None and used[1].success and any(event.guard == FAST_PATH for event in steps[-1].guards):
            return self._decided(answer=self._host_answer(state, llm, used))
        if not answer_only and self._asked_turn != state.turn:
            call = self._mended_call(llm, steps) if steps else self._first_call(state, llm)
            if call is not None:
                return self._decided(call=call)
        return self._decided(answer=self._answer(state, llm, steps, answer_only=answer_only))

    # -- which call -----------------------------------------------------------------------------------------------

    def _first_call(self, state: AgentState, llm: LLMClient) -> ToolCall | None:
        text = state.turn_text
        self._extraction = self._wanted = None
        has_code = holds_code(text)
        if not has_code and (call := fast_call(text, previous_number(state), self._tools.names)) is not None:
            self._note(FAST_PATH, f"the message is a question for {call.name} and nothing else; no model is asked")
            return call
        if has_code:
            self._note("code_guard", f"the message holds source code: {CALCULATOR} is not offered for it")
        self._wanted = None if has_code and only_discusses_code(text) else self._route(state, llm, has_code=has_code)
        if self._wanted is None:
            return None
        self._extraction = Conversation(self._extract_systems[self._wanted])
        earlier = _last_turn(state) if _REFERS_BACK.search(text) else None
        return self._extract(llm, prompts.extract_message(text, earlier, self._wanted), MAX_EXTRACTIONS)

    def _route(self, state: AgentState, llm: LLMClient, *, has_code: bool) -> str | None:
        """The tool that the message needs: the model's word, or the message's own where there is none of the model."""
        by_words = None if has_code else self._keywords.route(state.turn_text)
        left = payable_calls(state, llm.budget_left())
        if left == LEAST_FOR_TOOL:
            self._note("keyword_route", f"calls left: {left}; no probe, by the words: {by_words or prompts.NO_TOOL}")
            return by_words
        offered = [name for name in self._tools.names if not (has_code and name == CALCULATOR)]
        text = prompts.probe_message(state.turn_text, _last_turn(state), has_code=has_code)
        return probe(Conversation(self._probe_system), llm, text, offered, by_words, self._noted)

    def _mended_call(self, llm: LLMClient, steps: Sequence[StepRecord]) -> ToolCall | None:
        """The call again, where its tool refused the arguments and the turn has a try left."""
        used, tries = _used(steps), sum(len(step.actions) for step in steps)
        if self._extraction is None or used is None or tries >= MAX_EXTRACTIONS:
            return None
        if used[1].error_type not in _REFUSED_ARGUMENTS:
            return None
        return self._extract(llm, extract_again(used[1].error or ""), MAX_EXTRACTIONS - tries)

    def _extract(self, llm: LLMClient, text: str, tries: int) -> ToolCall | None:
        assert self._extraction is not None and self._wanted is not None  # noqa: S101, PT018  set together, for mypy
        return ask_arguments(self._extraction, llm, text, self._wanted, self._tools, self._noted, tries=tries)

    # -- the answer -----------------------------------------------------------------------------------------------

    def _host_answer(self, state: AgentState, llm: LLMClient, used: tuple[ToolCall, ToolResult]) -> str:
        answer = host_answer(*used)
        self._answers.note(llm, prompts.answer_message(state.turn_text, used), answer)
        return answer

    def _answer(self, state: AgentState, llm: LLMClient, steps: Sequence[StepRecord], *, answer_only: bool) -> str:
        used = _used(steps)
        lacks_result = used is None and (answer_only or self._wanted is not None)
        text = prompts.answer_message(state.turn_text, used, lacks_result=lacks_result)
        if self._asked_turn == state.turn:
            said = [*steps[-1].faults, *(event.message for event in steps[-1].guards if event.guard == "evidence")]
            text = prompts.answer_again(" ".join(said))
        self._asked_turn = state.turn
        reply = self._answers.ask(llm, text, "answer", phase="answer", stream=True)
        self._noted.thinking = reply.thinking
        self._noted.repairs += reply.repairs
        return str(reply.answer)

    # -- small things ---------------------------------------------------------------------------------------------

    def _note(self, guard: str, message: str) -> None:
        self._noted.events.append(GuardEvent(guard=guard, tier=0, message=message))

    def _decided(self, *, call: ToolCall | None = None, answer: str | None = None) -> Decision:
        """The decision with all that was noted on the way to it."""
        decision, self._noted = self._noted, Decision()
        decision.actions, decision.answer = [call] if call else [], answer
        return decision


def _used(steps: Sequence[StepRecord]) -> tuple[ToolCall, ToolResult] | None:
    """The turn's last call with its result. One that was not made again brought none."""
    pairs = [pair for step in steps for pair in zip(step.actions, step.results, strict=True)]
    made = [(call, result) for call, result in pairs if result.error_type != "repeated"]
    return made[-1] if made else None


def _last_turn(state: AgentState) -> tuple[str, str] | None:
    turns = earlier_turns(state)
    return turns[-1] if turns else None
