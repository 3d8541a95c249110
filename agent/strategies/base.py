"""What a strategy is: it turns a run so far into the next decision, through the client and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from agent.llm.client import LLMClient
from agent.state import AgentState, ToolCall


@dataclass
class Decision:
    """What to do next: `actions` to run in order, or an `answer` that finishes the run."""

    actions: list[ToolCall] = field(default_factory=list)
    answer: str | None = None
    progress_check: str | None = None
    thought: str = ""
    thinking: str = ""
    repairs: list[str] = field(default_factory=list)


class Strategy(Protocol):
    """One way to drive a model. An instance belongs to one run and keeps its conversation."""

    name: str

    @property
    def system_prompt(self) -> str:
        """The system message; the same text through the whole run, so that a server's prefix cache holds."""

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """The next decision, from the steps so far. With `answer_only` nothing but a final answer may be asked for.

        Raises:
            ModelError: the model's reply cannot be used; the loop makes an observation of it.
            OnlyAnswerLeftError, BudgetExceededError: nothing was sent, and the strategy's conversation is as before.
        """
