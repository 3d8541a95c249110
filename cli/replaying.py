"""main.py replay: a trace run again, its recorded replies in place of the model."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from agent.errors import UsageError
from cli.compose import settings_of
from cli.escape import inert
from cli.mcp_servers import offer_mcp
from cli.outcome import FAILED, OK
from cli.plugins import load_plugins
from cli.terminal import TerminalReporter, make_console, print_labelled
from evals.replay import cannot_be_played
from evals.replay import replay as replay_trace
from evals.traces import load


def replay(args: Namespace) -> int:
    """Replay a trace and say what is the first step that differs, if one does.

    Raises:
        UsageError: the trace cannot be read, or holds what no replay can follow.
    """
    load_plugins(args.plugin)
    offer_mcp(settings_of(args)[0])
    trace = load(Path(args.trace))
    if reason := cannot_be_played(trace):
        raise UsageError(f"{args.trace}: cannot be replayed: {reason}")
    console = make_console(sys.stdout, color=not args.no_color)
    replayed = replay_trace(trace, live_tools=args.live_tools, reporter=TerminalReporter(console))
    if replayed.difference is None:
        print_labelled(console, "replay", f"nothing differs in {len(replayed.state.steps)} steps")
        return OK
    print_labelled(console, "DIFFERS", inert(replayed.difference))
    return FAILED
