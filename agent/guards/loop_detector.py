"""Notices a call that was already made in this run: the same tool with the same arguments, in any order of keys."""

from __future__ import annotations

import json

from agent.state import ToolCall


def call_key(call: ToolCall) -> str:
    """The same for identical calls only: white space and letter case are meaning, in a program above all."""
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, ensure_ascii=True)}"


class LoopDetector:
    """Remembers the calls of one run."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def earlier_step(self, call: ToolCall) -> int | None:
        """The index of the step that made this call before, or None."""
        return self._seen.get(call_key(call))

    def remember(self, call: ToolCall, step: int) -> None:
        """Note a call that is executed in that step."""
        self._seen.setdefault(call_key(call), step)

    def forget(self, *calls: ToolCall) -> None:
        """Let these calls be made again."""
        for call in calls:
            self._seen.pop(call_key(call), None)
