"""What a replayed run has in place of the world, as recorded: tools' results, a person's answers, a batch's money."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.acting import Approver
from agent.budget import BudgetEnforcer, Limits, Prices
from agent.errors import BackendError, BudgetExceededError, ReplayMismatchError
from agent.llm.backends.replay import ReplayBackend
from agent.llm.client import LLMClient
from agent.state import LOOP_REFUSALS, AgentState, Message, ToolCall, ToolResult
from agent.tools.base import ToolError
from agent.tools.registry import CheckedCall, ToolRegistry
from evals.workspaces import listed

SHOWN_CHARS = 160


class RecordedTools(ToolRegistry):
    """Tools that give back what a trace holds, in its order. Only files are written, where that is asked for.

    So the workspace that a trace ends with follows from the one that it begins with.
    """

    def play(self, trace: AgentState, *, writes: bool) -> None:
        """Take the results of all calls that came before the tools. A run that was stopped may lack its last one."""
        pairs = [pair for step in trace.steps for pair in zip(step.actions, step.results, strict=False)]
        self._recorded = [(call, result) for call, result in pairs if result.error_type not in LOOP_REFUSALS]
        self._writes = writes
        self._ends_in_error = trace.status == "error"

    def embed_with(self, llm: RecordedClient, backend: ReplayBackend) -> None:
        """Make the calls for vectors that the trace holds again, where the tools made them."""
        self._llm, self._backend = llm, backend

    def validate(self, call: ToolCall) -> CheckedCall:
        """As ever; a call that is refused here was refused the first time, and its result is used up."""
        try:
            return super().validate(call)
        except ToolError:
            if self._recorded and self._recorded[0][0] == call:
                self._next(call)
            raise

    def run(self, checked: CheckedCall) -> ToolResult:
        """The next recorded result.

        Raises:
            ReplayMismatchError: another call was recorded here, or a write comes out otherwise.
            BackendError: a call for vectors failed the first time.
        """
        self._embed_again(has_result=bool(self._recorded))
        recorded = self._next(checked.call).model_copy()
        if self._writes and recorded.success and checked.tool.effect == "write":
            now = super().run(checked)
            if now.data != recorded.data:
                came = difference(recorded.data, now.data or now.error)
                raise ReplayMismatchError(f"{checked.call.name} comes out otherwise: {came}")
        return recorded

    def _embed_again(self, *, has_result: bool) -> None:
        """What their vectors led to stands in the tool's result; that they were paid for stands in the ledger.

        A tool that has a result went on without vectors where they failed: the clock of the run had ended, which stands
        still here. One that has none was ended by them.
        """
        if has_result and self._ends_in_error and self._backend.only_embeds_left:
            return
        borne: tuple[type[Exception], ...] = (
            (BudgetExceededError, BackendError) if has_result else (BudgetExceededError,)
        )
        while self._backend.embeds_next and (embed := self._llm.embed):
            with suppress(*borne):
                embed(self._backend.next_texts())

    def _next(self, asked: ToolCall) -> ToolResult:
        if not self._recorded:
            raise ReplayMismatchError(f"the trace holds no further tool call, and {asked.name} was called")
        call, result = self._recorded.pop(0)
        if (call.name, call.arguments) != (asked.name, asked.arguments):
            raise ReplayMismatchError(f"tool call differs: {difference(call.model_dump(), asked.model_dump())}")
        return result


class RecordedPurse(BudgetEnforcer):
    """The batch around a run, of which the run's trace holds only where its money made a reply shorter."""

    def __init__(self, trace: AgentState, state: AgentState, prices: Prices) -> None:
        super().__init__(Limits(), prices, scope="batch", clock=lambda: 0.0)
        self._trace, self._state = trace, state

    def _payable_tokens(self, prompt: int, prices: Prices) -> int | None:  # noqa: ARG002  the enforcer's own form
        place = len(self._state.ledger)
        entry = self._trace.ledger[place] if place < len(self._trace.ledger) else None
        return entry.max_completion_tokens if entry is not None and entry.shrunk_by == "batch" else None


class RecordedClient(LLMClient):
    """A client to which a batch's money left as much for an answer as it left the first time."""

    _trace: AgentState

    def of(self, trace: AgentState) -> RecordedClient:
        """This client, for the run of that trace."""
        self._trace = trace
        return self

    def answer_cap(self, messages: Sequence[Message]) -> int:
        """What the trace holds where a batch stood around the run; else what follows from the run's own money."""
        place, asked = len(self._state.calls), len(self._answer_caps)
        known = self._trace.calls[place].answer_caps if place < len(self._trace.calls) else []
        if self._trace.batch_limits is None or asked >= len(known):
            return super().answer_cap(messages)
        self._answer_caps.append(known[asked])
        return known[asked]


def persons_answers(trace: AgentState) -> Approver | None:
    """What the person said each time, in order; None where nobody could be asked."""
    said = [approval.verdict for step in trace.steps for approval in step.approvals]
    if "unanswered" in said or not said:
        return None
    answers = iter(said)
    return lambda _call: next(answers, "denied") == "allowed"


def seeds(trace: AgentState) -> dict[str, str] | None:
    """The files that the run found, None where its workspace cannot be laid out again: a person's, or not all text."""
    if trace.workspace is None:
        return {}
    if trace.workspace.folder is not None or any(file.text is None for file in trace.workspace.before):
        return None
    return {file.path: file.text or "" for file in trace.workspace.before}


def files_differ(trace: AgentState, root: Path, tools: ToolRegistry) -> str | None:
    """How the files that the replayed run left differ from those of the trace.

    A program may have written some: what it did is not done again, and then nothing is compared.
    """
    made = (call.name for step in trace.steps for call, _ in zip(step.actions, step.results, strict=False))
    if any(tools.effect(name) == "execute" for name in made):
        return None
    after = trace.workspace.after if trace.workspace else []
    before, now = ([(file.path, file.sha256) for file in files] for files in (after, listed(root)))
    return None if before == now else f"the files in the workspace differ: {difference(before, now)}"


def difference(old: Any, new: Any) -> str:
    """Two values from a little before the first character that differs."""
    before, after = json.dumps(old, default=repr), json.dumps(new, default=repr)
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    start = max(0, same - 30)
    return f"was {before[start : start + SHOWN_CHARS]}, is {after[start : start + SHOWN_CHARS]}"
