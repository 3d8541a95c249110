"""The line that tells a model what it may still spend. It rides at the end of the last user message of every call.

A trace's verifier reads it back: what the model was told must agree with the ledger.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CALLS = r"(?:(\d+) of (\d+) calls|any number of calls)"
_MONEY = r"(?:\$(\d+)\.(\d{6}) of \$(\d+)\.(\d{6})|any amount)"
_LINE = re.compile(rf"Budget: {_CALLS}, {_MONEY} left\.")


class BudgetLeft(NamedTuple):
    """What a budget line says: calls and micro-dollars left, and the caps; None where there is no cap."""

    calls_left: int | None
    max_calls: int | None
    microusd_left: int | None
    max_cost_microusd: int | None


def budget_line(left: BudgetLeft) -> str:
    """One line of text, exact to the micro-dollar."""
    calls = "any number of calls" if left.max_calls is None else f"{left.calls_left} of {left.max_calls} calls"
    if left.max_cost_microusd is None or left.microusd_left is None:
        return f"Budget: {calls}, any amount left."
    return f"Budget: {calls}, {usd(left.microusd_left)} of {usd(left.max_cost_microusd)} left."


def usd(microusd: int) -> str:
    """Micro-dollars as dollars with all six decimals."""
    return f"${microusd // 1_000_000}.{microusd % 1_000_000:06d}"


def parse_budget_line(text: str) -> BudgetLeft | None:
    """The last line of `text` read back, or None where it is not a budget line.

    Only the last line counts: what stands above it may be a page or a model's words that imitate one.
    """
    match = _LINE.fullmatch(text.rsplit("\n", 1)[-1])
    if match is None:
        return None
    calls_left, max_calls, left_usd, left_micro, max_usd, max_micro = match.groups()
    return BudgetLeft(
        None if max_calls is None else int(calls_left),
        None if max_calls is None else int(max_calls),
        None if max_usd is None else int(left_usd) * 1_000_000 + int(left_micro),
        None if max_usd is None else int(max_usd) * 1_000_000 + int(max_micro),
    )
