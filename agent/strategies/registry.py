"""The strategies by name."""

from __future__ import annotations

from collections.abc import Callable

from agent.strategies.base import Strategy
from agent.strategies.react import React
from agent.tools.registry import ToolRegistry

STRATEGIES: dict[str, Callable[[ToolRegistry], Strategy]] = {React.name: React}


def make_strategy(name: str, tools: ToolRegistry) -> Strategy:
    """A new instance for one run. Settings and suites have checked the name."""
    return STRATEGIES[name](tools)
