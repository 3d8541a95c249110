"""What the storm's model says, and how its server misbehaves. Both are drawn from the seed, the run and the call."""

from __future__ import annotations

import json
from random import Random

# How often a server does what, by weight. The first is a server as it should be.
BEHAVIOURS = {
    "honest": 52,
    "no_counts": 4,
    "no_prompt_count": 3,
    "no_completion_count": 3,
    "zero_counts": 2,
    "odd_counts": 2,  # texts, fractions, negative numbers, NaN where a count should be
    "over_cap": 3,  # it ignores num_predict, and says so in its count
    "over_cap_no_prompt_count": 1,
    "hangup_before": 3,
    "hangup_within": 3,
    "hangup_after": 3,  # the whole reply, and then a broken connection
    "reset_within": 2,
    "slow": 3,
    "busy": 2,
    "crash": 3,
    "gateway": 1,
    "refused_request": 1,
    "tool_call_error": 1,
    "garbage": 2,
    "invalid_bytes": 2,  # the model writes bytes that are no UTF-8
    "empty": 1,
    "load": 1,
    "redirect": 1,
    "no_end": 2,
    "error_line": 2,
    "running_counts": 2,  # a stream that counts as it goes, and breaks off
}
# The same where it is asked for vectors.
VECTOR_BEHAVIOURS = {
    "honest": 48,
    "no_counts": 5,
    "zero_counts": 2,
    "odd_counts": 3,
    "over_bound": 5,  # it reads more than the texts can be, and says so in its count
    "hangup_before": 3,
    "hangup_within": 3,
    "hangup_after": 3,
    "reset_within": 2,
    "slow": 3,
    "busy": 3,
    "crash": 3,
    "gateway": 2,
    "refused_request": 1,
    "tool_call_error": 1,  # a refusal in words that elsewhere tell of a model's mistake
    "garbage": 2,
    "redirect": 1,
    "fewer_vectors": 2,
    "more_vectors": 2,
    "uneven_vectors": 2,
    "no_vectors": 1,
}
OVER_CAP = frozenset({"over_cap", "over_cap_no_prompt_count", "over_bound"})

VECTOR_LENGTH = 8

_PLAIN = ["the", "budget", "holds", "and", "every", "call", "was", "counted", "before", "it", "left", "so", "on"]
_FOREIGN = ["größer", "naïve", "東京", "Москва", "🙂", "👩\u200d👩\u200d👧", "\N{ZERO WIDTH JOINER}"]
_NASTY = ["{}", "[]", "\\n", '"quoted"', "<|im_end|>", "</tool_call>", "\t", "\u2028", "\x00", "1e-9", "3.14159", "42"]
_WORDS = [*_PLAIN, *_FOREIGN, *_NASTY]
_GARBAGE = (
    "",
    "<html><body>nginx</body></html>",
    "[1, 2, 3]",
    "null",
    '{"done": tr',
    "\x00\x01\x02",
    "{" * 5000,
    '"x"',
)


def behaviour(rng: Random, *, impatient: bool, embeds: bool) -> str:
    """What the server does with one request; towards impatient clients it is often slow.

    It keeps its caps towards those: they may have left before they can be told that it did not.
    """
    if impatient and rng.random() < 0.4:
        return "slow"
    behaviours = VECTOR_BEHAVIOURS if embeds else BEHAVIOURS
    drawn = rng.choices(list(behaviours), weights=list(behaviours.values()))[0]
    return "honest" if impatient and drawn in OVER_CAP else drawn


def text(rng: Random, kind: str) -> str:
    """What the model says: a turn of the react contract, or prose."""
    return _react_turn(rng) if kind == "react" else words(rng, rng.choice((3, 20, 80, 300)))


def words(rng: Random, number: int) -> str:
    """Random words in several scripts, with what parsers stumble over."""
    return " ".join(rng.choices(_WORDS, k=number))


def garbage(rng: Random) -> str:
    """A body that is no reply."""
    return rng.choice(_GARBAGE)


def odd_count(rng: Random) -> str:
    """JSON that stands where a count should, and is none."""
    return rng.choice(('"12"', "-5", "NaN", "1.5", "true", "[7]", "{}", "1e400", "null"))


def vectors(rng: Random, number: int, behaviour: str) -> list[list[float]]:
    """That many vectors, or what a server takes for them."""
    number += {"fewer_vectors": -1, "more_vectors": 1, "no_vectors": -number}.get(behaviour, 0)
    found = [[rng.uniform(-1.0, 1.0) for _ in range(VECTOR_LENGTH)] for _ in range(number)]
    if behaviour == "uneven_vectors":
        rng.choice(found).clear()
    return found


def _react_turn(rng: Random) -> str:
    draw = rng.random()
    if draw < 0.08:
        return words(rng, 30)
    if draw < 0.14:
        return '{"progress_check": "on_track", "thought": "unfinished'
    action, answer = None, None
    if draw < 0.24:
        answer = words(rng, rng.choice((2, 60)))
    else:
        action = {"tool": "calculate_math", "args": {"expression": _expression(rng)}}
    if draw > 0.95:
        action = {"tool": "no_such_tool", "args": {}}
    return json.dumps(
        {
            "progress_check": rng.choice(("on_track", "on_track", "on_track", "stuck", "done")),
            "thought": words(rng, rng.choice((4, 25))),
            "action": action,
            "final_answer": answer,
        },
        ensure_ascii=rng.random() < 0.5,
    )


def _expression(rng: Random) -> str:
    if rng.random() < 0.15:
        return rng.choice(("1 + 1", "1 / 0", "9**9**9", "import os", "(" * 60))
    return f"{rng.randint(1, 10**6)} {rng.choice('+-*/%^')} {rng.randint(1, 9)}"
