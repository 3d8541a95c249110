"""What isolation costs, and whether anything is left of many programs that were run beside each other.

    python -m benchmarks.isolation_storm --runs 500 --threads 8

For each rung that this machine has: the milliseconds that it adds to a program of each language, and then `--runs`
calls of execute_code from `--threads` threads, some of which leave daemons, strays and files behind. Exit code 1 where
a process, a folder or a descriptor is left, or a run had another result than it must.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from agent.sandbox.base import Command, Limits, Sandbox
from agent.sandbox.ladder import Asked, Isolation, tried
from agent.tools.base import ToolContext, ToolError
from agent.tools.execute_code import ExecuteCode, ExecuteCodeParams

RUNGS: tuple[Asked, ...] = ("bubblewrap", "landlock")
MARKER = f"7079.{os.getpid()}"  # seconds that strays would sleep, by which they are known
ROUNDS = 20
SECONDS = 3.0  # of wall clock for a program of the storm

NOTHING = {
    "python": ("/usr/bin/python3", "-I", "-S", "-c", "pass"),
    "bash": ("/bin/bash", "-c", ":"),
    "node": ("/usr/bin/node", "-e", "0"),
}
# Language, program, and what becomes of it.
PROGRAMS = (
    ("python", "print(6 * 7)", "ok"),
    ("python", "open('left', 'w').write('x'); import os; os.mkdir('a'); os.chmod('a', 0); print(1)", "ok"),
    ("bash", f"setsid nohup sleep {MARKER} >/dev/null 2>&1 & disown; echo 1", "ok"),
    ("bash", f"(sleep {MARKER} >/dev/null 2>&1 &); kill -9 $$", "code_failed"),
    ("python", "import os, signal; os.kill(-1, 9); print(1)", "any"),
    ("python", "raise SystemExit(3)", "code_failed"),
    ("bash", "yes", "too_large"),
    ("bash", f"sleep {MARKER}", "timeout"),
)


def main() -> int:
    """Measure, storm, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--threads", type=int, default=8)
    args = parser.parse_args()
    faults = 0
    for level in RUNGS:
        rung = tried(level)[0]
        if rung.sandbox is None:
            print(f"{level}: not on this machine ({rung.why})")
            continue
        print(cost_line(level, rung.sandbox))
        found = storm(level, args.runs, args.threads)
        faults += len(found)
        print(f"{level}: {'FAIL: ' + '; '.join(found) if found else 'PASS: nothing was left'}", flush=True)
    return 1 if faults else 0


def cost_line(level: Asked, sandbox: Sandbox) -> str:
    """The milliseconds that a rung adds to programs that do nothing: medians, by language, of turns taken."""
    added = []
    for name, argv in NOTHING.items():
        if shutil.which(argv[0]) is None:
            continue
        variables = {"PATH": "/usr/bin:/bin", "OPENSSL_CONF": "/dev/null"}  # node would read the system's
        given = {"stdin": subprocess.DEVNULL, "env": variables, "check": True}
        command = Command(argv, environment=tuple(variables.items()), limits=Limits(address_space=None))
        bare, inside = list[float](), list[float]()
        for _ in range(ROUNDS):
            bare.append(_milliseconds(partial(subprocess.run, argv, **given)))
            inside.append(_milliseconds(partial(sandbox.run, command)))
        alone = statistics.median(bare)
        added.append(f"{name} {statistics.median(inside) - alone:+.1f} ms (bare: {alone:.1f} ms)")
    return f"{level}: {', '.join(added)}"


def _milliseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def storm(level: Asked, runs: int, threads: int) -> list[str]:
    """Run the programs again and again from many threads, and look for what they left."""
    with tempfile.TemporaryDirectory(prefix="shoestring-storm-") as folder:
        tempfile.tempdir = folder
        Path(folder).chmod(0o711)
        try:
            _one(level, 0)  # what is opened once for the whole process is open now
            handles = _handles()
            began = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                wrong = Counter(filter(None, pool.map(lambda number: _one(level, number), range(runs))))
            taken = time.perf_counter() - began
        finally:
            tempfile.tempdir = None
        print(f"{level}: {runs} runs from {threads} threads in {taken:.1f} s")
        left = list(Path(folder).iterdir())
    faults = [f"{count} times {words}" for words, count in wrong.items()]
    if left:
        faults.append(f"{len(left)} folders are left")
    if (more := _handles() - handles) != 0:
        faults.append(f"{more} descriptors are left")
    if strays := _strays():
        faults.append(f"{len(strays)} processes are left")
    return faults


def _one(level: Asked, number: int) -> str | None:
    """One run in a workspace of its own; what was wrong with it."""
    language, code, due = PROGRAMS[number % len(PROGRAMS)]
    with tempfile.TemporaryDirectory(prefix="shoestring-") as folder:
        context = ToolContext(workspace=Path(folder), isolation=Isolation(level))
        params = ExecuteCodeParams.model_validate({"code": code, "language": language})
        try:
            ExecuteCode(SECONDS).run(params, context)
            got = "ok"
        except ToolError as error:
            got = error.error_type
    return None if due in {got, "any"} else f"{code[:30]!r} came to {got}"


def _handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _strays() -> list[str]:
    """Processes of the programs, and children of this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, parent = (process / "cmdline").read_bytes(), (process / "stat").read_bytes().rpartition(b") ")[2]
        except OSError:
            continue
        if MARKER.encode() in words or int(parent.split()[1]) == os.getpid():
            found.append(process.name)
    return found


if __name__ == "__main__":
    sys.exit(main())
