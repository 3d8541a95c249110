"""What a strategy is: it turns a run so far into the next decision, through the client and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.errors import ModelError
from agent.llm.client import LLMClient
from agent.state import AgentState, Chosen, GuardEvent, StepRecord, ToolCall, ToolFault

NO_REPLY = "(no usable reply)"  # stands in a conversation for a reply of which nothing can be shown


@dataclass
class Decision:
    """What to do next: `actions` to run in order, or an `answer` that finishes the user's turn.

    With `in_order` the actions build on each other: the first that fails stops the rest, and an answer beside them
    stands only if all succeeded. `refused` says what of the reply cannot be used: single calls, or, where the strategy
    has more to tell than an error can, all of it. `events` tell what the strategy itself did on the way (a fallback, a
    fast path); `tool_faults` what happened to tool calls that were saved all the same. `chosen` is set by a
    strategy that picks another, and again where it has to pick anew.
    """

    actions: list[ToolCall] = field(default_factory=list)
    answer: str | None = None
    in_order: bool = False
    progress_check: str | None = None
    thought: str = ""
    thinking: str = ""
    repairs: list[str] = field(default_factory=list)
    refused: Sequence[ModelError] = ()
    events: list[GuardEvent] = field(default_factory=list)
    tool_faults: list[ToolFault] = field(default_factory=list)
    chosen: Chosen | None = None


class Strategy(Protocol):
    """One way to drive a model. An instance belongs to one run and keeps its conversations.

    The user's turns: `state.turn_text` is the one to work on, `steps_of_turn(state)` what was done for it so far.
    """

    name: str

    @property
    def system_prompts(self) -> tuple[str, ...]:
        """Every system message that it may send, fixed for the run, so that a server's prefix cache holds."""

    def decide(self, state: AgentState, llm: LLMClient, *, answer_only: bool) -> Decision:
        """The next decision, from the steps so far. With `answer_only` nothing but a final answer may be asked for.

        Raises:
            ModelError: the model's reply cannot be used; the loop makes an observation of it.
            OnlyAnswerLeftError, BudgetExceededError: nothing was sent, and the strategy's conversations are as before.
        """


def steps_of_turn(state: AgentState) -> list[StepRecord]:
    """The steps of the user's turn that is worked on."""
    return [step for step in state.steps if step.turn == state.turn]
