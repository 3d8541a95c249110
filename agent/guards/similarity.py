"""How alike two search queries are, by their words alone: 1.0 where they ask for the same, towards 0.0 where not.

A query is reduced to the concepts that it names: words without case, accents and endings, words of one meaning as one,
and what a question word asks for. Concepts of both queries speak for a repeat, a concept of one alone against it, and
more so where the other has another in its place: that is how a model moves on, to another country, attribute or unit.
Nothing but the two texts goes in, so that a replayed run comes to the same scores.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from agent.guards.query_words import (
    ASKED_BY,
    ASKED_BY_HOW,
    NEGATIONS,
    STOP,
    choices_of,
    concept,
    is_light,
    number_of,
    one_form,
    turned,
)

MEASURE = "lexical"
THRESHOLD = 0.9  # from here on a query repeats another; how it was chosen: docs/benchmarks.md
MAX_CHARS = 400  # of a query that are looked at; web_search takes no more
_LIGHT_WEIGHT = 0.25
_MOST_SHARED = 3.0  # what is shared counts up to here: in a long query, too, one word more asks for something else
_TYPO = 0.9  # of a word's weight that is shared where one letter differs
_MOST_TYPOS = 4  # where more words of a query are in doubt, it is another query
_MIN_TYPO_CHARS = 6  # in shorter words one letter makes another word: Iran, Iraq
_EITHER_WAY = frozenset({"distance", "versus"})
_BEFORE_A_DEED = frozenset({"how", "what", "where", "when", "way", "ways", "need", "want", "used", "time", "season"})
# Numbers, and what stands between spaces and punctuation: marks are part of a word in many scripts, and of C++ and C#.
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\s\d_!\"$-*,-/:-@\[-`{-~\u00a1-\u00bf\u2000-\u206f\u3000-\u303f]+")


@dataclass(frozen=True)
class Profile:
    """What a query asks for: its concepts with their weights, and what a repeat must have just the same.

    `choices` are those that it makes between things that exclude one another, each with the sides that it takes.
    `before_to` and `after_to` are the concepts on either side of the word "to", where the query has it.
    """

    text: str
    concepts: dict[str, float]
    numbers: frozenset[str]
    negated: bool
    choices: dict[int, set[int]]
    before_to: frozenset[str]
    after_to: frozenset[str]


def lexical(a: str, b: str) -> float:
    """Between 0.0 and 1.0, the same in either order; 1.0 for equal texts, whatever they are."""
    return compare(profile(a), profile(b))


def profile(query: str) -> Profile:
    """Read a query, of any length and content; no more than MAX_CHARS of it are looked at."""
    text = query[:MAX_CHARS]
    written = _WORD.findall(one_form(text))
    words = [_folded(word) for word in written]
    named: dict[int, str] = {}
    numbers: set[str] = set()
    middle = len(words)  # where the word "to" stands
    for place, (before, word) in enumerate(pairwise(["", *words])):
        if number := number_of(word):
            numbers.add(number)
        elif name := _concept(word, before):
            named[place] = name
        elif word == "to" and before != "how":
            middle = min(middle, place)
    return Profile(
        text=text,
        concepts=_weights(written, named),
        numbers=frozenset(numbers),
        negated=not NEGATIONS.isdisjoint(words),
        choices=_choices(words, is_way=not _EITHER_WAY.isdisjoint(named.values())),
        before_to=frozenset(name for place, name in named.items() if place < middle),
        after_to=frozenset(name for place, name in named.items() if place > middle),
    )


def _folded(word: str) -> str:
    """Lower case, and Latin letters without their accents."""
    decomposed = unicodedata.normalize("NFKD", word.casefold())
    return "".join(char for char in decomposed if not "\u0300" <= char <= "\u036f") or word


def _concept(word: str, before: str) -> str | None:
    if before == "how" and word in ASKED_BY_HOW:
        return ASKED_BY_HOW[word]
    if word in ASKED_BY:
        return ASKED_BY[word]
    return None if word in STOP or word in NEGATIONS else concept(word)


def _choices(words: list[str], *, is_way: bool) -> dict[int, set[int]]:
    """The choices of all words; but a way is the same from either end, and "to" before a deed leads nowhere."""
    idle = {"to", "from"} if is_way else set()
    chosen: dict[int, set[int]] = {}
    for before, word in pairwise(["", *words]):
        if word not in idle and (word != "to" or before not in _BEFORE_A_DEED):
            for choice, side in choices_of(word):
                chosen.setdefault(choice, set()).add(side)
    return chosen


def _weights(written: list[str], named: dict[int, str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for place, name in named.items():
        weight = _LIGHT_WEIGHT if is_light(name) and not _is_proper(written, place) else 1.0
        weights[name] = max(weight, weights.get(name, 0.0))
    return weights


def _is_proper(written: list[str], place: int) -> bool:
    """Whether a word has the capital of a name (Mexico City). The first word has one anyway, as all in A Heading do."""
    capitals = sum(word[0].isupper() for word in written)
    return place > 0 and written[place][0].isupper() and 2 * capitals <= len(written)


def compare(a: Profile, b: Profile) -> float:
    """As `lexical`, for queries that were read before."""
    if a.text == b.text:
        return 1.0
    if a.numbers != b.numbers or a.negated != b.negated or _turned_round(a, b) or _choose_otherwise(a, b):
        return 0.0
    only_a, only_b = _without(a.concepts, b.concepts), _without(b.concepts, a.concepts)
    shared = _sum(max(weight, b.concepts[name]) for name, weight in a.concepts.items() if name in b.concepts)
    for left, right in _misspelt(only_a, only_b):
        shared += _TYPO * max(only_a.pop(left), only_b.pop(right))
    left_a, left_b = _sum(only_a.values()), _sum(only_b.values())
    shared = min(shared, _MOST_SHARED)
    whole = 2 * shared + left_a + left_b + 2 * min(left_a, left_b)  # one in place of another counts twice
    return 2 * shared / whole if whole else 0.0


def _sum(weights: Iterable[float]) -> float:
    """The sum, the same in any order: scores are compared to a threshold and kept in traces."""
    return math.fsum(weights)


def _without(concepts: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    return {name: weight for name, weight in concepts.items() if name not in others}


def _misspelt(only_a: dict[str, float], only_b: dict[str, float]) -> list[tuple[str, str]]:
    """Pairs of words that are one letter apart, each word in one pair at most."""
    if max(len(only_a), len(only_b)) > _MOST_TYPOS:
        return []
    free, pairs = sorted(only_b), []
    for left in sorted(only_a):
        right = next((word for word in free if _one_letter_apart(left, word)), None)
        if right is not None:
            free.remove(right)
            pairs.append((left, right))
    return pairs


def _one_letter_apart(a: str, b: str) -> bool:
    """One letter more, less or another; never the first, which people seldom get wrong."""
    if a[0] != b[0] or abs(len(a) - len(b)) > 1 or min(len(a), len(b)) < _MIN_TYPO_CHARS:
        return False
    same = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[same:], b[same:]
    is_near = rest_a[1:] == rest_b[1:] or rest_a[1:] == rest_b or rest_a == rest_b[1:]
    return is_near and not turned(a, b)


def _turned_round(a: Profile, b: Profile) -> bool:
    """Whether one leads from here to there and the other back: a rate, a journey, but not a distance."""
    if not _EITHER_WAY.isdisjoint(a.concepts.keys() | b.concepts.keys()):
        return False
    return not a.before_to.isdisjoint(b.after_to) and not a.after_to.isdisjoint(b.before_to)


def _choose_otherwise(a: Profile, b: Profile) -> bool:
    """Whether each names one of some things that exclude one another, and not the same: hot and cold, to and from."""
    return any(choice in b.choices and sides.isdisjoint(b.choices[choice]) for choice, sides in a.choices.items())
