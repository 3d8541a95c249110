"""main.py replay: a trace run again, its recorded replies in place of the model."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from agent.config import Settings
from agent.errors import UsageError
from agent.guards.approvals import parse_rules
from agent.reporter import Reporter
from agent.sandbox.ladder import Isolation
from agent.tools.base import ToolContext
from cli.compose import settings_of, web_access
from cli.escape import inert
from cli.mcp_servers import offer_mcp
from cli.outcome import FAILED, OK, say
from cli.person import Person, how_to_allow, is_at_terminal, waiting_call
from cli.plugins import load_plugins
from cli.terminal import TerminalReporter, make_console, print_labelled
from evals.replay import LiveTools, cannot_be_played
from evals.replay import replay as replay_trace
from evals.traces import load


def replay(args: Namespace) -> int:
    """Replay a trace and say what is the first step that differs, if one does.

    Raises:
        UsageError: the trace cannot be read, or holds what no replay can follow.
    """
    load_plugins(args.plugin)
    settings, _ = settings_of(args)
    offer_mcp(settings)
    trace = load(Path(args.trace))
    if reason := cannot_be_played(trace):
        raise UsageError(f"{args.trace}: cannot be replayed: {reason}")
    console = make_console(sys.stdout, color=not args.no_color)
    reporter = TerminalReporter(console)
    replayed = replay_trace(trace, live=_live(args, settings, Person(console), reporter), reporter=reporter)
    if replayed.difference is None:
        print_labelled(console, "replay", f"nothing differs in {len(replayed.state.steps)} steps")
        return OK
    print_labelled(console, "DIFFERS", inert(replayed.difference))
    if args.live_tools and (call := waiting_call(replayed.state)):
        say(f"{call.name}: {how_to_allow(call)}")
    return FAILED


def _live(args: Namespace, settings: Settings, person: Person, reporter: Reporter) -> LiveTools | None:
    """What tools that really run are lent: all of it is this person's, and nothing the trace's.

    Raises:
        UsageError: a rule that is none, a corpus that is no folder, or either of them without --live-tools.
    """
    if not args.live_tools:
        if args.approve or args.corpus:
            raise UsageError("--approve and --corpus are for tools that run: give --live-tools too")
        return None
    corpus = None if args.corpus is None else Path(args.corpus)
    if corpus is not None and not corpus.is_dir():
        raise UsageError(f"--corpus {args.corpus[:200]!a}: is no folder")
    context = ToolContext(
        corpus,
        settings.search_provider,
        settings.secret_values(),
        web=web_access(settings),
        isolation=Isolation(settings.sandbox, reporter.notice),
    )
    return LiveTools(context, parse_rules(args.approve or ()), person.allows if is_at_terminal() else None)
