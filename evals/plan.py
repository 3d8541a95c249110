"""Which runs there will be: settings, and a suite's cases, made into one plan a run. Nothing is opened here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from agent.budget import Limits, Prices
from agent.config import Settings
from agent.errors import UsageError
from agent.state import Sampling
from agent.strategies.registry import STRATEGIES
from agent.tools.registry import toolset
from evals.cases import Case, Suite, case_hash

EPOCHS_TEMPERATURE = 0.7  # several epochs at temperature 0 would be the same run several times


@dataclass(frozen=True)
class Plan:
    """One run to be: a task (of a case, where it comes from a suite) with all that was decided for it."""

    task: str
    strategy: str
    toolset: str
    limits: Limits
    prices: Prices
    sampling: Sampling
    evidence: bool = True
    tools: tuple[str, ...] | None = None
    corpus: Path | None = None
    epoch: int = 0
    suite: str | None = None
    case: Case | None = None
    case_hash: str | None = None

    @property
    def label(self) -> str:
        """What a person reads for this run: the case's id, and the epoch where there are several."""
        name = self.case.id if self.case else "task"
        return f"{name} #{self.epoch + 1}" if self.epoch else name


def plan_task(settings: Settings, task: str) -> Plan:
    """The plan for one task from the command line.

    Raises:
        UsageError: see `check_plan`.
    """
    plan = _plan(settings, task)
    check_plan(plan, settings, "this task")
    return plan


def _plan(settings: Settings, task: str) -> Plan:
    return Plan(
        task=task,
        strategy=settings.strategy,
        toolset=settings.toolset,
        limits=settings.limits(),
        prices=settings.prices(),
        sampling=settings.sampling(),
    )


def plan_suite(settings: Settings, suite: Suite, *, epochs: int | None = None, flags: Iterable[str] = ()) -> list[Plan]:
    """A plan for every case and epoch, in the suite's order.

    `epochs` stands over a case's own. `flags` names the settings given on the command line, which stand over a
    case's limits; without a flag the case's own limits stand over the settings.
    """
    given = frozenset(flags)
    return [
        _epoch(plan, epoch, of=count)
        for case in suite.cases
        for plan, count in [(_plan_case(settings, suite, case, given), epochs or case.epochs)]
        for epoch in range(count)
    ]


def check_plan(plan: Plan, settings: Settings, where: str) -> None:
    """Refuse what cannot work before the first run starts.

    Raises:
        UsageError: an unknown strategy, toolset or tool, or a search without anything to search; `where` says whose.
    """
    if plan.strategy not in STRATEGIES:
        raise UsageError(f"{where}: no strategy {plan.strategy!r:.60}; use one of {', '.join(STRATEGIES)}")
    offered = [tool.name for tool in toolset(plan.toolset)]
    for name in plan.tools or ():
        if name not in offered:
            raise UsageError(f"{where}: no tool {name!r:.60} in toolset {plan.toolset}; it has {', '.join(offered)}")
    searches = "web_search" in (plan.tools if plan.tools is not None else offered)
    if searches and settings.search_provider == "corpus" and plan.corpus is None:
        raise UsageError(f"{where}: SEARCH_PROVIDER=corpus, and there is no corpus to search; set it to auto or ddgs")


def _plan_case(settings: Settings, suite: Suite, case: Case, given: frozenset[str]) -> Plan:
    plan = _plan(settings, case.task)
    limits, cap = _limits(plan.limits, case, given), case.limits.max_completion_tokens
    sampling = plan.sampling
    if cap is not None and "max_completion_tokens" not in given:
        sampling = sampling.model_copy(update={"max_completion_tokens": cap})
    plan = replace(
        plan,
        strategy=settings.strategy if "strategy" in given else case.strategy or settings.strategy,
        toolset=settings.toolset if "toolset" in given else case.toolset or settings.toolset,
        tools=tuple(case.tools) if case.tools is not None else None,
        limits=limits,
        sampling=sampling,
        evidence=True if case.evidence is None else case.evidence,
        corpus=case.corpus,
        suite=suite.name,
        case=case,
        case_hash=case_hash(case),
    )
    check_plan(plan, settings, f"{suite.path}: case {case.id!r:.60}")
    return plan


def _limits(base: Limits, case: Case, given: frozenset[str]) -> Limits:
    own = case.limits
    return Limits(
        max_calls=base.max_calls if own.max_calls is None or "max_llm_calls" in given else own.max_calls,
        max_cost_microusd=(
            base.max_cost_microusd
            if own.max_cost_microusd is None or "max_cost_usd" in given
            else own.max_cost_microusd
        ),
        max_seconds=base.max_seconds if own.max_seconds is None else own.max_seconds,
    )


def _epoch(plan: Plan, epoch: int, *, of: int) -> Plan:
    if of == 1:
        return plan
    sampling = plan.sampling
    temperature = sampling.temperature or EPOCHS_TEMPERATURE
    varied = sampling.model_copy(update={"temperature": temperature, "seed": sampling.seed + epoch})
    return replace(plan, epoch=epoch, sampling=varied)
