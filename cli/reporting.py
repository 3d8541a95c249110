"""main.py report and verify: what traces say, and whether they keep their promises."""

from __future__ import annotations

import os
import secrets
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from agent.config import load_settings
from agent.errors import UsageError
from agent.state import AgentState
from cli.escape import inert
from cli.outcome import FAILED, OK
from cli.plugins import load_plugins
from evals.report import render_report
from evals.traces import load_all
from evals.verify import verify_paths


def report(args: Namespace) -> int:
    """Write the report of one batch from its traces.

    Raises:
        UsageError: there are no such traces, or the report cannot be written.
    """
    folder = Path(args.dir) if args.dir else load_settings().traces_dir
    states = load_all(folder, args.batch)
    if not states:
        which = f"no trace of batch {args.batch}" if args.batch else "no trace"
        raise UsageError(f"{folder}: there is {which} to report on; run_tests.py leaves some")
    if args.out == "-":
        sys.stdout.write(render_report(states))
    else:
        check_writable(Path(args.out))
        write_report(states, Path(args.out))
        print(f"wrote {inert(args.out)}")
    return OK


def verify(args: Namespace) -> int:
    """Check traces; a line for each, and one for each promise that was broken.

    Raises:
        UsageError: a path is not there, or no trace is.
    """
    load_plugins(args.plugin)
    checked = verify_paths([Path(path) for path in args.path])
    for trace in checked:
        print(f"{'BROKEN' if trace.faults else 'ok':<7} {inert(str(trace.path))}")
        if trace.not_replayed and not trace.faults:
            print(f"        not replayed: {inert(trace.not_replayed)}")
        for fault in trace.faults:
            print(f"        {inert(fault)}")
    broken = sum(bool(trace.faults) for trace in checked)
    loose = sum(bool(trace.not_replayed) and not trace.faults for trace in checked)
    traces = "1 trace" if len(checked) == 1 else f"{len(checked)} traces"
    print(f"{traces}: {len(checked) - broken} ok{f' ({loose} not replayed)' if loose else ''}, {broken} broken")
    return FAILED if broken or (loose and args.strict) else OK


def check_writable(path: Path) -> None:
    """Refuse a report that could not be written before anything is spent on its runs.

    Raises:
        UsageError: its folder is not there or not writable, or it is a folder itself.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file for the report")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: its folder is not writable; name another with --report")


def write_report(states: Sequence[AgentState], path: Path) -> None:
    """The report on these runs, whole or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    data = render_report(states).encode("utf-8")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name another file") from None
    finally:
        temporary.unlink(missing_ok=True)
