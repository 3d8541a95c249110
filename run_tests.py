"""A suite of tasks, or several: traces and test_results.md. `python run_tests.py --help` says how."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cli import arguments
from cli.outcome import exit_code, prepare_process


def run(argv: Sequence[str]) -> int:
    """Carry out a command line.

    Raises:
        UsageError, BackendError, StoreError: as cli/outcome.py turns them into a line and an exit code.
    """
    args = arguments.suite_parser().parse_args(argv)
    from cli.suites import named_suites  # noqa: PLC0415  # only now: `--help` costs nothing

    return named_suites(args)


if __name__ == "__main__":
    prepare_process()
    sys.exit(exit_code(lambda: run(sys.argv[1:])))
