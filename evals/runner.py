"""From plans to judged, durable traces. The only composition of a run: state, budget, client, tools, strategy, loop."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from agent.acting import Actions, Approver
from agent.budget import BudgetEnforcer
from agent.errors import ShoestringError, StoreError
from agent.guards.approvals import Policy, rules_of_run
from agent.llm.backends.base import Backend, EmbeddingBackend
from agent.llm.client import LLMClient
from agent.loop import Run, run_task
from agent.redaction import redacted
from agent.reporter import Reporter
from agent.sandbox.ladder import Asked, Isolation
from agent.state import AgentState, CallError, ModelInfo, Verdict, WorkspaceRecord, content_hash
from agent.strategies.registry import make_strategy
from agent.tools.base import ToolContext, WebAccess
from agent.tools.registry import AnyTool, ToolRegistry, toolset
from agent.tools.workspace import workspace_of
from evals.asserts import judge
from evals.code_version import code_version
from evals.plan import Plan
from evals.store import TraceStore
from evals.workspaces import keep_workspace, listed, listed_at, workspace_for

log = logging.getLogger("shoestring")


@dataclass(frozen=True)
class Finished:
    """A run that has ended, where its trace stands, and where the files of its workspace are kept, if they are."""

    plan: Plan
    state: AgentState
    trace: Path
    kept: Path | None = None


class RunCrashedError(Exception):
    """A bug of ours ended a run. Its cause is the bug itself; `finished` is the run as far as it came, kept."""

    def __init__(self, finished: Finished, bug: Exception):
        super().__init__(f"a bug of Shoestring ({type(bug).__name__}: {bug})")
        self.finished = finished


@dataclass
class Runner:
    """What the runs of one command share. `backend_for` gives the model server for a plan; it may be the same for all.

    `embedding` is the server that gives tools texts as vectors; None: they compare words. `secrets` come into no prompt
    and no trace. `batch` is the parent of every run's budget. `call_timeout_seconds`
    bounds one call in all. `approver` asks a person about a call; None where there is nobody to ask. `sandbox` says
    what isolates the programs that models write. `keep_workspaces` keeps those of runs that did not fail, too. `clock`
    measures the seconds that a run may take; one that stands still while a person is asked does not charge the run for
    their time.
    """

    store: TraceStore
    backend_for: Callable[[Plan], Backend]
    embedding: EmbeddingBackend | None = None
    call_timeout_seconds: float = 120.0
    search_provider: str = "auto"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    web: WebAccess = field(default_factory=WebAccess)
    batch_id: str | None = None
    batch: BudgetEnforcer | None = None
    approver: Approver | None = None
    sandbox: Asked = "auto"
    keep_workspaces: bool = False
    clock: Callable[[], float] = time.monotonic
    git_commit: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    _in_use: list[Backend] = field(default_factory=list)

    def run(self, plan: Plan, reporter: Reporter, follow_ups: Iterator[str] | None = None) -> Finished:
        """One run, judged and written. `follow_ups` gives the user's further turns in place of the plan's.

        Raises:
            BackendError: the server does not say which model it serves.
            StoreError: the disk does not take what must be kept.
            RunCrashedError: a bug of ours; the trace is written all the same, and says so.
        """
        backend = self.backend_for(plan)
        self._in_use.append(backend)
        try:
            return self._run_on(backend, plan, reporter, iter(plan.follow_ups) if follow_ups is None else follow_ups)
        finally:
            self._in_use.remove(backend)

    def _run_on(self, backend: Backend, plan: Plan, reporter: Reporter, follow_ups: Iterator[str]) -> Finished:
        with workspace_for(plan.workspace, plan.folder) as workspace:
            try:
                finished = self._run_in(workspace, backend, plan, reporter, follow_ups)
            except RunCrashedError as crash:
                self._keep_files(workspace, crash.finished, reporter)
                raise
            return replace(finished, kept=self._keep_files(workspace, finished, reporter))

    def _run_in(
        self, workspace: Path, backend: Backend, plan: Plan, reporter: Reporter, turns: Iterator[str]
    ) -> Finished:
        isolation = Isolation(self.sandbox, reporter.notice)
        context = ToolContext(
            plan.corpus,
            self.search_provider,
            self.secrets,
            plan.now,
            workspace,
            persons_folder=plan.folder is not None,
            web=self.web,
            isolation=isolation,
        )
        offered = _offered(plan)
        tools = ToolRegistry(offered, context)
        strategy = make_strategy(plan.strategy, tools, plan.sampling.max_completion_tokens)
        state = self._new_state(plan, backend.describe(), tools, strategy.system_prompts)
        own = plan.folder is None
        state.approve = rules_of_run(plan.approve, offered, own_workspace=own, isolated=self.sandbox != "external")
        enforcer = BudgetEnforcer(plan.limits, plan.prices, parent=self.batch, clock=self.clock)
        llm = LLMClient(
            backend,
            enforcer,
            state,
            journal=self.store,
            reporter=reporter,
            embedding=self.embedding if state.embedder else None,
            call_timeout_seconds=self.call_timeout_seconds,
            cancelled=self.cancelled,
            secrets=self.secrets,
        )
        tools.lend(llm.embed)
        self.store.run_started(state.run_id, self.batch_id, state.case_id)
        try:
            actions = Actions(tools, reporter, Policy(state.approve), self.approver)
            try:
                follow_ups = (redacted(turn, self.secrets) for turn in turns)
                _drive(Run(state, llm, actions, strategy, reporter, follow_ups), plan, context)
            finally:
                state.sandbox = isolation.level
        except ShoestringError as error:  # a full disk, or what a person set up for a tool (a corpus) cannot be used
            self._last_words(plan, state, error)
            raise
        except KeyboardInterrupt:  # outside the loop, which takes one within its turns for itself
            if state.status == "running":
                state.status, state.status_reason = "cancelled", "stopped by the person"
            self._keep(plan, state)
            raise
        except Exception as error:
            _blame_harness(state, error)
            raise RunCrashedError(self._keep(plan, state), error) from error
        try:
            return self._keep(plan, state)
        except KeyboardInterrupt:  # what was paid for is kept first
            self._keep(plan, state)
            raise

    def run_all(
        self, plans: Sequence[Plan], reporter_for: Callable[[Plan], Reporter], *, jobs: int = 1
    ) -> Iterator[Finished]:
        """All runs, each yielded as it ends. A bug of ours in one makes that run invalid and the others go on.

        Ctrl-C in the caller, or `cancelled`, ends it cleanly: what runs is stopped at its next call and kept.

        Raises:
            BackendError, StoreError: as `run`; no further run is started.
        """
        if jobs == 1:  # in this very thread, so that Ctrl-C reaches a call that is under way
            for plan in plans:
                if self.cancelled.is_set():
                    return
                yield from self._survive(plan, reporter_for(plan))
            return
        yield from self._run_side_by_side(list(plans), reporter_for, jobs)

    def _run_side_by_side(
        self, plans: list[Plan], reporter_for: Callable[[Plan], Reporter], jobs: int
    ) -> Iterator[Finished]:
        waiting, under_way = iter(plans), set[Future[list[Finished]]]()
        with ThreadPoolExecutor(jobs, thread_name_prefix="run") as pool:
            try:
                while True:
                    while len(under_way) < jobs and not self.cancelled.is_set() and (plan := next(waiting, None)):
                        under_way.add(pool.submit(self._survive, plan, reporter_for(plan)))
                    if not under_way:
                        return
                    ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    for future in ended:
                        yield from future.result()
            except BaseException:
                self._hang_up()
                raise

    def _survive(self, plan: Plan, reporter: Reporter) -> list[Finished]:
        """One run of a batch, whose bugs must not take the others with them; they stand in the log."""
        try:
            return [self.run(plan, reporter)]
        except RunCrashedError as crash:
            log.error("%s: a bug of Shoestring made this run invalid", plan.label, exc_info=crash.__cause__)
            reporter.notice(f"{plan.label}: invalid: {crash}")
            return [crash.finished]

    def _embedder(self, tools: ToolRegistry) -> ModelInfo | None:
        """The embedding model, for a run that has a tool which compares by meaning."""
        return self.embedding.describe() if self.embedding and tools.compare_by_meaning else None

    def _hang_up(self) -> None:
        """Stop what is under way: no further call starts, and those that wait for a server wait no longer."""
        self.cancelled.set()
        for backend in list(self._in_use):
            backend.close()
        if self.embedding is not None:
            self.embedding.close()

    def _last_words(self, plan: Plan, state: AgentState, error: ShoestringError) -> None:
        """A trace of a run that cannot go on, if need be in the space kept back. The first fault is the one to tell."""
        _blame_harness(state, error)
        with suppress(StoreError):
            self._keep(plan, state)

    def _keep(self, plan: Plan, state: AgentState) -> Finished:
        state.verdict = _verdict(plan, state)
        trace = self.store.write(state)
        self.store.run_finished(state)
        return Finished(plan, state, trace)

    def _keep_files(self, workspace: Path, finished: Finished, reporter: Reporter) -> Path | None:
        """A copy of the files of a run's own folder, where the run failed or all are kept; where it stands."""
        verdict = finished.state.verdict
        failed = finished.state.status != "completed" or (verdict is not None and verdict.outcome != "pass")
        if finished.plan.folder is not None or not (failed or self.keep_workspaces):
            return None
        return keep_workspace(workspace, finished.trace, self.secrets, reporter.notice)

    def _new_state(
        self, plan: Plan, model: ModelInfo, tools: ToolRegistry, system_prompts: Sequence[str]
    ) -> AgentState:
        return AgentState(
            run_id=uuid.uuid4().hex,
            batch_id=self.batch_id,
            suite=plan.suite,
            case_id=plan.case.id if plan.case else None,
            case_hash=plan.case_hash,
            epoch=plan.epoch,
            task=redacted(plan.task, self.secrets),
            strategy=plan.strategy,
            toolset=plan.toolset,
            tools=list(tools.names),
            corpus=str(plan.corpus) if plan.corpus else None,
            now=plan.now.isoformat() if plan.now else None,
            evidence=plan.evidence,
            model=model,
            embedder=self._embedder(tools),
            sampling=plan.sampling,
            limits=plan.limits.record(),
            batch_limits=self.batch.limits.record() if self.batch else None,
            prices=plan.prices.record(),
            system_prompt_hashes=[content_hash(text) for text in system_prompts],
            tools_hash=tools.hash(),
            git_commit=self.git_commit,
            code=code_version(),
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )


def _drive(run: Run, plan: Plan, context: ToolContext) -> None:
    """The run, and what it found and left in its workspace, however it ends; of a person's only what was written.

    No tool holds anything open after it.
    """
    folder = None if plan.folder is None else str(plan.folder)
    workspace, secrets = workspace_of(context), context.secrets
    before = [] if folder else listed(workspace, secrets)
    try:
        with closing(run.actions.tools):
            run_task(run)
    finally:
        after = listed_at(workspace, context.written, secrets) if folder else listed(workspace, secrets)
        if folder or before or after:
            run.state.workspace = WorkspaceRecord(folder=folder, before=before, after=after)


def _offered(plan: Plan) -> list[AnyTool]:
    chosen = toolset(plan.toolset)
    return chosen if plan.tools is None else [tool for tool in chosen if tool.name in plan.tools]


def _verdict(plan: Plan, state: AgentState) -> Verdict | None:
    """The judgement of a case's run; of a single task only that it is invalid, where it is."""
    if plan.case is not None:
        return judge(state, plan.case.asserts)
    if state.status in ("error", "cancelled"):
        return Verdict(outcome="invalid", reason=state.status_reason)
    return None


def _blame_harness(state: AgentState, error: Exception) -> None:
    message = f"{type(error).__name__}: {error}"
    state.status, state.status_reason = "error", message
    state.error = CallError(error_type="harness_bug", message=message, fault="harness")
