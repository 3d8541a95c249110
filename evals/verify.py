"""Did a run keep its promises? Worked out again from its trace alone.

It shows consistency: a trace in which a call was dropped, doubled or reordered, or in which a usage, price, limit,
bound, reservation or charge was changed, contradicts itself, even where indexes and sums were made to fit. It cannot
know who wrote the file. Last, a trace of this very code (its hash stands in it) is replayed from its raw replies and
recorded tool results: every step, call, charge and ending must come out the same, and so must the files, which are
written again where no program ran in the workspace. One of other code is not replayed; `--strict` minds.

Not found out are: a run invented whole; the end cut off one that says it was cancelled, timed out, was ended by its
batch's cap, or by a server that counts prompts ahead and found none or one too long, since what is left is what such a
run leaves; a tool's result in the last step, which no prompt repeats; the texts of a call for vectors, but for their
bytes, and how long its vectors were; what a program left in the workspace; what a
batch's money is said to have left; whatever is written anew throughout: a limit, a price or a tool's result with every
prompt, charge and reply that follows from it, or the counts of a call with its raw reply and all that comes after; the
model's name, and how long things took; and, where the code's hash was changed, all that only the replay shows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import UsageError
from agent.state import AgentState
from evals.asserts import judged_again
from evals.replay import heads_differ, replay, why_not
from evals.traces import load, trace_paths
from evals.verify_ending import ending_faults
from evals.verify_files import file_faults
from evals.verify_history import history_faults
from evals.verify_ledger import ledger_faults
from evals.verify_steps import shortened, step_faults

log = logging.getLogger("shoestring")


@dataclass(frozen=True)
class Checked:
    """One trace file and what is wrong with it, a line each; nothing where it kept every promise."""

    path: Path
    faults: tuple[str, ...]
    not_replayed: str | None = None


def verify(state: AgentState) -> list[str]:
    """The promises that a run broke, one line each; empty where it kept them all."""
    checks = (_shape, step_faults, ledger_faults, history_faults, ending_faults, file_faults, _verdict)
    faults = [line for check in checks for line in check(state)]
    if not faults and why_not(state) is None:
        faults = [line for line in (heads_differ(state),) if line is not None]
        if not faults and (difference := replay(state).difference):
            faults = [f"replayed: {difference}"]
    # Texts of the trace stand in some lines, and whoever changed it may have broken them.
    return [" ".join(line.split()) for line in faults]


def verify_paths(paths: Iterable[Path]) -> list[Checked]:
    """Every trace under these folders or files, checked. One that cannot be read is a fault of its own.

    Raises:
        UsageError: a path does not exist, or there is no trace at all.
    """
    targets = list(paths)
    files = [file for target in targets for file in trace_paths(target)]
    if not files:
        raise UsageError(f"{', '.join(map(str, targets))}: no trace to verify (*.json); run a task first")
    seen: dict[str, Path] = {}
    return [_check_file(file, seen) for file in files]


def _check_file(path: Path, seen: dict[str, Path]) -> Checked:
    try:
        state = load(path)
    except UsageError as error:
        return Checked(path, (str(error).removeprefix(f"{path}: "),))
    try:
        return Checked(path, tuple(_file_faults(path, state, seen)), why_not(state))
    except Exception:  # one file that trips a bug of ours must not hide what is wrong with the others
        log.exception("%s: a bug of Shoestring kept it from being checked", path)
        return Checked(path, ("a bug of Shoestring kept it from being checked; its traceback stands in the log",))


def _file_faults(path: Path, state: AgentState, seen: dict[str, Path]) -> Iterator[str]:
    earlier = seen.setdefault(state.run_id, path)
    if earlier != path:
        yield f"run_id: the same run stands in {earlier.name}"
    yield from verify(state)


# -- shape ------------------------------------------------------------------------------------------------------------


def _shape(state: AgentState) -> Iterator[str]:
    """Indexes run from 0 without a gap, ledger and calls are one to one, every call has the run's settings."""
    for name, records in (("calls", state.calls), ("ledger", state.ledger), ("steps", state.steps)):
        indexes = [record.index for record in records]
        if indexes != list(range(len(indexes))):
            yield f"{name}: indexes are {shortened(indexes)}, not 0 to {len(indexes) - 1}"
    unsettled = [entry.index for entry in state.ledger if entry.settled_as == "open"]
    if unsettled and not _was_cut_short(state, unsettled):
        yield f"ledger[{unsettled[0]}]: was never settled"
    noted = len(state.calls) + (1 if unsettled else 0)
    if not len(state.calls) <= len(state.ledger) <= noted:
        yield f"ledger: has {len(state.ledger)} entries for {len(state.calls)} calls"
    sampling = state.sampling
    for place, call in enumerate(state.calls):
        if (call.temperature, call.seed, call.num_ctx) != (sampling.temperature, sampling.seed, sampling.num_ctx):
            yield f"calls[{place}]: temperature, seed or num_ctx are not the run's"
        times = (call.timing.total, call.timing.load, call.timing.prompt, call.timing.completion)
        if any(time is not None and not 0 <= time < math.inf for time in times):
            yield f"calls[{place}]: has a time that is no duration"


def _was_cut_short(state: AgentState, unsettled: list[int]) -> bool:
    """A stop, or a fault of ours, may fall between a reservation and its settlement: once, at the end."""
    stopped = state.status == "cancelled" or (state.error is not None and state.error.fault == "harness")
    return stopped and unsettled == [len(state.ledger) - 1]


def _verdict(state: AgentState) -> Iterator[str]:
    """A pass rests on asserts that all held, a failure on one that did not, and what could not be judged on the end."""
    verdict = state.verdict
    if verdict is None:
        return
    for place, line in enumerate(verdict.asserts):
        if judged_again(state, line) not in (None, line.passed):
            yield f"verdict: assert {place + 1} ({line.type}) says passed={line.passed}, and judged again it is not"
    held = [line.passed for line in verdict.asserts]
    could_not = state.status in ("running", "error", "cancelled") or state.ended_by == "batch"
    if (verdict.outcome == "invalid") != could_not:
        yield f"verdict: {verdict.outcome}, and the run ended as {state.status}"
    elif verdict.outcome == "pass" and not (held and all(held)):
        yield "verdict: pass, and an assert did not hold, or there is none"
    elif verdict.outcome == "fail" and all(held):
        yield "verdict: fail, and every assert held"
