"""main.py "TASK": one run, shown while it happens."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from agent.config import Settings
from agent.reporter import SilentReporter
from agent.state import AgentState
from cli.compose import backends, git_commit, settings_of
from cli.intake import read_task
from cli.log import keep_log
from cli.outcome import FAILED, INTERRUPTED, INVALID, OK, say
from cli.terminal import TerminalReporter, make_console
from evals.plan import Plan, plan_task
from evals.runner import Finished, Runner
from evals.store import TraceStore


def one_task(args: Namespace) -> int:
    """Run one task to its trace; the exit code says what it came to.

    Raises:
        UsageError, BackendError, StoreError: nothing was run, or what was run cannot be kept.
    """
    task = read_task(args.task, sys.stdin.buffer)
    settings, _ = settings_of(args)
    plan = plan_task(settings, task)
    reporter = _reporter(args)
    keep_log(settings.traces_dir)
    finished = _run(settings, plan, reporter)
    if isinstance(reporter, TerminalReporter):
        reporter.trace_written(str(finished.trace))
    if args.json:
        print(json.dumps(summary(finished)), flush=True)
    return _ended(finished.state, shown=not args.json and sys.stdout.isatty())


def _run(settings: Settings, plan: Plan, reporter: TerminalReporter | SilentReporter) -> Finished:
    with TraceStore(settings.traces_dir) as store, backends(settings, [plan], reporter.notice) as backend_for:
        runner = Runner(
            store=store,
            backend_for=backend_for,
            call_timeout_seconds=settings.call_timeout_seconds,
            search_provider=settings.search_provider,
            secrets=settings.secret_values(),
            git_commit=git_commit(),
        )
        return runner.run(plan, reporter)


def _reporter(args: Namespace) -> TerminalReporter | SilentReporter:
    """With --json standard output belongs to the object; progress goes to stderr, and only where someone watches."""
    if not args.json:
        return TerminalReporter(make_console(sys.stdout, color=not args.no_color))
    if sys.stderr.isatty():
        return TerminalReporter(make_console(sys.stderr, color=not args.no_color))
    return SilentReporter()


def summary(finished: Finished) -> dict[str, object]:
    """What --json prints. Tokens as the server counted them, money in micro-dollars."""
    state = finished.state
    return {
        "run_id": state.run_id,
        "status": state.status,
        "answer": state.answer,
        "calls": state.calls_used,
        "prompt_tokens": state.prompt_tokens,
        "completion_tokens": state.completion_tokens,
        "cost_microusd": state.cost_microusd,
        "trace": str(finished.trace),
    }


def _ended(state: AgentState, *, shown: bool) -> int:
    if state.status == "completed":
        return OK
    code = {"error": INVALID, "cancelled": INTERRUPTED}.get(state.status, FAILED)
    if code != FAILED and not shown:
        say(
            "interrupted; what was done is kept"
            if code == INTERRUPTED
            else f"the run is invalid: {state.status_reason}"
        )
    return code
