"""Regular expressions of suites, with a bound on what matching one may cost.

Python's engine backtracks: `(a+)+b` against a model's long answer would hang a batch, and nothing can interrupt it.
So a pattern's worst number of backtracking ways is counted when the suite is loaded, and one that could cost more
than `MAX_STEPS` on a text of `MAX_TEXT` characters is refused: one `*` or `+` is free, a second one needs an upper
bound (`.{0,80}`), and alternatives inside a repeat need a small one. (`google-re2` would need no such rule; this keeps
Python's own syntax and one dependency fewer.)
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

MAX_TEXT = 4_000  # characters of a text that are searched
MAX_PATTERN = 500
MAX_STEPS = 1_000_000_000  # a few seconds in C, where a text is made to hurt

_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P<\w+>|<[=!]|[a-zA-Z-]*:|[=!>])?)?|[)|]|"
    r"(?:[*+?]|\{[0-9]*,?[0-9]*\})[?+]?|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"(?:(?P<sign>[*+?])|\{(?P<low>[0-9]*)(?P<comma>,?)(?P<high>[0-9]*)\})[?+]?")


@dataclass(frozen=True)
class _Cost:
    """How many ways there are to match a piece of a pattern, and how many characters one way compares."""

    ways: int = 1
    size: int = 0

    def then(self, other: _Cost) -> _Cost:
        """One piece after the other: every way of the first meets every way of the second."""
        return _Cost(min(self.ways * other.ways, MAX_STEPS + 1), self.size + other.size)

    def instead(self, other: _Cost) -> _Cost:
        """Either piece: the ways of both."""
        return _Cost(self.ways + other.ways, self.size + other.size)

    def repeated(self, low: int, high: int) -> _Cost:
        """A piece `low` to `high` times: the ways of every allowed count, added up."""
        unbounded = high >= MAX_TEXT
        size = self.size * (low + 1 if unbounded else high)
        if self.ways == 1:
            return _Cost(high - low + 1, size)
        ways = 0
        for count in range(low, high + 1):
            ways += self.ways ** min(count, 64)
            if ways > MAX_STEPS:
                break
        return _Cost(min(ways, MAX_STEPS + 1), size)


@dataclass
class _Group:
    """A group that is being read: its finished alternatives, the current one, and that one's last item."""

    others: _Cost | None = None
    current: _Cost = _Cost()
    last: _Cost = _Cost()

    def add(self, item: _Cost) -> None:
        """A further item follows."""
        self.current, self.last = self.current.then(self.last), item

    def total(self) -> _Cost:
        """All alternatives together."""
        whole = self.current.then(self.last)
        return whole if self.others is None else self.others.instead(whole)


def _cost(pattern: str) -> _Cost:
    stack = [_Group()]
    for piece in _PIECE.findall(pattern):
        if piece.startswith("("):
            stack.append(_Group())
        elif piece == ")":
            group = stack.pop()
            stack[-1].add(group.total())
        elif piece == "|":
            stack[-1] = _Group(others=stack[-1].total())
        elif (repeat := _REPEAT.fullmatch(piece)) and piece != "{}":
            stack[-1].last = stack[-1].last.repeated(*_bounds(repeat))
        else:
            stack[-1].add(_Cost(size=1))
    return stack[0].total()


def bounded_pattern(pattern: str) -> str:
    """The pattern itself, when it compiles and its worst cost is bounded.

    Raises:
        ValueError: it does not; the message says why and how to mend it.
    """
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern may have {MAX_PATTERN} characters, not {len(pattern)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns where a set such as [a||b] may change its meaning
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    # Comments and verbose mode would need a second grammar here; back-references cost what cannot be counted.
    if re.search(r"\(\?#|\(\?[a-zA-Z-]*x|\(\?P=|\\[1-9]|\(\?\(", pattern):
        raise ValueError("leave out comments, (?x), back-references and conditions: their cost cannot be bounded")
    cost = _cost(pattern)
    if MAX_TEXT * cost.ways * max(1, cost.size) > MAX_STEPS:
        raise ValueError("it may backtrack too long; give all but one * or + an upper bound, such as .{0,80}")
    return pattern


def search(pattern: str, text: str, *, case_sensitive: bool) -> bool:
    """Whether a bounded pattern is found in the first `MAX_TEXT` characters; `.` matches line ends too."""
    flags = re.DOTALL if case_sensitive else re.DOTALL | re.IGNORECASE
    return re.search(pattern, text[:MAX_TEXT], flags) is not None


def _bounds(repeat: re.Match[str]) -> tuple[int, int]:
    if repeat["sign"]:
        return {"*": (0, MAX_TEXT), "+": (1, MAX_TEXT), "?": (0, 1)}[repeat["sign"]]
    low = min(int(repeat["low"] or 0), MAX_TEXT)
    if not repeat["comma"]:
        return low, low
    return low, min(int(repeat["high"]), MAX_TEXT) if repeat["high"] else MAX_TEXT
