"""Runs driven by a scripted backend, as the runner composes them, for tests of the loop and what stands on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.acting import Actions, Approver
from agent.budget import BudgetEnforcer, Limits, Prices
from agent.errors import BackendError
from agent.guards.approvals import Policy
from agent.journal import Journal, NoJournal
from agent.llm.backends.base import Backend, ChatRequest, EmbeddingBackend
from agent.llm.backends.scripted import BYTES_PER_TOKEN, Script, ScriptedBackend, ScriptedReply
from agent.llm.bounds import message_bytes
from agent.llm.client import LLMClient
from agent.loop import Run, run_task
from agent.reporter import Reporter, SilentReporter
from agent.state import AgentState, Permission, Sampling, WorkspaceRecord, content_hash
from agent.strategies.registry import make_strategy
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset
from evals.code_version import code_version
from evals.workspaces import listed

PRICES = Prices(10_000, 30_000, 100)


def turn(**fields: Any) -> str:
    """One react turn as a model would write it."""
    return json.dumps({"progress_check": "on_track", "thought": "next", "action": None, "final_answer": None} | fields)


def act(expression: str) -> str:
    return turn(action={"tool": "calculate_math", "args": {"expression": expression}})


def answer(text: str) -> str:
    return turn(final_answer=text)


class CountingBackend(ScriptedBackend):
    """A scripted server that counts prompts ahead, as llama.cpp does; from count `fails_at` on it does not answer."""

    def __init__(self, script: Script | Sequence[ScriptedReply | str], *, fails_at: int | None = None) -> None:
        super().__init__(script)
        self._fails_at, self._counts = fails_at, 0

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:
        if self._fails_at is not None and self._counts >= self._fails_at:
            raise BackendError("server_error", "hung up", retry=True)
        self._counts += 1
        return max(1, -(-sum(map(message_bytes, request.messages)) // BYTES_PER_TOKEN))


class NoticeReporter(SilentReporter):
    """Keeps what a person would be told."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, message: str) -> None:
        self.notices.append(message)


def new_run(
    script: Backend | Script | Sequence[ScriptedReply | str],
    *,
    task: str = "What is 6 times 7?",
    limits: Limits = Limits(10, 200_000),  # noqa: B008  frozen, so sharing it is safe
    evidence: bool = True,
    journal: Journal | None = None,
    parent: BudgetEnforcer | None = None,
    corpus: Path | None = None,
    max_completion_tokens: int = 512,
    num_ctx: int = 8192,
    strategy_name: str = "react",
    tools_named: str = "core",
    tools_offered: Sequence[str] | None = None,
    follow_ups: Sequence[str] = (),
    approve: Mapping[str, Permission] | None = None,
    approver: Approver | None = None,
    now: datetime | None = None,
    workspace: Path | None = None,
    reporter: Reporter | None = None,
    embedding: EmbeddingBackend | None = None,
    secrets: tuple[str, ...] = (),
) -> Run:
    """A run that is ready to start. `tools_offered` are the only tools of the toolset that it has; all where None."""
    backend = _backend(script)
    offered = [tool for tool in toolset(tools_named) if tools_offered is None or tool.name in tools_offered]
    tools = ToolRegistry(offered, ToolContext(corpus=corpus, now=now, workspace=workspace, secrets=secrets))
    strategy = make_strategy(strategy_name, tools, max_completion_tokens)
    state = AgentState(
        run_id="run-1",
        task=task,
        strategy=strategy_name,
        toolset=tools_named,
        approve=dict(approve or {}),
        now=now.isoformat() if now else None,
        tools=list(tools.names),
        corpus=str(corpus) if corpus else None,
        evidence=evidence,
        model=backend.describe(),
        embedder=embedding.describe() if embedding else None,
        sampling=Sampling(temperature=0, seed=7, num_ctx=num_ctx, max_completion_tokens=max_completion_tokens),
        limits=limits.record(),
        batch_limits=parent.limits.record() if parent else None,
        prices=PRICES.record(),
        system_prompt_hashes=[content_hash(text) for text in strategy.system_prompts],
        tools_hash=tools.hash(),
        code=code_version(),
        started_at="2026-01-05T10:00:00.000+00:00",
    )
    reporter = reporter or NoticeReporter()
    enforcer = BudgetEnforcer(limits, PRICES, parent=parent)
    llm = LLMClient(
        backend,
        enforcer,
        state,
        journal=journal or NoJournal(),
        reporter=reporter,
        embedding=embedding,
        sleep=lambda _seconds: None,
        secrets=secrets,
    )
    tools.lend(llm.embed)
    actions = Actions(tools, reporter, Policy(state.approve), approver)
    return Run(state, llm, actions, strategy, reporter, iter(follow_ups))


def run_script(script: Backend | Script | Sequence[ScriptedReply | str], **more: Any) -> AgentState:
    """A finished run."""
    return finished(new_run(script, **more), more.get("workspace"))


def finished(run: Run, workspace: Path | None = None) -> AgentState:
    """The run, driven to its end, with the record of its workspace as the runner leaves it."""
    before = listed(workspace) if workspace else []
    with closing(run.actions.tools):
        state = run_task(run)
    after = listed(workspace) if workspace else []
    if before or after:
        state.workspace = WorkspaceRecord(before=before, after=after)
    return state


def _backend(script: Backend | Script | Sequence[ScriptedReply | str]) -> Backend:
    return ScriptedBackend(script) if isinstance(script, Sequence) or callable(script) else script
