"""--plugin FILE: a person's own Python file, which registers tools and strategies when it is loaded.

It is run with all that the person may do, as a program of theirs is. Nothing of it stands in a trace but the names.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from agent.errors import UsageError
from cli.outcome import PLUGIN_PREFIX, log_traceback


def load_plugins(files: Sequence[str] | None) -> None:
    """Run each file, in order; one that was loaded before is not run again.

    Raises:
        UsageError: a file cannot be read or compiled, or raises; the message names its line.
    """
    for file in files or ():
        path = Path(file)
        name = _module_name(path)
        if name not in sys.modules:
            _run(_compiled(path), name, path)


def _module_name(path: Path) -> str:
    """One name for a file however its path is written; a class finds the names of its annotations by it."""
    return f"{PLUGIN_PREFIX}{hashlib.sha256(str(path.resolve()).encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


def _compiled(path: Path) -> CodeType:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--plugin {path}: cannot be read ({error.strerror}); name a Python file") from None
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise UsageError(f"--plugin {path}{line}: {type(error).__name__}: {error.msg}; {_logged(error)}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nested too deeply for the compiler
        raise UsageError(f"--plugin {path}: is no Python file ({error}); {_logged(error)}") from None


def _run(code: CodeType, name: str, path: Path) -> None:
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        exec(code, vars(module))  # noqa: S102  # the person's own file, named by them
    except UsageError as error:  # a registration that cannot be
        del sys.modules[name]
        raise UsageError(f"--plugin {path}{_line_in(path, error)}: {error}") from error
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        said = f"{type(error).__name__}: {error}"
        raise UsageError(f"--plugin {path}{_line_in(path, error)}: {said}; {_logged(error)}") from error


def _line_in(path: Path, error: BaseException) -> str:
    """The last line of the file itself on the way to the error, as `:12`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _logged(error: BaseException) -> str:
    try:
        return f"its traceback is in {log_traceback(error)}"
    except OSError as refused:
        return f"its traceback cannot be written ({refused})"
