"""The strategies by name."""

from __future__ import annotations

from collections.abc import Callable

from agent.strategies.auto import Auto
from agent.strategies.base import Strategy
from agent.strategies.dispatch import Dispatch
from agent.strategies.native import Native
from agent.strategies.pipeline import Pipeline
from agent.strategies.react import React
from agent.strategies.two_phase import TwoPhase
from agent.tools.registry import ToolRegistry

STRATEGIES: dict[str, Callable[[ToolRegistry, int], Strategy]] = {
    Auto.name: Auto,
    React.name: React,
    Native.name: Native,
    Pipeline.name: Pipeline,
    TwoPhase.name: TwoPhase,
    Dispatch.name: Dispatch,
}


def make_strategy(name: str, tools: ToolRegistry, max_completion_tokens: int) -> Strategy:
    """A new instance for one run, whose replies are capped so. Settings and suites have checked the name."""
    return STRATEGIES[name](tools, max_completion_tokens)
