"""Which runs there will be: settings, and a suite's cases, made into one plan a run. Nothing is opened here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from agent.budget import Limits, Prices
from agent.config import Settings
from agent.errors import UsageError
from agent.guards.approvals import check_rules
from agent.state import Permission, Sampling
from agent.strategies.registry import STRATEGIES
from agent.tools.base import ToolContext, WebAccess
from agent.tools.mcp.schemas import MCP_PREFIX
from agent.tools.registry import TOOLSETS, toolset
from agent.tools.web_search import WebSearch, check_search
from evals.cases import Case, Suite, asserts_with_places, case_hash
from evals.run_asserts import ToolCalled, ToolNotCalled, ToolResultIs
from evals.suite_yaml import Key

ASKS_FOR_EVIDENCE = frozenset({"react"})  # strategies whose answers must rest on a tool unless the case says otherwise
EPOCHS_TEMPERATURE = 0.7  # several epochs at temperature 0 would be the same run several times

Where = Callable[[tuple[Key, ...]], str]


@dataclass(frozen=True)
class Plan:
    """One run to be: a task (of a case, where it comes from a suite) with all that was decided for it.

    `workspace` are the texts that the run finds in a fresh folder, by path; or `folder` is the person's own folder that
    it works in. `model` is None for that of the settings. `driven` tells it apart from the other runs of its case: the
    strategy and the model, where there are several.
    """

    task: str
    strategy: str
    toolset: str
    limits: Limits
    prices: Prices
    sampling: Sampling
    evidence: bool = True
    follow_ups: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    corpus: Path | None = None
    workspace: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    now: datetime | None = None
    approve: Mapping[str, Permission] = field(default_factory=dict)
    model: str | None = None
    driven: str = ""
    epoch: int = 0
    suite: str | None = None
    case: Case | None = None
    case_hash: str | None = None

    @property
    def label(self) -> str:
        """What a person reads for this run: the case's id, and the epoch where there are several."""
        name = self.case.id if self.case else "task"
        name = f"{name} ({self.driven})" if self.driven else name
        return f"{name} #{self.epoch + 1}" if self.epoch else name


@dataclass(frozen=True)
class Ways:
    """The ways in which every case of a batch is run: each strategy with each model.

    No strategy: each case's own. No model: the settings'.
    """

    strategies: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def pairs(self) -> list[tuple[str | None, str | None]]:
        """(strategy, model), model by model: a server loads each once."""
        return [(strategy, model) for model in self.models or (None,) for strategy in self.strategies or (None,)]

    def told(self, strategy: str, model: str | None) -> str:
        """What tells a run apart from those in other ways; nothing where there is but one."""
        parts = [strategy] if len(self.strategies) > 1 else []
        return ", ".join([*parts, *([model] if model and len(self.models) > 1 else [])])


def plan_task(settings: Settings, task: str, approve: Mapping[str, Permission] | None = None) -> Plan:
    """The plan for one task from the command line, with what the person allows (see agent/guards/approvals.py).

    Raises:
        UsageError: see `check_plan`.
    """
    plan = replace(_plan(settings, task, settings.strategy, approve or {}), folder=settings.workspace_dir)
    check_plan(plan, settings)
    return plan


def _plan(settings: Settings, task: str, strategy: str, approve: Mapping[str, Permission]) -> Plan:
    return Plan(
        task=task,
        strategy=strategy,
        toolset=settings.toolset,
        limits=settings.limits(),
        prices=settings.prices(),
        sampling=settings.sampling(),
        evidence=strategy in ASKS_FOR_EVIDENCE,
        approve=approve,
    )


def plan_suite(
    settings: Settings,
    suite: Suite,
    *,
    epochs: int | None = None,
    flags: Iterable[str] = (),
    ways: Ways = Ways(),
    approve: Mapping[str, Permission] | None = None,
) -> list[Plan]:
    """A plan for every way, case and epoch, in the suite's order.

    `epochs` stands over a case's own. `flags` names the settings given on the command line, which stand over a
    case's limits; without a flag the case's own limits stand over the settings. `approve` are rules from the command
    line, which stand over a case's.
    """
    asked = _Asked(settings, suite, frozenset(flags), ways, approve or {})
    return [
        _epoch(plan, epoch, of=count)
        for strategy, model in ways.pairs()
        for case in suite.cases
        for plan, count in [(_plan_case(asked, case, strategy, model), epochs or case.epochs)]
        for epoch in range(count)
    ]


def check_plan(plan: Plan, settings: Settings, where: Where = lambda _: "") -> None:
    """Refuse what cannot work before the first run starts.

    `where` gives the beginning of a message about a part of the plan's case, by its path in the case.

    Raises:
        UsageError: an unknown strategy, toolset or tool, a search that could never be made, or a workspace that is no
            folder.
    """
    if plan.strategy not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise UsageError(f"{where(('strategy',))}no strategy {plan.strategy[:40]!a}; use one of {known}")
    with _told(where, "toolset"):
        offered = [tool.name for tool in toolset(plan.toolset)]
    known_tools = dict.fromkeys([*(tool.name for tools in TOOLSETS.values() for tool in tools), *offered])
    for effect_or_tool, rule in plan.approve.items():
        with _told(where, "approve", effect_or_tool):
            check_rules({effect_or_tool: rule}, known_tools)
    for place, name in enumerate(plan.tools or ()):
        if name not in offered:
            fault = f"no tool {name[:60]!a} in toolset {plan.toolset}; it has {', '.join(offered)}"
            raise UsageError(f"{where(('tools', place))}{fault}")
    if plan.case is not None:
        _check_tools_of_asserts(plan.case, known_tools, where)
    if plan.folder is not None and not plan.folder.is_dir():
        raise UsageError(f"{where(())}the workspace {str(plan.folder)!a:.200} is no folder; name one that is there")
    if WebSearch.name in (plan.tools if plan.tools is not None else offered):
        key = settings.search_api_key
        web = WebAccess(searxng_url=settings.searxng_url, search_api_key=key.get_secret_value() if key else None)
        with _told(where):
            check_search(ToolContext(plan.corpus, settings.search_provider, web=web))


def _check_tools_of_asserts(case: Case, known: Collection[str], where: Where) -> None:
    """Refuse asserts on tools that there are not. Which an MCP server has, only a plan that offers them knows."""
    for path, spec in asserts_with_places(case):
        field = "tool" if isinstance(spec, ToolResultIs) else "value"
        names = getattr(spec, field) if isinstance(spec, ToolCalled | ToolNotCalled | ToolResultIs) else ()
        for name in names:
            if name not in known and not name.startswith(MCP_PREFIX):
                near = difflib.get_close_matches(name[:60], known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                fault = f"the assert {spec.type}: there is no tool {name[:60]!a}; {hint}"
                raise UsageError(f"{where((*path, field))}{fault}")


@contextmanager
def _told(where: Where, *path: Key) -> Iterator[None]:
    """Have a refusal say of which part of a case it is."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where(path)}{error}") from None


@dataclass(frozen=True)
class _Asked:
    """What one command asks of all cases of a suite."""

    settings: Settings
    suite: Suite
    given: frozenset[str]
    ways: Ways
    approve: Mapping[str, Permission]


def _plan_case(asked: _Asked, case: Case, strategy: str | None, model: str | None) -> Plan:
    settings, given = asked.settings, asked.given
    own = settings.strategy if "strategy" in given else case.strategy or settings.strategy
    approve = {**_rules_of_case(settings, case), **asked.approve}
    plan = _plan(settings, case.first_turn, strategy or own, approve)
    limits, cap = _limits(plan.limits, case, given), case.limits.max_completion_tokens
    sampling = plan.sampling
    if cap is not None and "max_completion_tokens" not in given:
        sampling = sampling.model_copy(update={"max_completion_tokens": cap})
    plan = replace(
        plan,
        toolset=settings.toolset if "toolset" in given else case.toolset or settings.toolset,
        tools=tuple(case.tools) if case.tools is not None else None,
        limits=limits,
        sampling=sampling,
        evidence=plan.evidence if case.evidence is None else case.evidence,
        follow_ups=case.follow_ups,
        corpus=case.corpus,
        workspace=case.workspace,
        now=datetime.fromisoformat(case.now) if case.now else None,
        model=model,
        driven=asked.ways.told(plan.strategy, model),
        suite=asked.suite.name,
        case=case,
        case_hash=case_hash(case),
    )
    check_plan(plan, settings, lambda path: _where(asked, case, strategy, path))
    return plan


def _where(asked: _Asked, case: Case, strategy: str | None, path: tuple[Key, ...]) -> str:
    """The beginning of a message about a part of a case; nothing where that comes from the settings."""
    field = path[0] if path else None
    from_settings = (
        (field == "strategy" and (strategy is not None or field in asked.given or case.strategy is None))
        or (field == "toolset" and (field in asked.given or case.toolset is None))
        or (field == "approve" and path[1] in asked.approve)
    )
    return "" if from_settings else f"{asked.suite.where(case, path)}: "


def _rules_of_case(settings: Settings, case: Case) -> Mapping[str, Permission]:
    """What a case allows and forbids. Where nothing isolates programs, a file of cases cannot allow them to run."""
    if settings.sandbox != "external":
        return case.approve
    programs = {tool.name for tools in TOOLSETS.values() for tool in tools if tool.effect == "execute"} | {"execute"}
    return {key: rule for key, rule in case.approve.items() if rule != "allow" or key not in programs}


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
