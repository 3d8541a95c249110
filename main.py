"""One task through a small local model, or one of the subcommands. `python main.py --help` says which.

Only the command that was asked for is imported, so that `--help` costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pkgutil import resolve_name

from cli import arguments
from cli.outcome import exit_code, prepare_process

# Each word, what reads its arguments, and what carries it out.
SUBCOMMANDS: dict[str, tuple[Callable[[], arguments.Parser], str]] = {
    "chat": (arguments.chat_parser, "cli.chat:chat"),
    "report": (arguments.report_parser, "cli.reporting:report"),
    "verify": (arguments.verify_parser, "cli.reporting:verify"),
    "replay": (arguments.replay_parser, "cli.replaying:replay"),
    "show": (arguments.show_parser, "cli.show:show"),
    "mcp-serve": (arguments.mcp_serve_parser, "cli.mcp_serving:mcp_serve"),
    "models": (arguments.models_parser, "cli.models:models"),
    "doctor": (arguments.doctor_parser, "cli.doctor:doctor"),
}


def run(argv: Sequence[str]) -> int:
    """Carry out a command line; the first word decides: a subcommand, or else a task.

    Raises:
        UsageError, BackendError, StoreError: as cli/outcome.py turns them into a line and an exit code.
    """
    if argv and argv[0] in SUBCOMMANDS:
        parser, command = SUBCOMMANDS[argv[0]]
        args = parser().parse_args(argv[1:])
    else:
        args = arguments.task_parser().parse_args(argv)
        command = "cli.suites:all_suites" if args.all_tests else "cli.task:one_task"
    return int(resolve_name(command)(args))


if __name__ == "__main__":
    prepare_process()
    sys.exit(exit_code(lambda: run(sys.argv[1:])))
