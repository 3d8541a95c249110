"""How well does the loop detector tell a search in other words from an honest new one? Measured on labelled pairs.

    python -m benchmarks.near_repeats

The pairs are in tests/fixtures/query_pairs.jsonl, one a line: two queries, whether the second repeats the first, and
what kind of pair they are, grouped by kind. The odd lines (the first, the third, ...) choose the threshold, the even
ones judge it. Exit code 1 where the detector's threshold is not the one that the odd lines choose, or where the even
lines show less than 95% precision or 60% recall.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from agent.guards.similarity import MEASURE, THRESHOLD, compare, lexical, profile

PAIRS = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "query_pairs.jsonl"
MIN_PRECISION = 0.95
MIN_RECALL = 0.60
CANDIDATES = tuple(hundredths / 100 for hundredths in range(50, 100))

Measure = Callable[[str, str], float]


@dataclass(frozen=True)
class Pair:
    """Two queries of one run, and whether the second asks for the same as the first."""

    a: str
    b: str
    repeat: bool
    kind: str


@dataclass(frozen=True)
class Rates:
    """What a threshold finds: repeats, new searches that it takes for one, repeats that it misses."""

    found: int
    false: int
    missed: int

    @property
    def precision(self) -> float:
        """Of what was taken for a repeat, the share that is one; 1.0 where nothing was."""
        return self.found / (self.found + self.false) if self.found + self.false else 1.0

    @property
    def recall(self) -> float:
        """Of the repeats, the share that was found."""
        return self.found / (self.found + self.missed) if self.found + self.missed else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.precision * self.recall / (self.precision + self.recall) if self.found else 0.0


def load_pairs() -> list[Pair]:
    """All pairs, in the order of their lines."""
    return [Pair(**json.loads(line)) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def choosing_half(pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The odd lines."""
    return pairs[0::2]


def judging_half(pairs: Sequence[Pair]) -> Sequence[Pair]:
    """The even lines."""
    return pairs[1::2]


def rates(pairs: Sequence[Pair], threshold: float, measure: Measure = lexical) -> Rates:
    """What is found where every score from the threshold on is taken for a repeat."""
    taken = [pair for pair in pairs if round(measure(pair.a, pair.b), 3) >= threshold]
    found = sum(pair.repeat for pair in taken)
    return Rates(found, len(taken) - found, sum(pair.repeat for pair in pairs) - found)


def choose(pairs: Sequence[Pair], measure: Measure = lexical) -> float:
    """The candidate with the best F1; of equals the highest, as a false repeat costs more than a missed one."""
    return max(CANDIDATES, key=lambda threshold: (rates(pairs, threshold, measure).f1, threshold))


def across(pairs: Sequence[Pair]) -> tuple[int, list[tuple[str, str, float]]]:
    """How many combinations of queries from two different pairs there are, and those taken for a repeat."""
    queries = [(place, query, profile(query)) for place, pair in enumerate(pairs) for query in (pair.a, pair.b)]
    compared, taken = 0, []
    for (place, query, read), (other_place, other, other_read) in combinations(queries, 2):
        if place != other_place:
            compared += 1
            score = compare(read, other_read)
            if score >= THRESHOLD:
                taken.append((query, other, score))
    return compared, taken


def _line(name: str, found: Rates) -> str:
    return (
        f"{name:24} precision {found.precision:.3f}  recall {found.recall:.3f}  F1 {found.f1:.3f}"
        f"  ({found.found} found, {found.false} false, {found.missed} missed)"
    )


def report(pairs: Sequence[Pair]) -> tuple[str, bool]:
    """The figures, and whether all demands are met."""
    chosen = choose(choosing_half(pairs))
    judged = rates(judging_half(pairs), THRESHOLD)
    demands = [
        (f"the odd lines choose {chosen}; the detector uses {THRESHOLD}", chosen == THRESHOLD),
        (f"precision of at least {MIN_PRECISION} on the even lines", judged.precision >= MIN_PRECISION),
        (f"recall of at least {MIN_RECALL} on the even lines", judged.recall >= MIN_RECALL),
    ]
    lines = [f"{len(pairs)} pairs, {sum(pair.repeat for pair in pairs)} of them repeats; measure: {MEASURE}"]
    lines += [_line("odd lines (choose)", rates(choosing_half(pairs), THRESHOLD)), _line("even lines (judge)", judged)]
    lines += ["", "by kind, even lines:"]
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        of_kind = [pair for pair in judging_half(pairs) if pair.kind == kind]
        taken = rates(of_kind, THRESHOLD)
        right = taken.found if of_kind[0].repeat else len(of_kind) - taken.false
        lines.append(f"  {kind:12} {right} of {len(of_kind)} right ({'repeats' if of_kind[0].repeat else 'new'})")
    lines += ["", *(f"{'PASS' if met else 'FAIL'}  {demand}" for demand, met in demands)]
    return "\n".join(lines), all(met for _, met in demands)


def main() -> int:
    """Print the figures; 0 where all demands are met."""
    pairs = load_pairs()
    text, met = report(pairs)
    print(text)
    started = time.perf_counter()
    compared, taken = across(pairs)
    micros = (time.perf_counter() - started) / compared * 1e6
    print(f"\n{compared:,} combinations across pairs, {micros:.1f} us each; taken for a repeat:")
    for query, other, score in taken:
        print(f"  {score:.2f}  {query} | {other}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
