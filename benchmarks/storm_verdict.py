"""The server's books laid beside the client's ledgers. Its arithmetic is its own: exact fractions, nothing rounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from agent.budget import BudgetEnforcer, Prices
from agent.state import LedgerEntry
from benchmarks.storm_client import RunPlan
from benchmarks.storm_replies import Entry
from benchmarks.storm_workload import Outcome

ANSWER_TOKENS = 256  # of a final answer, which is kept back beside everything else


@dataclass
class Verdict:
    """What was found. `violations` is empty where every cap held."""

    calls: int = 0
    microusd: Fraction = Fraction(0)
    vector_calls: int = 0  # those among the calls that were for vectors, and what they cost
    vector_microusd: Fraction = Fraction(0)
    excess: Fraction = Fraction(0)  # what broken caps cost beyond their reservations
    overshoots: int = 0
    undercounted: int = 0  # calls beyond their bound, of servers that leave cached tokens out of their counts
    behaviours: Counter[str] = field(default_factory=Counter)
    vector_behaviours: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def judge(outcomes: Sequence[Outcome], books: Sequence[Entry], batch: BudgetEnforcer) -> Verdict:
    """Lay the books beside the ledgers, run by run and for the batch as a whole."""
    verdict = Verdict()
    by_run: dict[int, list[Entry]] = {outcome.plan.number: [] for outcome in outcomes}
    for entry in books:
        if entry.run not in by_run:
            verdict.violations.append(f"run {entry.run}: the server was called for a run that never was")
            continue
        by_run[entry.run].append(entry)
        (verdict.vector_behaviours if entry.embeds else verdict.behaviours)[entry.behaviour] += 1
    for outcome in outcomes:
        _judge_run(outcome, by_run[outcome.plan.number], verdict)
    verdict.violations += _batch_faults(outcomes, batch, verdict)
    return verdict


def cost(entry: Entry, prices: Prices) -> Fraction:
    """What the server's counts come to, in micro-dollars."""
    if entry.embeds:
        return Fraction(entry.prompt * prices.embedding_microusd_per_1k, 1000)
    nano = entry.prompt * prices.prompt_microusd_per_1k + entry.completion * prices.completion_microusd_per_1k
    return Fraction(nano, 1000)


def _judge_run(outcome: Outcome, calls: list[Entry], verdict: Verdict) -> None:
    for stranger in (call for call in calls if call.call >= len(outcome.entries)):
        verdict.violations.append(f"run {outcome.plan.number}: call {stranger.call} stands in no ledger")
    calls = [call for call in calls if call.call < len(outcome.entries)]
    costs = [cost(call, outcome.plan.prices) for call in calls]
    excess = sum((_excess(outcome, call, spent) for call, spent in zip(calls, costs, strict=True)), Fraction(0))
    verdict.calls += len(calls)
    verdict.microusd += sum(costs)
    verdict.excess += excess
    verdict.vector_calls += sum(call.embeds for call in calls)
    verdict.vector_microusd += sum(spent for call, spent in zip(calls, costs, strict=True) if call.embeds)
    verdict.overshoots += sum(_broke_its_cap(outcome, call) for call in calls)
    verdict.undercounted += sum(_is_undercounted(outcome, call) for call in calls)
    verdict.settled.update(entry.settled_as for entry in outcome.entries)
    faults = [*_cap_faults(outcome, calls, sum(costs, Fraction(0)), excess), *_ledger_faults(outcome)]
    faults += _kept_back_faults(outcome)
    for place, call in enumerate(calls):
        faults += _call_faults(outcome, call, is_last=place == len(calls) - 1)
    verdict.violations += [f"run {outcome.plan.number} ({outcome.plan.model}): {fault}" for fault in faults]


def _broke_its_cap(outcome: Outcome, call: Entry) -> bool:
    """Whether the server took more than it was allowed: words beyond num_predict, or tokens that no texts can be."""
    if call.embeds:
        return call.behaviour == "over_bound" and call.prompt > outcome.entries[call.call].prompt_tokens_bound
    return call.completion > call.num_predict


def _excess(outcome: Outcome, call: Entry, spent: Fraction) -> Fraction:
    """What a call cost beyond its reservation where the server broke its cap: only that may pass a cap of ours."""
    if _broke_its_cap(outcome, call):
        return max(Fraction(0), spent - outcome.entries[call.call].reserved_microusd)
    return Fraction(0)


def _is_undercounted(outcome: Outcome, call: Entry) -> bool:
    """Whether an earlier count that left cached tokens out made this call's bound too low."""
    uncached = outcome.plan.habit == "uncached" and not call.embeds
    return uncached and call.prompt > outcome.entries[call.call].prompt_tokens_bound


def _cap_faults(outcome: Outcome, calls: list[Entry], spent: Fraction, excess: Fraction) -> Iterator[str]:
    limits = outcome.plan.limits
    if outcome.crash:
        yield f"crashed: {outcome.crash}"
    if limits.max_calls is not None and len(calls) > limits.max_calls:
        yield f"the server counted {len(calls)} calls, and the cap is {limits.max_calls}"
    if limits.max_cost_microusd is not None and spent - excess > limits.max_cost_microusd:
        yield f"the server counted {float(spent)} micro-dollars, and the cap is {limits.max_cost_microusd}"
    if len({call.call for call in calls}) < len(calls):
        yield "one call of the ledger reached the server twice"


def _ledger_faults(outcome: Outcome) -> Iterator[str]:
    """What the ledger and the gate must agree on by themselves."""
    entries = outcome.entries
    if len(entries) != len(outcome.doors):
        yield f"{len(entries)} reservations, and {len(outcome.doors)} requests were sent"
    for entry, door in zip(entries, outcome.doors, strict=False):
        if entry.settled_as == "open":
            yield f"call {entry.index} was never settled"
        if door == "closed" and entry.settled_as != "refunded":
            yield f"call {entry.index} was sent to a port where nobody listens, and is {entry.settled_as}"
    cap = outcome.plan.limits.max_cost_microusd
    if cap is not None and _kept(entries) > cap:
        yield f"the ledger says {_kept(entries)} micro-dollars without its overshoots, and the cap is {cap}"
    if sum(entry.settled_microusd for entry in entries) != outcome.committed_microusd:
        yield "the ledger's sum is not what the gate has committed"


def _kept_back_faults(outcome: Outcome) -> Iterator[str]:
    """A call for vectors leaves the run its last call, and what an answer to the conversation so far costs."""
    calls, spent, conversation = 0, 0, 0
    for entry in outcome.entries:
        if entry.purpose == "embed":
            yield from _taken_from_the_answer(outcome.plan, entry, calls, spent, conversation)
        else:
            conversation = entry.prompt_tokens_bound + entry.max_completion_tokens
        calls += entry.settled_as != "refunded"
        spent += entry.settled_microusd


def _taken_from_the_answer(
    plan: RunPlan, entry: LedgerEntry, calls: int, spent: int, conversation: int
) -> Iterator[str]:
    """`calls` and `spent` were so many before this call; of `conversation` tokens is the prompt of an answer."""
    limits, prices = plan.limits, plan.prices
    if limits.max_calls is not None and calls + 2 > limits.max_calls:
        yield f"call {entry.index} is for vectors, and took the last of {limits.max_calls} calls"
    nano = entry.prompt_tokens_bound * prices.embedding_microusd_per_1k
    nano += conversation * prices.prompt_microusd_per_1k + ANSWER_TOKENS * prices.completion_microusd_per_1k
    if limits.max_cost_microusd is not None and spent + Fraction(nano, 1000) > limits.max_cost_microusd:
        yield f"call {entry.index} is for vectors, and the money left after it pays for no answer"


def _kept(entries: Sequence[LedgerEntry]) -> int:
    """What a ledger charged within its reservations: overshoots are charged beyond, in full."""
    return sum(min(entry.settled_microusd, entry.reserved_microusd) for entry in entries)


def _call_faults(outcome: Outcome, call: Entry, *, is_last: bool) -> Iterator[str]:
    what = f"call {call.call} ({call.behaviour})"
    entry, spent = outcome.entries[call.call], cost(call, outcome.plan.prices)
    if entry.settled_as == "refunded":
        yield f"{what}: was given back, and the server had read it"
    if call.num_predict != entry.max_completion_tokens:
        yield f"{what}: num_predict was {call.num_predict}, and {entry.max_completion_tokens} tokens were reserved"
    if call.embeds != (entry.purpose == "embed"):
        yield f"{what}: the server saw another kind of call than the ledger, which says {entry.purpose}"
    if _broke_its_cap(outcome, call):
        yield from _overshoot_faults(what, entry, is_last=is_last and call.call == len(outcome.entries) - 1)
    elif _is_undercounted(outcome, call):  # where the server gave no count either, nobody can know
        if entry.settled_as == "overshoot" and call.call != len(outcome.entries) - 1:
            yield f"{what}: an overshoot was recorded, and the run went on"
    elif spent > entry.reserved_microusd or call.prompt > entry.prompt_tokens_bound:
        yield (
            f"{what}: the server read {call.prompt} tokens, and the bound was {entry.prompt_tokens_bound}"
            f" ({entry.bound_kind})"
        )
    if entry.settled_microusd < spent and not _is_undercounted(outcome, call):
        yield f"{what}: charged {entry.settled_microusd} ({entry.settled_as}), and the server counted {float(spent)}"


def _overshoot_faults(what: str, entry: LedgerEntry, *, is_last: bool) -> Iterator[str]:
    if entry.settled_as != "overshoot":
        yield f"{what}: the server broke its cap, and the ledger says {entry.settled_as}"
    if not is_last:
        yield f"{what}: the server broke its cap, and the run went on"


def _batch_faults(outcomes: Sequence[Outcome], batch: BudgetEnforcer, verdict: Verdict) -> Iterator[str]:
    limits = batch.limits
    if limits.max_calls is not None and verdict.calls > limits.max_calls:
        yield f"batch: the server counted {verdict.calls} calls, and the cap is {limits.max_calls}"
    if limits.max_cost_microusd is not None and verdict.microusd - verdict.excess > limits.max_cost_microusd:
        yield f"batch: the server counted {float(verdict.microusd)} micro-dollars of {limits.max_cost_microusd}"
    kept = sum(_kept(outcome.entries) for outcome in outcomes)
    if limits.max_cost_microusd is not None and kept > limits.max_cost_microusd:
        yield f"batch: the ledgers say {kept} micro-dollars of {limits.max_cost_microusd} without their overshoots"
    if limits.max_calls is not None and batch.calls_used > limits.max_calls:
        yield f"batch: its gate admitted {batch.calls_used} calls of {limits.max_calls}"
    if sum(outcome.committed_microusd for outcome in outcomes) != batch.committed_microusd:
        yield "batch: the sum of its runs is not what its gate has committed"
    charged = sum(entry.settled_as != "refunded" for outcome in outcomes for entry in outcome.entries)
    if charged != batch.calls_used:
        yield f"batch: its runs hold {charged} calls, and its gate {batch.calls_used}"
