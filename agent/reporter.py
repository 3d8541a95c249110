"""Where progress goes: the Reporter protocol. Nothing below the entry scripts prints."""

from __future__ import annotations

from typing import Protocol

from agent.state import AgentState, LLMCall, StepRecord, ToolCall, ToolResult


class Reporter(Protocol):
    """Told of all a run does, as it happens. Texts are the model's and hostile: whoever shows them escapes them."""

    def run_started(self, state: AgentState) -> None: ...

    def text(self, piece: str) -> None:
        """A piece of a streamed plain-text reply."""

    def call_finished(self, state: AgentState, call: LLMCall) -> None: ...

    def think(self, step: StepRecord) -> None: ...

    def act(self, call: ToolCall) -> None: ...

    def observe(self, call: ToolCall, result: ToolResult) -> None: ...

    def notice(self, message: str) -> None:
        """A guard, a repair, a retry or a fallback acted: one line for the person."""

    def answered(self, answer: str) -> None:
        """The user's turn has its answer; another turn may follow."""

    def run_finished(self, state: AgentState) -> None: ...


class SilentReporter:
    """Says nothing; also a base for reporters that care for a few events only."""

    def run_started(self, state: AgentState) -> None:
        """Nothing to say."""

    def text(self, piece: str) -> None:
        """Nothing to say."""

    def call_finished(self, state: AgentState, call: LLMCall) -> None:
        """Nothing to say."""

    def think(self, step: StepRecord) -> None:
        """Nothing to say."""

    def act(self, call: ToolCall) -> None:
        """Nothing to say."""

    def observe(self, call: ToolCall, result: ToolResult) -> None:
        """Nothing to say."""

    def notice(self, message: str) -> None:
        """Nothing to say."""

    def answered(self, answer: str) -> None:
        """Nothing to say."""

    def run_finished(self, state: AgentState) -> None:
        """Nothing to say."""
