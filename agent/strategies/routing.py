"""ROUTE: the model names the tool that is needed now, or none; where it writes nonsense the task's words decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agent.errors import ModelError, ToolCallError
from agent.llm.client import LLMClient
from agent.llm.tool_faults import fault_kind
from agent.prompts import pipeline as prompts
from agent.prompts.budget_line import BudgetLeft
from agent.state import AgentState, GuardEvent
from agent.strategies.base import Decision
from agent.strategies.conversation import Conversation

LEAST_FOR_TOOL = 2  # calls: one for the arguments, one for the answer


class Route(NamedTuple):
    """`tool` is None where none is needed. `enough`: its result will be all that the answer needs."""

    tool: str | None
    enough: bool


def ask_route(
    talk: Conversation, llm: LLMClient, text: str, choices: Sequence[str], by_words: str | None, noted: Decision
) -> Route:
    """The model's choice, or `by_words` where it makes none; the latter is noted.

    Raises:
        OnlyAnswerLeftError, BudgetExceededError: nothing was sent.
    """
    try:
        reply = talk.ask(llm, text, "act", phase="route", schema=_schema(choices))
        route = _read(reply.answer, choices)
    except ModelError as error:
        note_fault(noted, error)
        fallback = f"{error}; by the words of the task: {by_words or 'no tool'}"
        noted.events.append(GuardEvent(guard="keyword_route", tier=0, message=fallback))
        return Route(by_words, enough=True)  # whoever cannot say which tool cannot say whether another follows
    noted.repairs += reply.repairs
    return route


def note_fault(noted: Decision, error: ModelError) -> None:
    """Count what is wrong with a reply that the step gets over."""
    kind = fault_kind(error, tools_offered=False, completion_tokens=None)
    if kind is not None:
        noted.tool_faults.append(kind)


def payable_calls(state: AgentState, left: BudgetLeft) -> int | None:
    """About how many more calls the budget pays for, at the price of the dearest so far; None where nothing caps them.

    An estimate to plan with: what a call may cost at most is for the client to judge.
    """
    dearest = max(_prices(state), default=0)
    if left.microusd_left is None or not dearest:
        return left.calls_left
    by_money = left.microusd_left // dearest
    return by_money if left.calls_left is None else min(left.calls_left, by_money)


def _prices(state: AgentState) -> list[int]:
    """What the calls cost that a reply came to: as counted, or, from a server that never counts, as reserved.

    A call that the server refused or broke off was charged all that it might have cost, which says nothing of others;
    nor does one for vectors.
    """
    replied = [
        entry
        for entry, call in zip(state.ledger, state.calls, strict=True)
        if entry.purpose != "embed" and (call.error is None or call.error.fault == "model")
    ]
    counted = [entry.settled_microusd for entry in replied if entry.settled_as == "counted"]
    return counted or [entry.settled_microusd for entry in replied]


def _schema(choices: Iterable[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"tool": {"enum": list(choices)}, "enough": {"type": "boolean"}},
        "required": ["tool", "enough"],
        "additionalProperties": False,
    }


def _read(value: Any, choices: Sequence[str]) -> Route:
    """The choice; a tool that was not offered is none. Without a clear `enough` the router is asked again later."""
    name = value.get("tool")
    if not isinstance(name, str):
        raise ModelError("schema_mismatch", 'the reply gives no "tool"')
    if name not in choices:
        raise ToolCallError("unknown_tool", f"the reply chooses {name[:40]!r}, which is not offered", tool=name)
    return Route(None if name == prompts.NO_TOOL else name, value.get("enough") is True)
