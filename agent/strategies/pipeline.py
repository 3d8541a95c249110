"""pipeline: for models without tool support, one small question a call.

ROUTE (which tool, or none) -> EXTRACT (its arguments, up to three tries) -> EXECUTE (the loop's) -> and again, until
the router has enough -> SYNTHESIZE. Each kind of question has a conversation of its own, whose head never changes.
A budget that cannot pay the whole cascade shortens it, and the trace says where.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.errors import OnlyAnswerLeftError
from agent.guards.evidence import has_evidence
from agent.llm.client import LLMClient
from agent.prompts import pipeline as prompts
from agent.state import AgentState, GuardEvent, StepRecord, ToolCall
from agent.strategies.base import Decision, steps_of_turn
from agent.strategies.conversation import Conversation, earlier_turns
from agent.strategies.extraction import ask_arguments
from agent.strategies.keyword_router import KeywordRouter
from agent.strategies.routing import LEAST_FOR_TOOL, Route, ask_route, payable_calls
from agent.strategies.synthesis import ask_answer, said_so_far
from agent.tools.registry import ToolRegistry


class Pipeline:
    """One run's conversations: the router's, one a tool for its arguments, and the one that answers."""

    name = "pipeline"

    def __init__(self, tools: ToolRegistry, max_completion_tokens: int) -> None:  # noqa: ARG002  every strategy's form
        router, answerer = prompts.route_system(tools.headlines()), prompts.ANSWER_SYSTEM
        extractors = {name: prompts.extract_system(tools.prose_of(name)) for name in tools.names}
        self.system_prompts = (router, *extractors.values(), answerer)
        self._tools, self._keywords = tools, KeywordRouter(tools)
        self._router, self._answerer = Conversation(router), Conversation(answerer, tools.native_tools())
        self._extractors = {name: Conversation(system) for name, system in extractors.items()}
        self._noted = Decision()  # what the step under way has to tell beside its action or answer
        self._enough = False
        self._given_up: set[str] = set()  # tools whose arguments the model could not write, in this turn

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """The next tool call, or the answer."""
        steps = steps_of_turn(state)
        if not steps:
            self._given_up, self._enough = set(), False
        if answer_only:
            self._note("pipeline_shortened", "only an answer can be paid for: SYNTHESIZE with what there is")
        elif (name := self._next_tool(state, llm, steps)) is not None:
            return self._act(name, state, llm, steps)
        elif state.evidence and not has_evidence(state) and llm.budget_left().calls_left == 1:
            raise OnlyAnswerLeftError("calls", "an answer that is rejected could not be followed by another")
        return self._answer(state, llm, steps)

    # -- ROUTE and EXTRACT ----------------------------------------------------------------------------------------

    def _next_tool(self, state: AgentState, llm: LLMClient, steps: Sequence[StepRecord]) -> str | None:
        """The tool to use now; None where the answer comes next."""
        if steps and self._is_ready(state, steps[-1]):
            return None
        offered = [name for name in self._tools.names if name not in self._given_up]
        by_words = self._keywords.route(state.turn_text)
        if by_words not in offered or by_words in _succeeded(steps):
            by_words = None
        left = payable_calls(state, llm.budget_left())
        if left is not None and left <= LEAST_FOR_TOOL + (by_words is not None):
            instead = f"the words of the task choose {by_words}" if by_words else "SYNTHESIZE with what there is"
            self._note("pipeline_shortened", f"calls left: {left}; no ROUTE, {instead}")
            self._enough = True
            return by_words
        route = self._route(state, llm, steps, offered, by_words) if offered else Route(None, enough=True)
        self._enough = route.enough
        return route.tool

    def _is_ready(self, state: AgentState, last: StepRecord) -> bool:
        """Whether only the answer is to be asked for: all was found, the same came again, or an answer went wrong."""
        if last.actions:
            is_repeated = any(result.error_type == "repeated" for result in last.results)
            return is_repeated or (self._enough and all(result.success for result in last.results))
        return _was_answering(state, last) and not _was_rejected(last)

    def _route(
        self, state: AgentState, llm: LLMClient, steps: Sequence[StepRecord], offered: list[str], by_words: str | None
    ) -> Route:
        notes = [event.message for event in steps[-1].guards if event.guard == "replan"] if steps else []
        notes += [prompts.given_up(name) for name in self._tools.names if name in self._given_up]
        choices = [*offered, prompts.NO_TOOL]
        if steps and _was_rejected(steps[-1]):
            notes.append(prompts.MUST_USE_TOOL)
            choices = offered
        text = prompts.route_message(state.turn_text, earlier_turns(state), self._router.unheard(steps), notes)
        return ask_route(self._router, llm, text, choices, by_words, self._noted)

    def _act(self, name: str, state: AgentState, llm: LLMClient, steps: Sequence[StepRecord]) -> Decision:
        talk = self._extractors[name]
        text = prompts.extract_message(state.turn_text, earlier_turns(state), talk.unheard(steps), name)
        call = ask_arguments(talk, llm, text, name, self._tools, self._noted)
        if call is None:
            self._given_up.add(name)
        return self._decided(call=call)

    # -- SYNTHESIZE -----------------------------------------------------------------------------------------------

    def _answer(self, state: AgentState, llm: LLMClient, steps: Sequence[StepRecord]) -> Decision:
        text = prompts.answer_message(state.turn_text, steps)
        if steps and steps[-1].faults and _was_answering(state, steps[-1]):
            text = prompts.answer_again(steps[-1].faults[-1])
        sources = said_so_far(state) if any(step.results for step in steps) else []
        answer = ask_answer(self._answerer, llm, text, sources, self._noted)
        return self._decided(answer=answer)

    # -- small things ---------------------------------------------------------------------------------------------

    def _note(self, guard: str, message: str) -> None:
        self._noted.events.append(GuardEvent(guard=guard, tier=0, message=message))

    def _decided(self, *, call: ToolCall | None = None, answer: str | None = None) -> Decision:
        """The decision with all that was noted on the way to it."""
        decision, self._noted = self._noted, Decision()
        decision.actions, decision.answer = [call] if call else [], answer
        return decision


def _was_answering(state: AgentState, step: StepRecord) -> bool:
    return bool(step.calls) and state.calls[step.calls[-1]].phase == "answer"


def _was_rejected(step: StepRecord) -> bool:
    """Whether an answer was refused for want of a tool's result."""
    return any(event.guard == "evidence" for event in step.guards)


def _succeeded(steps: Sequence[StepRecord]) -> set[str]:
    pairs = [pair for step in steps for pair in zip(step.actions, step.results, strict=True)]
    return {call.name for call, result in pairs if result.success}
