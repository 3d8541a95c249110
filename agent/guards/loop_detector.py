"""Notices a call that repeats an earlier one of its run: the same call, or a search for the same in other words.

A call is the same with equal arguments in any order of keys. Searches are compared by meaning only where their tool
says which argument holds one; a program or an expression that was changed a little is a correction, not a repeat.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from agent.guards.similarity import MAX_CHARS, MEASURE, THRESHOLD, Profile, compare, profile
from agent.state import ToolCall

MAX_COMPARED = 64  # of the newest searches that differ in nothing else; a run may make many thousands


def call_key(call: ToolCall) -> str:
    """The same for identical calls only: white space and letter case are meaning, in a program above all."""
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, ensure_ascii=True)}"


@dataclass(frozen=True)
class Repeat:
    """An earlier call that a call repeats: in which step, how that was found, and how alike the two are.

    `measure` names what the likeness was measured with; `score` is from 0 to 1. Both are None for identical calls.
    """

    step: int
    guard: Literal["identical_call", "similar_call"]
    measure: str | None = None
    score: float | None = None


@dataclass(frozen=True)
class _Made:
    step: int
    kin: str | None  # what it has in common with calls that look for something else; None where it looks for nothing


class LoopDetector:
    """Remembers the calls of one turn of a run.

    `query` is what a call looks for in plain language, as it stands in one of its arguments; None where it has none.
    """

    def __init__(self) -> None:
        self._made: dict[str, _Made] = {}
        self._searches: dict[str, dict[str, Profile]] = {}  # by kin, then by call, oldest first

    def earlier(self, call: ToolCall, query: str | None = None) -> Repeat | None:
        """What this call repeats, the most alike where there are several; None where it is a new one."""
        made = self._made.get(call_key(call))
        if made is not None:
            return Repeat(made.step, "identical_call")
        searches = self._searches.get(_kin(call, query) or "")
        if query is None or not searches:
            return None
        asked = profile(query)
        scores = {key: round(compare(asked, search), 3) for key, search in searches.items()}
        key = max(scores, key=scores.__getitem__)
        if scores[key] < THRESHOLD:
            return None
        return Repeat(self._made[key].step, "similar_call", MEASURE, scores[key])

    def remember(self, call: ToolCall, step: int, query: str | None = None) -> None:
        """Note a call that is executed in that step. Of identical calls the first counts."""
        key = call_key(call)
        if key in self._made:
            return
        self._made[key] = made = _Made(step, _kin(call, query))
        if made.kin is None or query is None:
            return
        searches = self._searches.setdefault(made.kin, {})
        searches[key] = profile(query)
        if len(searches) > MAX_COMPARED:
            del searches[next(iter(searches))]

    def forget(self, *calls: ToolCall) -> None:
        """Let these calls be made again, in the same words or in others."""
        for key in map(call_key, calls):
            made = self._made.pop(key, None)
            if made is not None and made.kin is not None:
                self._searches[made.kin].pop(key, None)


def _kin(call: ToolCall, query: str | None) -> str | None:
    """The same for calls that differ in their query alone; None without one, or where it is too long to be compared."""
    if query is None or len(query) > MAX_CHARS:
        return None
    others = {name: None if value == query else value for name, value in call.arguments.items()}
    return call_key(call.model_copy(update={"arguments": others}))
