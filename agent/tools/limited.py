"""A process of its own, never imported: takes limits upon itself, then becomes Python running `code.py`.

Started by execute_code. Setting limits here rather than between fork and exec keeps the harness, which has threads,
from running Python code in a forked child. Arguments: seconds of CPU time, bytes of memory, bytes of a file, and
seconds of wall clock after which the program ends though nobody is left to end it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys

MAX_OPEN_FILES = 256
MORE_TASKS = 64
# -P -s and an environment of our own keep the caller's modules out; -u keeps what was printed before a kill.
RUN_CODE = ["-P", "-s", "-B", "-u", "-X", "utf8", "code.py"]


def limit(kind: int, value: int) -> None:
    """Lower one limit for good, as far as the system lets (macOS refuses some)."""
    hard = resource.getrlimit(kind)[1]
    lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (lowered, lowered))


def own_tasks() -> int:
    """How many tasks this user runs now: the limit on them counts all of a user's, not only ours."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208 pathlib would double the start-up time
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.getuid():  # noqa: PTH116 as above
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208 as above
    return count


def main(cpu_seconds: int, memory_bytes: int, file_bytes: int, wall_seconds: int) -> None:
    """Set the limits and become the code."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, wall_seconds)  # kept across exec: a killed harness ends no timeout any more
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, cpu_seconds)
    limit(resource.RLIMIT_FSIZE, file_bytes)
    limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    limit(resource.RLIMIT_AS, memory_bytes)
    if sys.platform == "linux" and os.getuid() != 0:  # root is exempt from it
        limit(resource.RLIMIT_NPROC, own_tasks() + MORE_TASKS)
    os.execv(sys.executable, [sys.executable, *RUN_CODE])  # noqa: S606 no shell is the point


if __name__ == "__main__":
    main(*(int(text) for text in sys.argv[1:5]))
