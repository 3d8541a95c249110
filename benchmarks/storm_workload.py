"""The storm's runs: random prompts, driven through the real client until they are refused or have said enough."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from agent.acting import Actions
from agent.budget import BudgetEnforcer
from agent.errors import BackendError, BudgetExceededError, ModelError, OnlyAnswerLeftError
from agent.journal import NoJournal
from agent.llm.client import Ask, LLMClient
from agent.loop import Run, run_task
from agent.reporter import SilentReporter
from agent.state import AgentState, LedgerEntry, Message, ModelInfo, ToolCall, content_hash
from agent.strategies.react import React
from agent.tools.base import ToolContext
from agent.tools.calculate_math import CalculateMath
from agent.tools.registry import ToolRegistry
from benchmarks.storm_client import Doors, Refusal, RunPlan, StormBackend, StormEmbedding, WatchedEnforcer
from benchmarks.storm_talk import VECTOR_LENGTH, words

MAX_TURNS = 14
COMPARED_SHARE = 0.4  # of the turns of a run of bare calls: texts are compared before them


@dataclass
class Outcome:
    """What the client's side holds of one run when it is over."""

    plan: RunPlan
    entries: list[LedgerEntry]
    doors: list[str]  # by ledger index, which way each request went
    committed_microusd: int
    refusals: list[Refusal]
    refused_by_batch: bool
    state: AgentState | None = None  # of a run of the loop
    crash: str | None = None


@dataclass
class _Parts:
    plan: RunPlan
    rng: Random
    texts: Random  # draws whether texts are compared, and which: what else is drawn does not depend on it
    state: AgentState
    llm: LLMClient
    embedding: StormEmbedding
    tools: ToolRegistry = field(default_factory=lambda: ToolRegistry((CalculateMath(),), ToolContext()))


def drive(plan: RunPlan, seed: int, doors: Doors, batch: BudgetEnforcer) -> Outcome:
    """One run from its first call to its last. What it raises is a bug, and stands in the outcome."""
    rng, texts = Random(f"run/{seed}/{plan.number}"), Random(f"texts/{seed}/{plan.number}")
    backend = StormBackend(plan, doors, rng)
    embedding = StormEmbedding(plan, backend, texts)
    enforcer = WatchedEnforcer(plan, batch, backend, embedding)
    state = _new_state(plan, rng)
    llm = LLMClient(
        backend,
        enforcer,
        state,
        journal=NoJournal(),
        reporter=SilentReporter(),
        embedding=embedding,
        call_timeout_seconds=plan.timeout_seconds,
        sleep=lambda _: None,  # back-off costs nothing here
    )
    parts, crash = _Parts(plan, rng, texts, state, llm, embedding), None
    state.batch_limits = batch.limits.record()
    try:
        (_react if plan.kind == "react" else _converse)(parts)
    except Exception:  # noqa: BLE001  whatever it is, it is what the storm looks for
        crash = traceback.format_exc()
    return Outcome(
        plan=plan,
        entries=state.ledger,
        doors=backend.doors,
        committed_microusd=enforcer.committed_microusd,
        refusals=enforcer.refusals,
        refused_by_batch=enforcer.refused_by_batch,
        state=state if plan.kind == "react" else None,
        crash=crash,
    )


def _new_state(plan: RunPlan, rng: Random) -> AgentState:
    return AgentState(
        run_id=f"storm-{plan.number}",
        task=words(rng, rng.choice((1, 10, 100))),
        strategy=plan.kind,
        model=ModelInfo(name=plan.model, backend="ollama"),
        sampling=plan.sampling,
        limits=plan.limits.record(),
        prices=plan.prices.record(),
    )


def _react(parts: _Parts) -> None:
    state, tools = parts.state, parts.tools
    strategy = React(tools, state.sampling.max_completion_tokens)
    state.tools, state.tools_hash = list(tools.names), tools.hash()
    state.system_prompt_hashes = [content_hash(text) for text in strategy.system_prompts]
    run_task(Run(state, parts.llm, Actions(tools, SilentReporter()), strategy, SilentReporter()))


def _converse(parts: _Parts) -> None:
    """Call after call, and once more where a call was refused: a refusal must hold."""
    rng, messages = parts.rng, _opening(parts.rng)
    tools = tuple(parts.tools.native_tools()) if rng.random() < 0.3 else None
    for _ in range(MAX_TURNS):
        if parts.texts.random() < COMPARED_SHARE:
            _compare(parts)
        ask = Ask(tuple(messages), "act", tools=tools, stream=rng.random() < 0.5)
        try:
            _ask(parts.llm, ask)
        except OnlyAnswerLeftError:
            ask = replace(ask, purpose="answer")
            if not _answered(parts.llm, ask):
                return
        except BudgetExceededError:
            _answered(parts.llm, replace(ask, purpose="answer"))
            return
        messages += _growth(rng, parts.llm.last_content)
        if rng.random() < 0.05:
            del messages[1 : rng.randint(1, len(messages))]  # a history that does not only grow
            messages.append(Message(role="user", content=words(rng, 5)))


def _compare(parts: _Parts) -> None:
    """Vectors of some texts, as a tool wants them: it goes on without those that it does not get."""
    rng, embed = parts.texts, parts.llm.embed
    assert embed is not None  # noqa: S101  the run has an embedding model
    texts = [words(rng, rng.choice((1, 12, 60))) for _ in range(rng.choice((1, 2, 5, 12)))]
    parts.embedding.wanted = texts
    with suppress(BudgetExceededError, BackendError):
        found = embed(texts)
        if [len(vector) for vector in found] != [VECTOR_LENGTH] * len(texts):
            raise ValueError(f"{len(found)} vectors for {len(texts)} texts, or some that were not sent")


def _ask(llm: LLMClient, ask: Ask) -> None:
    with suppress(ModelError, BackendError):  # paid for; the conversation goes on, where a strategy would stop
        llm.chat(ask)


def _answered(llm: LLMClient, ask: Ask) -> bool:
    try:
        _ask(llm, ask)
    except BudgetExceededError:
        return False
    return True


def _opening(rng: Random) -> list[Message]:
    system = [Message(role="system", content=words(rng, rng.choice((5, 120))))] if rng.random() < 0.7 else []
    return [*system, Message(role="user", content=words(rng, rng.choice((1, 30, 200))))]


def _growth(rng: Random, reply: str | None) -> Iterator[Message]:
    """The reply as it came (or something else in its place), and what a user, or a tool, says to it."""
    said = reply if reply is not None and rng.random() < 0.95 else words(rng, 12)
    if rng.random() < 0.2:
        call = ToolCall(name="calculate_math", arguments={"expression": words(rng, 4)}, id="call_1")
        yield Message(role="assistant", content=said, tool_calls=[call])
        yield Message(role="tool", content=words(rng, 15), tool_name="calculate_math", tool_call_id="call_1")
    else:
        yield Message(role="assistant", content=said)
        yield Message(role="user", content=words(rng, rng.choice((1, 10, 60))))
