"""run_tests.py, and main.py --all-tests: suites to runs, traces, a report and an exit code."""

from __future__ import annotations

import secrets
import sys
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agent.budget import BudgetEnforcer, Limits
from agent.config import Settings, microusd
from agent.errors import UsageError
from agent.guards.approvals import parse_rules
from agent.prompts.budget_line import usd
from agent.sandbox.leftovers import sweep
from cli.board import Board
from cli.compose import ROOT, backends, check_models, git_commit, settings_of, warn_of_external, web_access, with_model
from cli.embeddings import embeddings
from cli.escape import inert_line
from cli.log import keep_log
from cli.mcp_servers import offer_mcp
from cli.outcome import FAILED, INTERRUPTED, INVALID, OK, say
from cli.plugins import load_plugins
from cli.reporting import check_writable, write_report
from cli.terminal import make_console
from evals.cases import load_suite
from evals.plan import Plan, Ways, plan_suite
from evals.runner import Runner
from evals.store import TraceStore
from evals.traces import load_all

SUITES = ROOT / "suites"
SHOWN_IDS = 40


def named_suites(args: Namespace) -> int:
    """run_tests.py [SUITE ...].

    Raises:
        UsageError, BackendError, StoreError: nothing was run, or what was run cannot be kept.
    """
    paths = [Path(name) for name in args.suite] or [SUITES / "core.yaml"]
    return run_suites(paths, args)


def all_suites(args: Namespace) -> int:
    """main.py --all-tests: every suite of the checkout.

    Raises:
        UsageError: beside --all-tests stands a task, --json or --workspace, or there is no suite; else as
            `named_suites`.
    """
    if args.task is not None or args.json:
        raise UsageError("--all-tests runs whole suites: it takes no task and prints no single object; leave them out")
    if args.workspace is not None:
        raise UsageError("--all-tests gives every case a folder of its own; leave out --workspace")
    paths = sorted(SUITES.glob("*.yaml"))
    if not paths:
        raise UsageError(f"{SUITES}: holds no suite (*.yaml); name one: run_tests.py SUITE")
    defaults = {"only": None, "jobs": 1, "epochs": None, "report": "test_results.md", "max_batch_cost": None}
    return run_suites(paths, Namespace(**(defaults | vars(args))))


@dataclass(frozen=True)
class Batch:
    """One command's runs, with all that was decided before the first of them."""

    id: str
    settings: Settings
    plans: Sequence[Plan]
    jobs: int
    report: Path


def run_suites(paths: Sequence[Path], args: Namespace) -> int:
    """Plan everything, run it, write the report; nothing runs before all of the input is right.

    Raises:
        UsageError, BackendError, StoreError: nothing was run, or what was run cannot be kept.
    """
    ways = Ways(_listed("--strategy", args.strategy), _listed("--model", args.model))
    settings, flags = settings_of(_first_way(args, ways))
    load_plugins(args.plugin)
    offer_mcp(settings)
    approve = parse_rules(args.approve or ())
    suites = [load_suite(path) for path in paths]
    more: dict[str, Any] = {"epochs": args.epochs, "flags": flags, "ways": ways, "approve": approve}
    plans = [plan for suite in suites for plan in plan_suite(settings, suite, **more)]
    batch = Batch(_batch_id(), settings, chosen(plans, args.only), args.jobs, Path(args.report))
    check_writable(batch.report)
    keep_log(settings.traces_dir, settings.secret_values())
    sweep()
    warn_of_external(settings, say)
    board = Board(make_console(sys.stdout, color=not args.no_color), batch.plans)
    try:
        interrupted = _run(batch, board)
    finally:  # a server or a disk that fails half-way takes no finished run with it
        tally = _report(batch)
    _tell_end(batch, board, tally)
    return _exit_code(tally, interrupted=interrupted)


def _listed(flag: str, text: str | None) -> tuple[str, ...]:
    """The names in a flag that takes several, each once.

    Raises:
        UsageError: a name between two commas is missing.
    """
    names = [name.strip() for name in text.split(",")] if text is not None else []
    if "" in names:
        raise UsageError(f"{flag} {inert_line(text or '', 60)!r}: a name is missing; write them as a,b")
    return tuple(dict.fromkeys(names))


def _first_way(args: Namespace, ways: Ways) -> Namespace:
    """The arguments as if only the first strategy and model had been asked for: settings hold one of each."""
    first = {"strategy": next(iter(ways.strategies), None), "model": next(iter(ways.models), None)}
    return Namespace(**(vars(args) | first))


def chosen(plans: Sequence[Plan], patterns: Sequence[str] | None) -> list[Plan]:
    """The plans whose case id one of the patterns names; all of them without a pattern.

    Raises:
        UsageError: a pattern that names none; the ids that there are follow.
    """
    if not patterns:
        return list(plans)
    ids = list(dict.fromkeys(plan.case.id for plan in plans if plan.case))
    for pattern in patterns:
        if not any(_names(pattern, case_id) for case_id in ids):
            more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
            listed = ", ".join(ids[:SHOWN_IDS])
            raise UsageError(f"--only {inert_line(pattern, 60)!r} names no case; there are: {listed}{more}")
    return [plan for plan in plans if plan.case and any(_names(pattern, plan.case.id) for pattern in patterns)]


def _names(pattern: str, case_id: str) -> bool:
    return pattern == case_id or fnmatchcase(case_id, pattern)


def _run(batch: Batch, board: Board) -> bool:
    """All runs of the batch; whether a person stopped it."""
    check_models(batch.settings, batch.plans, board.tell)
    purse, stopped = _purse(batch.settings), threading.Event()
    secret_values = batch.settings.secret_values()
    with TraceStore(batch.settings.traces_dir, secret_values) as store, store.begin_batch(batch.id), board.live():
        # Model by model, so that one at a time is loaded.
        for model in dict.fromkeys(plan.model for plan in batch.plans):
            if not stopped.is_set():
                _run_on(model, batch, board, store, purse, stopped)
    return stopped.is_set()


def _run_on(
    model: str | None,
    batch: Batch,
    board: Board,
    store: TraceStore,
    purse: BudgetEnforcer | None,
    stopped: threading.Event,
) -> None:
    """The runs with one model, until they have ended or a person has stopped them."""
    settings, plans = with_model(batch.settings, model), [plan for plan in batch.plans if plan.model == model]
    with backends(settings, plans, board.tell) as backend_for, embeddings(settings, plans) as embedding:
        runner = Runner(
            store=store,
            backend_for=backend_for,
            embedding=embedding,
            call_timeout_seconds=settings.call_timeout_seconds,
            search_provider=settings.search_provider,
            secrets=settings.secret_values(),
            web=web_access(settings),
            batch_id=batch.id,
            batch=purse,
            git_commit=git_commit(),
            sandbox=settings.sandbox,
            keep_workspaces=settings.keep_workspaces,
            cancelled=stopped,
        )
        try:
            for finished in runner.run_all(plans, board.reporter, jobs=batch.jobs):
                board.finished(finished)
                if finished.state.status == "cancelled":  # the loop took the Ctrl-C
                    stopped.set()
        except KeyboardInterrupt:
            stopped.set()


def _purse(settings: Settings) -> BudgetEnforcer | None:
    """The cap on all the runs together, where there is one."""
    if settings.max_batch_cost_usd is None:
        return None
    limits = Limits(max_cost_microusd=microusd(settings.max_batch_cost_usd))
    return BudgetEnforcer(limits, settings.prices(), scope="batch")


def _report(batch: Batch) -> Counter[str]:
    """Report on the runs that ended, and count their outcomes; what stands there is left alone where none did."""
    folder = batch.settings.traces_dir
    states = load_all(folder, batch.id) if folder.is_dir() else []
    if states:
        write_report(states, batch.report)
    return Counter(state.verdict.outcome if state.verdict else "invalid" for state in states)


def _tell_end(batch: Batch, board: Board, tally: Counter[str]) -> None:
    with TraceStore(batch.settings.traces_dir) as store:
        calls, spent = store.spent(batch.id)
    ended, due = tally.total(), len(batch.plans)
    runs = f"{ended} runs" if ended == due else f"{ended} of {due} runs"
    counts = f"{tally['pass']} passed, {tally['fail']} failed, {tally['invalid']} invalid"
    where = f"traces in {batch.settings.traces_dir}/, report in {batch.report}"
    board.tell(f"{runs}: {counts}; {calls} calls, {usd(spent)}; {where}")


def _exit_code(tally: Counter[str], *, interrupted: bool) -> int:
    if interrupted:
        say("interrupted; the finished runs are kept")
        return INTERRUPTED
    if tally["invalid"]:
        return INVALID
    return FAILED if tally["fail"] else OK


def _batch_id() -> str:
    """When it began, and enough chance to tell apart two that began at once."""
    return f"{datetime.now(UTC):%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}"
