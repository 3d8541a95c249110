"""The line that tells a model what it may still spend. It rides at the end of the last user message of every call.

A trace's verifier reads it back: what the model was told must agree with the ledger.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CALLS = r"(?:(\d+) of (\d+) calls|any number of calls)"
_MONEY = r"(?:\$(\d+)\.(\d{6}) of \$(\d+)\.(\d{6})|any amount)"
_SECONDS = r"(?: \(within (\d+(?:\.\d+)?) s in all\))?"
_LINE = re.compile(rf"Budget: {_CALLS}, {_MONEY} left{_SECONDS}\.")


class BudgetLeft(NamedTuple):
    """What a budget line says: calls and micro-dollars left, and the caps; None where there is no cap.

    Of the clock it says only the cap: seconds left would differ each time a run is replayed.
    """

    calls_left: int | None
    max_calls: int | None
    microusd_left: int | None
    max_cost_microusd: int | None
    max_seconds: float | None = None


def budget_line(left: BudgetLeft) -> str:
    """One line of text, exact to the micro-dollar."""
    calls = "any number of calls" if left.max_calls is None else f"{left.calls_left} of {left.max_calls} calls"
    money = "any amount"
    if left.max_cost_microusd is not None and left.microusd_left is not None:
        money = f"{usd(left.microusd_left)} of {usd(left.max_cost_microusd)}"
    seconds = "" if left.max_seconds is None else f" (within {_plain(left.max_seconds)} s in all)"
    return f"Budget: {calls}, {money} left{seconds}."


def _plain(seconds: float) -> str:
    """Seconds exact to the microsecond, without an exponent or needless zeros."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


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
    calls_left, max_calls, left_usd, left_micro, max_usd, max_micro, seconds = match.groups()
    return BudgetLeft(
        None if max_calls is None else int(calls_left),
        None if max_calls is None else int(max_calls),
        None if max_usd is None else int(left_usd) * 1_000_000 + int(left_micro),
        None if max_usd is None else int(max_usd) * 1_000_000 + int(max_micro),
        None if seconds is None else float(seconds),
    )
