"""Models that do a suite's cases wrongly, played in this process: what each of them says follows from a plan.

`fixtures/wrong/SUITE.yaml` names, for each case, what somebody might take for an answer; `fixtures/right/SUITE.yaml`
right answers in other words than the plan's. A text stands for the last answer after all the right calls; a mapping
may name another turn, or other calls in the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from agent.config import Settings
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import Script, ScriptedBackend, ScriptedReply
from agent.reporter import SilentReporter
from agent.state import AgentState, AssertResult
from evals.asserts import judge
from evals.cases import Case, Suite, load_suite
from evals.plan import Plan, Ways, plan_suite
from evals.runner import Runner
from evals.store import TraceStore
from tests.support_competent import think
from tests.support_plans import ROOT, Action, Plans, Turn, load_plans

FIXTURES = Path(__file__).parent / "fixtures"
JOBS = 8  # most of a run is spent in waiting for the disk
CLAIM = "I have done that. Everything went well, and the task is finished successfully."
# A call of each tool that no case has any use for, and a piece of it that tells it in a prompt.
NEEDLESS = {
    "calculate_math": Action("calculate_math", {"expression": "31337 + 1"}, shows="31337"),
    "execute_code": Action("execute_code", {"code": "print('needless')"}, shows="needless"),
    "clock": Action("clock", {"timezone": "Asia/Kathmandu"}, shows="Asia/Kathmandu"),
    "web_search": Action("web_search", {"query": "needless"}, shows="needless"),
    "list_directory": Action("list_directory", {"path": "needless"}, shows="needless"),
    "read_file": Action("read_file", {"path": "needless.txt"}, shows="needless.txt"),
    "write_file": Action("write_file", {"path": "needless.txt", "content": "!"}, shows="needless.txt"),
}

Talk = tuple[Turn, ...]  # what a model does and says in all the turns of a case


@dataclass(frozen=True)
class Played:
    """A run of a case, and what failed of its asserts; `idea` says which model it was."""

    case: Case
    idea: str
    state: AgentState
    failed: list[AssertResult]


@dataclass(frozen=True)
class Stage:
    """A suite's cases, driven by one strategy. The asserts of a type in `left_out` do not count."""

    suite: str
    strategy: str
    left_out: tuple[str, ...] = ()

    @property
    def cases(self) -> Suite:
        return load_suite(ROOT / "suites" / f"{self.suite}.yaml")

    def play(self, folder: Path, talks: Iterable[tuple[str, str, Talk]]) -> Iterator[Played]:
        """A run for each (case id, idea, talk), side by side, in any order; its epoch tells which it is."""
        acts = list(talks)
        by_case = {plan.case.id: plan for plan in self._plans() if plan.case is not None}
        plans = [replace(by_case[case_id], epoch=place) for place, (case_id, _, _) in enumerate(acts)]

        def backend_for(plan: Plan) -> ScriptedBackend:
            case_id, _, talk = acts[plan.epoch]
            return ScriptedBackend(scripted(case_id, talk))

        with TraceStore(folder / "traces") as store:
            runner = Runner(store=store, backend_for=backend_for)
            for finished in runner.run_all(plans, lambda _plan: SilentReporter(), jobs=JOBS):
                yield self._judged(finished.plan, acts[finished.plan.epoch][1], finished.state)

    def _plans(self) -> list[Plan]:
        return plan_suite(Settings(_env_file=None), self.cases, ways=Ways((self.strategy,)))

    def _judged(self, plan: Plan, idea: str, state: AgentState) -> Played:
        assert plan.case is not None
        verdict = judge(state, [spec for spec in plan.case.asserts if spec.type not in self.left_out])
        assert verdict.outcome != "invalid", (plan.case.id, verdict.reason)
        return Played(plan.case, idea, state, [line for line in verdict.asserts if not line.passed])


def scripted(case_id: str, talk: Talk) -> Script:
    """The model of a talk: what it says follows from the request alone, as with the competent one."""
    plans = Plans({case_id: talk})

    def script(request: ChatRequest, _number: int) -> ScriptedReply:
        shape: dict[str, Any] = {"tools": request.tools, "options": {"stop": request.stop}}
        if request.schema is not None:
            shape["format"] = request.schema
        said = think(plans, _text(request), shape)
        return ScriptedReply(said.text, tool_calls=[call["function"] for call in said.calls])

    return script


def _text(request: ChatRequest) -> str:
    calls = (json.dumps([call.model_dump() for call in message.tool_calls or ()]) for message in request.messages)
    return "\n".join(f"{message.content}\n{called}" for message, called in zip(request.messages, calls, strict=True))


# -- what they do -----------------------------------------------------------------------------------------------------


def competent(suite: str) -> dict[str, Talk]:
    """What a competent model does in each case."""
    return load_plans(suite).cases


def echoes(talk: Talk) -> Talk:
    """Nothing is called, and the answer is the question."""
    return tuple(replace(turn, actions=(), answer=turn.text) for turn in talk)


def claims(talk: Talk) -> Talk:
    """Nothing is called, and all is said to be done."""
    return tuple(replace(turn, actions=(), answer=CLAIM) for turn in talk)


def meddles(talk: Talk, tool: str, turn: int | None) -> Talk:
    """All is right, but for one needless call in a turn (from 1), the last one where None."""
    place = (turn or len(talk)) - 1
    meddled = replace(talk[place], actions=((NEEDLESS[tool],), *talk[place].actions))
    return (*talk[:place], meddled, *talk[place + 1 :])


def wrong_talks(suite: str) -> Iterator[tuple[str, str, Talk]]:
    """Every plausible wrong way of a suite's table: the case's id, the answer, and the talk. Each case has one."""
    table = _table("wrong", suite)
    assert sorted(table) == sorted(competent(suite)), "every case has its wrong answers"
    return _talks(suite, table)


def right_talks(suite: str) -> Iterator[tuple[str, str, Talk]]:
    """Every right answer in other words."""
    return _talks(suite, _table("right", suite))


def _table(kind: str, suite: str) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = yaml.safe_load((FIXTURES / kind / f"{suite}.yaml").read_text("utf-8"))
    return table


def _talks(suite: str, table: dict[str, list[Any]]) -> Iterator[tuple[str, str, Talk]]:
    right = competent(suite)
    for case_id, ways in table.items():
        for way in ways:
            fields = way if isinstance(way, dict) else {"answer": str(way)}
            yield case_id, fields["answer"], _with(right[case_id], **fields)


def _with(talk: Talk, answer: str, turn: int | None = None, actions: list[dict[str, Any]] | None = None) -> Talk:
    place = (turn or len(talk)) - 1
    changed = replace(talk[place], answer=answer)
    if actions is not None:
        changed = replace(changed, actions=tuple((Action(**action),) for action in actions))
    return (*talk[:place], changed, *talk[place + 1 :])
