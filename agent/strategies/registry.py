"""The strategies by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

from agent.errors import UsageError
from agent.strategies.auto import Auto
from agent.strategies.base import Strategy
from agent.strategies.dispatch import Dispatch
from agent.strategies.native import Native
from agent.strategies.pipeline import Pipeline
from agent.strategies.react import React
from agent.strategies.two_phase import TwoPhase
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset

# Makes the strategy of one run from its tools and the cap on a reply's tokens.
StrategyFactory = Callable[[ToolRegistry, int], Strategy]

STRATEGIES: dict[str, StrategyFactory] = {
    React.name: React,
    Native.name: Native,
    Pipeline.name: Pipeline,
    TwoPhase.name: TwoPhase,
    Dispatch.name: Dispatch,
    Auto.name: Auto,
}


_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def make_strategy(name: str, tools: ToolRegistry, max_completion_tokens: int) -> Strategy:
    """A new instance for one run, whose replies are capped so.

    Raises:
        UsageError: there is no such strategy; settings and suites are checked before, a trace's name is not.
    """
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise UsageError(f"no strategy {name[:40]!a}: there are {known}; one of your own is loaded with --plugin FILE")
    return STRATEGIES[name](tools, max_completion_tokens)


def register_strategy(name: str, factory: StrategyFactory) -> None:
    """Offer a strategy of a person's own. One is made at once, for the core tools, to see whether it can be used.

    Raises:
        UsageError: the name cannot be used, or what the factory makes is no Strategy.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"no strategy can be called {name[:40]!a}: use small letters, digits and _")
    if STRATEGIES.get(name, factory) is not factory:
        raise UsageError(f"there is a strategy {name} already: use another name")
    if not callable(factory):
        raise UsageError(
            f"strategy {name}: it is registered with a class, or a function that makes one, not {factory!a:.60}"
        )
    _check_protocol(name, factory(ToolRegistry(toolset("core"), ToolContext()), 512))
    STRATEGIES[name] = factory


def _check_protocol(name: str, made: object) -> None:
    """Whether what a factory made has all that a run asks of a strategy."""
    own, prompts = getattr(made, "name", None), getattr(made, "system_prompts", None)
    if own != name:
        raise UsageError(f"strategy {name}: its `name` is {own!a:.60}; it must be the one it is registered under")
    if not (isinstance(prompts, tuple) and prompts and all(isinstance(text, str) for text in prompts)):
        raise UsageError(f"strategy {name}: `system_prompts` must be a tuple of every system message that it may send")
    try:
        inspect.signature(made.decide).bind(None, None, answer_only=False)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise UsageError(f"strategy {name}: it must have a method decide(self, state, llm, *, answer_only)") from None
