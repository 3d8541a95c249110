"""What the harness itself costs: CPU and memory a run, with a model that answers at once and traces that last.

    python -m benchmarks.overhead --runs 1000

Each run is two calls (one calculate_math action, then the answer) on the path of run_tests.py: plan, budget, journal,
loop, verdict, durable trace. Exit code 1 where a run costs 3 ms of CPU or more, or memory grows with the runs.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.config import Settings
from agent.llm.backends.base import Backend
from agent.llm.backends.scripted import ScriptedBackend
from agent.reporter import SilentReporter
from evals.cases import load_suite
from evals.plan import Plan, plan_suite
from evals.runner import Runner
from evals.store import TraceStore
from evals.traces import load

MAX_CPU_MS = 3.0
WARM_RUNS = 200  # imports, caches and the allocator have settled by then
# From the warm runs to the last. SQLite's page cache fills up to 2 MB and stays there; a state that is kept would come
# to some 30 KiB a run.
MAX_GROWTH_KIB = 3072
BASELINE_ROUNDS = 200

_SUITE = """\
cases:
  - id: six-times-seven
    task: What is 6 times 7?
    strategy: react
    tools: [calculate_math]
    asserts:
      - {type: answer_contains, value: "42"}
"""
_ACT = {
    "progress_check": "on_track",
    "thought": "Work it out with the tool.",
    "action": {"tool": "calculate_math", "args": {"expression": "6 * 7"}},
    "final_answer": None,
}
_ANSWER = {"progress_check": "on_track", "thought": "It is there.", "action": None, "final_answer": "6 times 7 is 42."}
_REPLIES = (json.dumps(_ACT), json.dumps(_ANSWER))


@dataclass(frozen=True)
class Cost:
    """Of one thing, on average, in milliseconds."""

    cpu_ms: float
    wall_ms: float


@dataclass(frozen=True)
class Measured:
    """All figures of one measurement. RSS in KiB."""

    runs: int
    run: Cost
    rss_warm: int
    rss_end: int
    trace_bytes: int
    fsync: Cost
    dump: Cost

    @property
    def growth_kib(self) -> int:
        """Memory that came on top between the warm runs and the last."""
        return self.rss_end - self.rss_warm


def measure(runs: int, folder: Path) -> Measured:
    """So many runs after the warm ones, with traces and store in `folder`; then the machine's own baseline there."""
    suite = folder / "overhead.yaml"
    suite.write_text(_SUITE, "utf-8")
    plans = plan_suite(Settings(_env_file=None), load_suite(suite), epochs=WARM_RUNS + runs)
    traces = folder / "traces"
    with TraceStore(traces) as store, store.begin_batch("overhead"):
        runner = Runner(store=store, backend_for=_backend, batch_id="overhead")
        _drive(runner, plans[:WARM_RUNS])
        rss_warm = rss_kib()
        run = timed(lambda: _drive(runner, plans[WARM_RUNS:]), runs)
        rss_end = rss_kib()
    trace = next(traces.glob("*.json"))
    value = json.loads(trace.read_text("utf-8"))
    if load(trace).status != "completed" or len(value["calls"]) != 2:
        raise RuntimeError(f"{trace}: is not the two-call run that was to be measured")
    return Measured(
        runs=runs,
        run=run,
        rss_warm=rss_warm,
        rss_end=rss_end,
        trace_bytes=trace.stat().st_size,
        fsync=timed(lambda: _write_synced(folder), BASELINE_ROUNDS),
        dump=timed(lambda: _dump(value), BASELINE_ROUNDS),
    )


def _backend(plan: Plan) -> Backend:  # noqa: ARG001  every run has the same script
    return ScriptedBackend(_REPLIES)


def _drive(runner: Runner, plans: list[Plan]) -> None:
    for finished in runner.run_all(plans, lambda _: SilentReporter()):
        if finished.state.verdict is None or finished.state.verdict.outcome != "pass":
            raise RuntimeError(f"{finished.trace}: did not pass: {finished.state.status_reason}")


def timed(work: Callable[[], None], times: int) -> Cost:
    """What `work` costs, over the `times` things that it does; CPU is user and system time of all threads."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Cost((time.process_time() - cpu) * 1e3 / times, (time.perf_counter() - wall) * 1e3 / times)


def _write_synced(folder: Path) -> None:
    for number in range(BASELINE_ROUNDS):
        handle = os.open(folder / f"baseline-{number}", os.O_WRONLY | os.O_CREAT)
        os.write(handle, b"x" * 4096)
        os.fsync(handle)
        os.close(handle)


def _dump(value: object) -> None:
    for _ in range(BASELINE_ROUNDS):
        json.dumps(value)


def rss_kib() -> int:
    """Memory of this process now; its peak where the system does not tell."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak
    return pages * resource.getpagesize() // 1024


# -- saying so --------------------------------------------------------------------------------------------------------


def report(seen: Measured) -> tuple[str, bool]:
    """The figures and the verdict as text, and whether every demand was met."""
    cpu_ratio = seen.run.cpu_ms / (seen.fsync.cpu_ms + seen.dump.cpu_ms)
    wall_ratio = seen.run.wall_ms / (seen.fsync.wall_ms + seen.dump.wall_ms)
    warm, end = f"{seen.rss_warm:,} KiB after {WARM_RUNS} runs", f"{seen.rss_end:,} KiB at the end"
    demands = {
        f"CPU a run under {MAX_CPU_MS:g} ms": seen.run.cpu_ms < MAX_CPU_MS,
        f"memory flat (at most {MAX_GROWTH_KIB} KiB more)": seen.growth_kib <= MAX_GROWTH_KIB,
    }
    lines = [
        f"{seen.runs:,} two-call runs after {WARM_RUNS} warm ones, a durable trace of {seen.trace_bytes:,} bytes each",
        f"  run           {_cost(seen.run)}",
        f"  fsync, 4 KB   {_cost(seen.fsync)}   the machine's own, same folder",
        f"  JSON dump     {_cost(seen.dump)}   the machine's own, same trace, standard library",
        f"  a run costs {cpu_ratio:.1f} times the CPU, and {wall_ratio:.1f} times the time, of these two together",
        f"  memory        {warm}, {end} ({seen.growth_kib:+,})",
        *(f"{'PASS' if met else 'FAIL'}: {demand}" for demand, met in demands.items()),
    ]
    return "\n".join(lines), all(demands.values())


def _cost(cost: Cost) -> str:
    return f"{cost.cpu_ms:7.3f} ms CPU, {cost.wall_ms:7.3f} ms wall"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="What does the harness itself cost, a run?")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    parser.add_argument("--profile", action="store_true", help="show where the time goes; figures are then inflated")
    given = parser.parse_args(arguments)
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory(prefix=".overhead-", dir=given.folder) as folder:
        if given.profile:
            profile.enable()
        seen = measure(given.runs, Path(folder))
        profile.disable()
    text, met = report(seen)
    print(text)
    if given.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
