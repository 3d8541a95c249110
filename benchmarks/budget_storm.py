"""Thousands of runs against one budget and a server that misbehaves: do the caps hold by the server's own count?

    python -m benchmarks.budget_storm --runs 10000 --threads 16 --seed 7

Exit code 1 where a cap was broken, an overshoot went unrecorded or did not end its run, or anything crashed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass

from agent.budget import BudgetEnforcer, Limits, Prices
from benchmarks.storm_client import Doors, Refusal, ask_server, plan_run
from benchmarks.storm_replies import Entry
from benchmarks.storm_verdict import Verdict, judge
from benchmarks.storm_workload import Outcome, drive
from evals.verify import verify

# What the batch may spend for each of its runs: a little less than they would, so that its caps are reached and the
# last runs of all threads meet there.
BATCH_CALLS_A_RUN = 3.09
BATCH_MICROUSD_A_RUN = 48_500
SHOWN_VIOLATIONS = 10


@dataclass
class Storm:
    """One storm that is over."""

    outcomes: list[Outcome]
    books: list[Entry]
    batch: BudgetEnforcer
    verdict: Verdict
    seconds: float


def storm(runs: int, threads: int, seed: int, progress: Callable[[int], None] = lambda _: None) -> Storm:
    """All runs at once on so many threads, and the judgement of what the server wrote down."""
    started = time.monotonic()
    batch = BudgetEnforcer(
        Limits(int(BATCH_CALLS_A_RUN * runs), BATCH_MICROUSD_A_RUN * runs), Prices(0, 0), scope="batch"
    )
    with server_process(seed) as doors, ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(drive, plan_run(seed, number), seed, doors, batch) for number in range(runs)]
        outcomes = []
        for done, future in enumerate(as_completed(futures), 1):
            outcomes.append(future.result())
            progress(done)
        books = [Entry(**line) for line in ask_server(doors.port, "/books")]
    outcomes.sort(key=lambda outcome: outcome.plan.number)
    verdict = judge(outcomes, books, batch)
    verdict.violations += _verifier_faults(outcomes)
    return Storm(outcomes, books, batch, verdict, time.monotonic() - started)


@contextmanager
def server_process(seed: int) -> Iterator[Doors]:
    """The server, in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "benchmarks.storm_server", "--seed", str(seed)]
    with (
        Doors.closed() as nobody,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None  # noqa: S101  both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            ports = json.loads(process.stdout.readline())
            yield Doors(ports["port"], ports["reset_port"], nobody.getsockname()[1])
        finally:
            process.stdin.close()


def _verifier_faults(outcomes: list[Outcome]) -> list[str]:
    """`main.py verify` over the runs of the loop: a run that kept its caps must be seen to have kept them."""
    return [
        f"run {outcome.plan.number}: verify rejects the trace: {fault}"
        for outcome in outcomes
        if outcome.state is not None and outcome.crash is None
        for fault in verify(outcome.state)
    ]


# -- saying so --------------------------------------------------------------------------------------------------------


def report(result: Storm) -> str:
    """The whole result as lines of text."""
    verdict, limits = result.verdict, result.batch.limits
    refused = sum(outcome.refused_by_batch for outcome in result.outcomes)
    spent, allowed = float(verdict.microusd) / 1e6, (limits.max_cost_microusd or 0) / 1e6
    ledger = result.batch
    lines = [
        f"{len(result.outcomes):,} runs in {result.seconds:.0f} s; {refused:,} of them met the batch's caps.",
        f"By the server's books: {verdict.calls:,} of {limits.max_calls:,} calls, ${spent:.6f} of ${allowed:.6f}.",
        f"Of them for vectors: {verdict.vector_calls:,} calls, ${float(verdict.vector_microusd) / 1e6:.6f}.",
        f"By the ledger: {ledger.calls_used:,} calls, ${ledger.committed_microusd / 1e6:.6f}.",
        f"The server broke its cap: {verdict.overshoots:,} calls.",
        f"Too low a bound after counts that leave cached tokens out (old servers): {verdict.undercounted:,} calls.",
        f"What the broken caps cost beyond their reservations: ${float(verdict.excess) / 1e6:.6f}.",
        "Settled as: " + _tally(verdict.settled),
        "The server was: " + _tally(verdict.behaviours),
        "Asked for vectors: " + _tally(verdict.vector_behaviours),
        "Refused for money, and admitted had the prompt been counted exactly:",
        *refusal_lines([refusal for outcome in result.outcomes for refusal in outcome.refusals]),
        *(f"VIOLATION {fault}" for fault in verdict.violations[:SHOWN_VIOLATIONS]),
    ]
    count = len(verdict.violations)
    lines.append(f"FAIL: {count:,} violations" if count else "PASS: every cap held, every overshoot ended its run")
    return "\n".join(lines)


def _tally(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counter.most_common())


def refusal_lines(refusals: list[Refusal]) -> Iterator[str]:
    """One line for each kind of bound."""
    for kind in ("exact", "grown", "sent_bytes", "texts"):
        of_kind = [refusal for refusal in refusals if refusal.kind == kind]
        admitted = sum(refusal.admitted_by_exact for refusal in of_kind)
        share = f"{admitted / len(of_kind):6.1%}" if of_kind else "     -"
        yield f"  {kind:10} {share}  ({admitted:,} of {len(of_kind):,})"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Do the caps hold by the server's own count?")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)

    def progress(done: int) -> None:
        if done % 100 == 0 or done == given.runs:
            print(f"\r{done:,} of {given.runs:,} runs", end="", file=sys.stderr, flush=True)

    result = storm(given.runs, given.threads, given.seed, progress)
    print(file=sys.stderr)
    print(report(result))
    return 1 if result.verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
