"""How a command ends: every error as one line on stderr and an exit code that says whose fault it was."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from agent.errors import BackendError, StoreError, UsageError
from cli.escape import encodable, inert_line

OK = 0
FAILED = 1
USAGE = 2
INVALID = 3
BUG = 70  # EX_SOFTWARE of sysexits.h: not to be confused with what a task came to
INTERRUPTED = 130
LOG_NAME = "shoestring.log"
OUR_PACKAGES = ("agent", "cli", "evals")
PLUGIN_PREFIX = "plugin_"  # of the modules that --plugin loads


def exit_code(command: Callable[[], int]) -> int:
    """Run a command to its exit code. Only a bug of ours leaves a traceback, in the log of the traces folder."""
    try:
        code = command()
        sys.stdout.flush()  # now, while a reader that has gone can still be dealt with
        return code
    except UsageError as error:
        say(str(error))
        return USAGE
    except (BackendError, StoreError) as error:
        say(str(error))
        return INVALID
    except KeyboardInterrupt:
        say("interrupted; what was finished is kept")
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except ModuleNotFoundError as error:
        return _report_missing(error)
    except Exception as error:  # noqa: BLE001  # the outermost frame: the bug is logged whole and reported
        return _report_bug(error)


class TerminalStream(io.TextIOWrapper):
    """A terminal that may be closed while a run goes on: from then on nobody reads, and nothing fails."""

    def write(self, text: str) -> int:
        """As ever."""
        with self._unless_closed():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """As ever."""
        with self._unless_closed():
            super().flush()

    @contextmanager
    def _unless_closed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


def say(message: str) -> None:
    """One line on stderr, whatever is in the message."""
    print(f"shoestring: {inert_line(message)}", file=sys.stderr, flush=True)


def prepare_process() -> None:
    """What an entry script sets up first.

    SIGTERM and SIGHUP (`docker stop`, a cancelled job, a closed terminal) end a run as Ctrl-C does: what was done is
    kept. A stream that the caller closed becomes one that nobody reads, and so does a terminal once it is closed. Both
    output streams write what their encoding lacks as an escape instead of failing in the middle of a run.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  # for as long as the process lives
            setattr(sys, name, nowhere)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream.isatty() and isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, TerminalStream(stream.detach(), stream.encoding, line_buffering=True))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a test may have put something simpler in its place
            stream.reconfigure(errors="backslashreplace")


def _reader_gone() -> int:
    """`main.py show TRACE | head`: nobody is left to read the rest, and Python must not complain about it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return OK


def _report_missing(error: ModuleNotFoundError) -> int:
    package = (error.name or "a package").partition(".")[0]
    if package in OUR_PACKAGES:
        return _report_bug(error)
    say(f"{package} is not installed here; run: make setup, then use .venv/bin/python")
    return USAGE


def log_traceback(error: BaseException) -> Path:
    """Write an error with its traceback to the end of the log, and say where that is.

    Raises:
        OSError: the log cannot be written; its `filename` says where it would be.
    """
    trail = "".join(traceback.format_exception(error))
    path = _log_folder() / LOG_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')}\n{encodable(trail)}\n")
    return path


def _report_bug(error: Exception) -> int:
    bug = error.__cause__ or error  # a run that crashed says so around the bug itself
    summary = f"this is a bug of {_whose(bug)} ({type(bug).__name__}: {bug})"
    try:
        path = log_traceback(error)
    except OSError as refused:
        log = f"{refused.filename} cannot be written ({refused.strerror})"
        say(f"{summary}; its traceback follows, since {log}")
        sys.stderr.write(encodable("".join(traceback.format_exception(error))))
        return BUG
    say(f"{summary}; its traceback is in {path}")
    return BUG


def _whose(bug: BaseException) -> str:
    """The line of a person's own file, where the innermost frame of ours or theirs is in one; else Shoestring."""
    for frame, line in reversed(list(traceback.walk_tb(bug.__traceback__))):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(PLUGIN_PREFIX):
            return f"{frame.f_code.co_filename}:{line}"
        if module.partition(".")[0] in OUR_PACKAGES:
            break
    return "Shoestring"


def _log_folder() -> Path:
    """TRACES_DIR, or its default where the settings themselves are what is wrong."""
    from agent.config import load_settings  # noqa: PLC0415  # pydantic: only a bug needs it here

    try:
        return load_settings().traces_dir
    except UsageError:
        return Path("traces")
