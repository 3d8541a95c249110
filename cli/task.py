"""main.py "TASK": one run, shown while it happens."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from agent.config import Settings
from agent.guards.approvals import parse_rules
from agent.llm.backends.base import EmbeddingBackend
from agent.reporter import SilentReporter
from agent.sandbox.leftovers import sweep
from agent.state import AgentState
from cli.compose import BackendFor, backends, git_commit, settings_of, warn_of_external, web_access
from cli.embeddings import embeddings
from cli.intake import read_task
from cli.log import keep_log
from cli.mcp_servers import offer_mcp
from cli.outcome import FAILED, INTERRUPTED, INVALID, OK, say
from cli.person import Person, how_to_allow, is_at_terminal, print_whole_call, waiting_call
from cli.plugins import load_plugins
from cli.terminal import TerminalReporter, make_console
from evals.plan import plan_task
from evals.runner import Finished, Runner
from evals.store import TraceStore


def one_task(args: Namespace) -> int:
    """Run one task to its trace; the exit code says what it came to.

    Raises:
        UsageError, BackendError, StoreError: nothing was run, or what was run cannot be kept.
    """
    task = read_task(args.task, sys.stdin.buffer)
    settings, _ = settings_of(args)
    load_plugins(args.plugin)
    offer_mcp(settings)
    plan = plan_task(settings, task, parse_rules(args.approve or ()))
    reporter = _reporter(args)
    can_ask = is_at_terminal() and not args.json
    person = Person(make_console(sys.stdout, color=not args.no_color))
    keep_log(settings.traces_dir, settings.secret_values())
    sweep()
    if args.json:
        warn_of_external(settings, say)
    with (
        TraceStore(settings.traces_dir, settings.secret_values()) as store,
        backends(settings, [plan], reporter.notice) as backend_for,
        embeddings(settings, [plan]) as embedding,
    ):
        runner = make_runner(settings, store, backend_for, person, embedding=embedding, can_ask=can_ask)
        finished = runner.run(plan, reporter)
    tell_end(finished, reporter)
    if args.json:
        print(json.dumps(summary(finished)), flush=True)
    return ended(finished.state, shown=not args.json and sys.stdout.isatty())


def make_runner(
    settings: Settings,
    store: TraceStore,
    backend_for: BackendFor,
    person: Person,
    *,
    embedding: EmbeddingBackend | None,
    can_ask: bool,
) -> Runner:
    """What carries out a single run. The person is asked about calls only where they `can_ask`."""
    return Runner(
        store=store,
        backend_for=backend_for,
        embedding=embedding,
        call_timeout_seconds=settings.call_timeout_seconds,
        search_provider=settings.search_provider,
        secrets=settings.secret_values(),
        web=web_access(settings),
        git_commit=git_commit(),
        approver=person.allows if can_ask else None,
        sandbox=settings.sandbox,
        keep_workspaces=settings.keep_workspaces,
        clock=person.clock,
    )


def tell_end(finished: Finished, reporter: TerminalReporter | SilentReporter) -> None:
    """Where the trace is; and the whole call that waits for a person, where one does, with the way to allow it."""
    call = waiting_call(finished.state)
    if isinstance(reporter, TerminalReporter):
        if call is not None:
            print_whole_call(reporter.console, call)
            reporter.notice(how_to_allow(call))
        reporter.trace_written(str(finished.trace))
        if finished.kept is not None:
            reporter.notice(f"the files of its workspace are kept in {finished.kept}")
    elif call is not None:
        say(f"{finished.state.status_reason}; {how_to_allow(call)}")


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


def ended(state: AgentState, *, shown: bool) -> int:
    """The exit code of a run. Whose fault it was is said where it is not `shown` already."""
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
