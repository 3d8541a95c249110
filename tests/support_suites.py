"""Runs built by hand, and suites written to a folder, for the tests of suites and verdicts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from agent.errors import UsageError
from agent.state import (
    AgentState,
    CallError,
    LedgerEntry,
    LimitsRecord,
    ModelInfo,
    PricesRecord,
    Sampling,
    Status,
    StepRecord,
    ToolCall,
    ToolResult,
    Verdict,
    WorkspaceFile,
    WorkspaceRecord,
)
from evals.assert_base import AssertSpec
from evals.asserts import Assert, judge
from evals.cases import load_suite

GOOD = """\
cases:
- id: first
  task: Add two and two.
  asserts:
  - {type: answer_number, value: 4}
"""

Done = tuple[str, dict[str, Any], str | None]  # a tool, its arguments, and its result; None for a failed call
_SPEC: TypeAdapter[AssertSpec] = TypeAdapter(Assert)


def run(
    answer: str | None = None,
    *calls: Done,
    status: Status = "completed",
    notes: Sequence[str] = (),
    settled: Sequence[int] = (),
    error: CallError | None = None,
) -> AgentState:
    """A finished run: one step a tool call, `settled` the micro-dollars of its calls to the model."""
    return AgentState(
        run_id="r1",
        task="a task",
        strategy="react",
        model=ModelInfo(name="m", backend="scripted"),
        sampling=Sampling(temperature=0, seed=7, num_ctx=8192, max_completion_tokens=512),
        limits=LimitsRecord(max_calls=10, max_cost_microusd=200_000, max_seconds=600),
        prices=PricesRecord(prompt_microusd_per_1k=10_000, completion_microusd_per_1k=30_000),
        steps=[_step(place, call) for place, call in enumerate(calls)],
        ledger=[_entry(place, amount) for place, amount in enumerate(settled)],
        scratchpad=list(notes),
        answer=answer,
        status=status,
        error=error,
    )


def with_files(state: AgentState, before: Mapping[str, str], after: Mapping[str, str]) -> AgentState:
    """The run with these texts in its workspace, by path, when it began and when it ended."""
    state.workspace = WorkspaceRecord(before=_files(before), after=_files(after))
    return state


def _files(texts: Mapping[str, str]) -> list[WorkspaceFile]:
    data = {path: text.encode() for path, text in texts.items()}
    return [
        WorkspaceFile(path=path, size=len(data[path]), sha256=hashlib.sha256(data[path]).hexdigest(), text=text)
        for path, text in texts.items()
    ]


def spec(**fields: Any) -> AssertSpec:
    """One assert, as a suite would state it."""
    return _SPEC.validate_python(fields)


def verdict(state: AgentState, **fields: Any) -> Verdict:
    """The judgement by one assert."""
    return judge(state, [spec(**fields)])


def holds(state: AgentState, **fields: Any) -> bool:
    """Whether one assert holds."""
    return verdict(state, **fields).outcome == "pass"


def write_suite(folder: Path, text: str | bytes) -> Path:
    """A suite file in a folder."""
    path = folder / "suite.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def with_field(line: str) -> str:
    """The good suite with one more line, which is its line 3."""
    return GOOD.replace("  task:", f"  {line}\n  task:")


def with_assert(fields: str) -> str:
    """The good suite with another assert, on its line 5."""
    return GOOD.replace("{type: answer_number, value: 4}", fields)


def refused(folder: Path, text: str | bytes) -> str:
    """What is said of a suite, without its path."""
    path = write_suite(folder, text)
    with pytest.raises(UsageError) as caught:
        load_suite(path)
    message = str(caught.value)
    assert message.startswith((f"{path}:", f"{path} "))
    assert message.isprintable(), "one line, and nothing that a terminal would obey"
    assert len(message) < 600
    return message.removeprefix(f"{path}:").removeprefix(f"{path} ")


def _step(place: int, call: Done) -> StepRecord:
    name, arguments, data = call
    result = ToolResult(success=True, data=data) if data is not None else ToolResult(success=False, error="it failed")
    return StepRecord(index=place, actions=[ToolCall(name=name, arguments=arguments)], results=[result])


def _entry(place: int, settled: int) -> LedgerEntry:
    return LedgerEntry(
        index=place,
        purpose="act",
        prompt_tokens_bound=100,
        bound_kind="exact",
        max_completion_tokens=64,
        prompt_microusd_per_1k=10_000,
        completion_microusd_per_1k=30_000,
        reserved_microusd=settled,
        settled_microusd=settled,
        settled_as="counted",
    )
