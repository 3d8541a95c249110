"""auto: native where the model can call tools, pipeline where it cannot.

What the server says costs nothing and is asked first. Where it says nothing, the first native call doubles as the
probe. A server that refuses the tools all the same, at once or later, has been asked and paid for; the run goes on
without them, and pipeline begins with the steps that there are.
"""

from __future__ import annotations

from agent.errors import BackendError, ModelError, ToolCallError
from agent.llm.client import LLMClient
from agent.llm.tool_faults import fault_kind
from agent.state import AgentState, Chosen, ToolFault
from agent.strategies.base import Decision, Strategy
from agent.strategies.keyword_router import KeywordRouter
from agent.strategies.native import Native
from agent.strategies.pipeline import Pipeline
from agent.tools.registry import ToolRegistry


class Auto:
    """One run: the choice, and from then on the strategy that was chosen."""

    name = "auto"

    def __init__(self, tools: ToolRegistry, max_completion_tokens: int) -> None:
        self._native = Native(tools, max_completion_tokens)
        self._pipeline = Pipeline(tools, max_completion_tokens)
        self.system_prompts = (*self._native.system_prompts, *self._pipeline.system_prompts)
        self._keywords = KeywordRouter(tools)
        self._strategy: Strategy | None = None
        self._untold: Chosen | None = None  # the choice, until a decision takes it along
        self._tool_faults: list[ToolFault] = []  # of a probe whose reply was put aside

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """The chosen strategy's decision; before there is one, the choice is made first."""
        if self._strategy is None and state.model.tools is False:
            self._choose(self._pipeline, "the server says that this model cannot call tools")
        decision = None
        if self._strategy is not self._pipeline:
            decision = self._natively(state, llm, answer_only=answer_only)
        if decision is None:
            decision = _decided(self._pipeline, state, llm, answer_only=answer_only)
        return self._with_choice(decision)

    def _natively(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision | None:
        """native's decision, which the first time leads to the choice; None where pipeline is to decide instead."""
        try:
            decision = self._native.decide(state, llm, answer_only=answer_only)
        except BackendError as error:
            if error.error_type != "tools_unsupported":
                raise
            took_them = ", which it took before" if self._strategy is not None else ""
            self._choose(self._pipeline, f"the server refused the tools{took_them}")
            return None
        return decision if self._strategy is not None else self._after_probe(decision, state, answer_only=answer_only)

    def _after_probe(self, decision: Decision, state: AgentState, *, answer_only: bool) -> Decision | None:
        """The choice that follows from native's first decision; None where pipeline's is to take its place."""
        named = self._keywords.route(state.turn_text)
        if state.model.tools:
            self._choose(self._native, "the server says that this model can call tools")
        elif answer_only:
            self._choose(self._native, "only an answer can be paid for, and it takes no tools")
        elif decision.actions or any(isinstance(error, ToolCallError) for error in decision.refused):
            self._choose(self._native, "the probe was answered with a tool call")
        elif named is None:
            self._choose(self._native, "no tool was called in the probe, and the words of the task name none")
        else:
            self._choose(self._pipeline, f"no tool was called in the probe, and the words of the task name {named}")
            self._put_aside(decision, state)
            return None
        return decision

    def _choose(self, strategy: Strategy, reason: str) -> None:
        self._strategy, self._untold = strategy, Chosen(strategy=strategy.name, reason=reason)

    def _put_aside(self, probe: Decision, state: AgentState) -> None:
        """Another decision takes the probe's place; what happened to a call in it is counted all the same."""
        asked = state.last_chat
        written = asked.usage.completion_tokens if asked else None
        kinds = (fault_kind(error, tools_offered=True, completion_tokens=written) for error in probe.refused)
        self._tool_faults = [kind for kind in kinds if kind is not None]

    def _with_choice(self, decision: Decision) -> Decision:
        decision.chosen, self._untold = self._untold, None
        decision.tool_faults, self._tool_faults = [*self._tool_faults, *decision.tool_faults], []
        return decision


def _decided(strategy: Strategy, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
    """A strategy's decision. A reply that cannot be used is one too: the choice goes with it."""
    try:
        return strategy.decide(state, llm, answer_only=answer_only)
    except ModelError as error:
        return Decision(refused=[error])
