"""A trace runs again without a model and comes out the same; what was changed is named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.budget import Limits
from agent.errors import UsageError
from agent.llm.backends.scripted import ScriptedReply
from agent.loop import run_task
from agent.state import AgentState, Approval
from agent.tools.base import Tool, ToolContext
from agent.tools.calculate_math import CalculateMathParams
from agent.tools.registry import TOOLSETS, Question
from evals.replay import LiveTools, cannot_be_played, replay
from evals.verify import verify
from tests.support_runs import act, answer, new_run, run_script

BUSY = ScriptedReply(status=503, body='{"error":"server busy, please try again.  maximum pending requests exceeded"}')
WAYS: dict[str, Sequence[ScriptedReply | str]] = {
    "answered": [act("6*7"), answer("42")],
    "rejected and repaired": [answer("42"), "no JSON", act("1/0"), act("6*7"), answer("42")],
    "looped": [act("6*7")] * 10,
    "retried": [BUSY, act("6*7"), answer("42")],
    "refused connection": [act("6*7"), ScriptedReply(not_sent=True)],
    "server error": [act("6*7"), ScriptedReply(status=404, body='{"error":"model \'m\' not found"}')],
    "uncounted": [ScriptedReply(act("6*7"), prompt_tokens=-1), answer("42")],
    "overshot": [ScriptedReply(act("6*7"), completion_tokens=5000)],
    "cut short by the script's end": [act("6*7")],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_trace_replays_to_itself(way: str) -> None:
    trace = AgentState.model_validate_json(run_script(WAYS[way]).model_dump_json())
    again = replay(trace)
    assert again.difference is None
    assert again.state.ledger == trace.ledger


def test_a_run_that_the_clock_ended_replays_up_to_there() -> None:
    slow = ScriptedReply(act("6*7"), seconds=0.05)
    trace = run_script([slow, answer("42")], limits=Limits(10, 200_000, max_seconds=0.04))
    assert trace.status == "timeout"
    assert replay(trace).difference is None


def test_live_tools_run_again() -> None:
    trace = run_script([act("6*7"), answer("42")])
    assert replay(trace, live=LiveTools()).difference is None
    trace.calls[1].appended[-1].content = trace.calls[1].appended[-1].content.replace("42", "43")
    difference = replay(trace, live=LiveTools()).difference
    assert difference is not None
    assert "call 2: message 4 (user) differs" in difference


class Counting(Tool[CalculateMathParams]):
    """Does something outside of what is contained, each time it is called."""

    name = "count_up"
    description = "Counts."
    effect = "execute"
    contained = False
    params = CalculateMathParams
    lent: ClassVar[list[tuple[str, ...]]] = []

    def run(self, params: CalculateMathParams, context: ToolContext) -> str:
        self.lent.append(context.secrets)
        return "counted"


def test_live_tools_run_by_the_rules_of_who_replays_and_not_by_the_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLSETS, "core", (Counting,))
    call = act("6*7").replace("calculate_math", "count_up")
    trace = run_script([call, answer("counted")])
    trace.approve = {"execute": "allow", "count_up": "allow"}  # whatever a stranger wrote there
    trace.steps[0].approvals = [Approval(action=0, verdict="allowed")]
    Counting.lent.clear()
    mine = LiveTools(ToolContext(secrets=("of-the-person",)))
    stopped = replay(trace, live=mine)
    assert (stopped.state.status, Counting.lent) == ("confirmation_required", [])
    assert stopped.difference is not None
    asked: list[Question] = []

    def says_no(question: Question) -> bool:
        asked.append(question)
        return False

    said_no = replay(trace, live=replace(mine, approver=says_no))
    assert ([question.call.name for question in asked], Counting.lent) == (["count_up"], [])
    assert said_no.difference is not None
    assert replay(trace, live=replace(mine, approver=lambda _call: True)).difference is None
    assert replay(trace, live=replace(mine, approve={"count_up": "allow"})).difference is None
    assert Counting.lent == [("of-the-person",)] * 2
    with pytest.raises(UsageError, match="neither an effect nor a tool"):
        replay(trace, live=replace(mine, approve={"cuont_up": "allow"}))


def test_live_tools_read_no_folder_that_only_the_trace_names(tmp_path: Path) -> None:
    trace = run_script([act("6*7"), answer("42")])
    trace.corpus = "/etc"
    with pytest.raises(UsageError, match="the corpus '/etc'; if it may be read, name it: --corpus DIR"):
        replay(trace, live=LiveTools())
    assert replay(trace, live=LiveTools(ToolContext(corpus=tmp_path))).difference is None


def changed_reply(trace: AgentState) -> None:
    trace.calls[0].raw = trace.calls[0].raw.replace("6*7", "6*8")


def changed_prompt(trace: AgentState) -> None:
    trace.calls[1].appended[-1].content += " "


def changed_result(trace: AgentState) -> None:
    trace.steps[0].results[0].data = "43"


def changed_action(trace: AgentState) -> None:
    trace.steps[0].actions[0].arguments = {"expression": "6*8"}


def changed_answer(trace: AgentState) -> None:
    trace.answer = "43"


def changed_sampling(trace: AgentState) -> None:
    trace.calls[0].seed += 1


def dropped_call(trace: AgentState) -> None:
    del trace.calls[1]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (changed_reply, "tool call differs"),
        (changed_prompt, "call 2: message 4 (user) differs"),
        (changed_result, "call 2: message 4 (user) differs"),
        (changed_action, "tool call differs"),
        (changed_answer, "answer differs"),
        (changed_sampling, "call 1: seed differs"),
        (dropped_call, "a further one was asked for"),
    ],
)
def test_what_was_changed_is_named(change: object, named: str) -> None:
    trace = run_script([act("6*7"), answer("42")])
    assert callable(change)
    change(trace)
    assert named in str(replay(trace).difference)


@given(st.integers(0, 400), st.sampled_from(sorted(WAYS)))
@settings(deadline=None)
def test_a_run_that_is_stopped_anywhere_verifies_and_replays(moment: int, way: str) -> None:
    """Ctrl-C at the nth line of ours that runs: whatever trace that leaves is consistent."""
    run = new_run(WAYS[way])
    lines = 0

    def tick(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        if "/agent/" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        if lines == moment * 10:
            sys.settrace(None)
            raise KeyboardInterrupt
        return tick

    before = sys.gettrace()
    try:
        sys.settrace(tick)
        run_task(run)
    except KeyboardInterrupt:
        if run.state.status == "running":
            run.state.status = "cancelled"
    finally:
        sys.settrace(before)
    trace = AgentState.model_validate_json(run.state.model_dump_json())
    assert verify(trace) == []


def test_what_a_replay_lacks_is_told_with_the_flags_that_mend_it() -> None:
    trace = run_script([act("6*7"), answer("42")])
    for change in ({"toolset": "mcp:notes", "tools": ["mcp_notes_add"]}, {"strategy": "own"}):
        assert cannot_be_played(trace.model_copy(update=change)) == (
            "its strategy or tools are not at hand (--plugin FILE; --mcp-config FILE, but verify starts no server)"
        )
