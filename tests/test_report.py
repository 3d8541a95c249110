"""The report: the same bytes from the same traces, true figures, and nothing of a model's text ever markup."""

from __future__ import annotations

import random
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent.prompts.budget_line import usd
from agent.state import AgentState, AssertResult, GuardEvent, ToolCall, ToolResult, Verdict
from evals.inert import code_block, code_span, html_code
from evals.report import EMPTY, render_report
from evals.report_runs import MAX_RUNS, MAX_STEPS
from evals.traces import load_all, write_trace
from tests.support_traces import GENUINE, genuine, judged

MARKED = "hOsTiLe"
HOSTILE = [
    f"<script>{MARKED}</script>",
    f"<img src=x onerror={MARKED}>",
    f"![{MARKED}](https://example.com/a.png)",
    f"[{MARKED}](javascript:alert(1))",
    f"https://{MARKED}.example.com www.{MARKED}.example.com {MARKED}@example.com",
    f"` {MARKED} `` {MARKED} ``` {MARKED}",
    f"```\n{MARKED}\n```\n# {MARKED}",
    f"~~~\n</details>\n\n<b>{MARKED}",
    f"| {MARKED} | {MARKED} \\| {MARKED}",
    f"\\`{MARKED}\\",
    f"**{MARKED}** _{MARKED}_ <{MARKED}> &lt;{MARKED}&gt;",
    f"\x1b[31m{MARKED}\x07\u202e{MARKED}\u2028{MARKED}\ud800",
    f"\n\n    {MARKED}\n\n- {MARKED}\n\n1. {MARKED}\n\n> {MARKED}",
    f"</code></pre></summary></details>{MARKED}",
]
OUR_TAGS = {"h1", "h2", "table", "thead", "tbody", "tr", "th", "td", "p", "strong", "b", "br"} | {
    "code",
    "pre",
    "details",
    "summary",
}


class _Reader(HTMLParser):
    """Which tags and attributes a page has, and which text stands outside code."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[tuple[str, str | None]] = set()
        self.bare = ""
        self.open_code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes.update(attrs)
        self.open_code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self.open_code -= tag == "code"

    def handle_data(self, data: str) -> None:
        if not self.open_code:
            self.bare += data


def read(markdown: str) -> _Reader:
    reader = _Reader()
    reader.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
    reader.close()
    return reader


def batch() -> list[AgentState]:
    kinds = ("completed", "looped", "unreadable_replies", "calls_used_up", "server_failed")
    states = [judged(genuine(kind), case_id=kind, passed=kind == "completed") for kind in kinds]
    states[-1].verdict = Verdict(outcome="invalid", reason="server_error: something broke")
    for minute, state in enumerate(states):
        state.started_at = f"2026-01-05T10:0{minute}:00.000+00:00"
    return states


def row(report: str, heading: str, first: str) -> list[str]:
    """The cells of a table's row, by the heading over the table and the row's first cell."""
    section = report.partition(f"## {heading}\n")[2].partition("\n## ")[0] if heading else report
    lines = [line for line in section.splitlines() if line.startswith(f"| {first} |")]
    assert len(lines) == 1, (heading, first, lines)
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_receipt_adds_up_the_traces() -> None:
    states = batch()
    report = render_report(states)
    assert row(report, "", "Runs")[1] == "5: **1 passed**, **3 failed**, **1 invalid**"
    assert row(report, "", "LLM calls")[1] == str(sum(len(state.calls) for state in states))
    cost = sum(entry.settled_microusd for state in states for entry in state.ledger)
    assert row(report, "", "Simulated cost")[1] == usd(cost)
    tokens = [call.usage for state in states for call in state.calls]
    prompt = sum(usage.prompt_tokens or 0 for usage in tokens)
    completion = sum(usage.completion_tokens or 0 for usage in tokens)
    assert row(report, "", "Tokens")[1].startswith(f"{prompt:,} prompt + {completion:,} completion; 1 call was not")
    assert row(report, "", "Usable replies")[1] == "17 of 19 (89%)"
    assert row(report, "", "Sampling")[1].startswith("`temperature 0, seed 7,")
    assert row(report, "", "Caps of a run")[1] == "`10 calls, $0.200000`, `4 calls, $0.200000`"


def test_every_run_has_its_verdict_its_meters_and_its_steps() -> None:
    report = render_report(batch())
    assert row(report, "Verdicts", "`looped`") == ["`looped`", "**fail**", "loop_detected", "`equals: got 41`"]
    assert row(report, "Verdicts", "`server_failed`")[3] == "`server_error: something broke`"
    assert row(report, "Budget", "`calls_used_up`")[1] == "`██████████ 4 of 4`"
    assert row(report, "Budget", "`completed`")[1] == "`████░░░░░░ 4 of 10`"
    assert row(report, "Guards and replans", "`looped`")[1:] == ["4", "`identical_call` 4 times, `replan` 4 times"]
    assert "| tool call | `repeated (calculate_math)` | 4 | `looped` |" in report
    assert "| reply | `not_json` | 1 | `unreadable_replies` |" in report
    assert "| server | `server_error` | 1 | `server_failed` |" in report
    assert report.count("<details>") == report.count("</details>") == 5
    assert 'ACT      calculate_math(expression="6*7")\nOBSERVE  42' in report
    assert "REPLY    no JSON\nFAULT    not_json:" in report
    assert 'FAILED   equals "42"; got 41' in report


def test_the_runs_stand_in_the_order_they_began() -> None:
    report = render_report(random.Random(1).sample(batch(), 5))
    found = re.findall(r"<summary><b>[a-z ]+</b> <code>(\w+)</code>", report)
    assert found == ["completed", "looped", "unreadable_replies", "calls_used_up", "server_failed"]


def test_quiet_runs_say_so() -> None:
    report = render_report([judged(genuine("no_caps"), case_id="a")])
    assert "No guard fired." in report
    assert "No tool call failed" in report
    assert row(report, "Budget", "`a`")[1] == "`2`"


def test_two_ways_of_driving_are_compared_and_invalid_runs_are_not_scored() -> None:
    states = batch()
    assert "## Comparison" not in render_report(states)
    for state in states[2:]:
        state.model.name = "other"
    report = render_report(states)
    assert row(report, "Comparison", "`other`")[1:7] == ["`react`", "3", "0", "2", "1", "0%"]
    assert row(report, "Comparison", "`scripted`")[1:7] == ["`react`", "2", "1", "1", "0", "50%"]
    assert row(report, "Verdicts", "`looped`")[1] == "`scripted`"


def test_ways_are_compared_case_by_case_with_what_they_used_and_their_faults() -> None:
    states: list[AgentState] = []
    for strategy, passed in (("react", True), ("native", False)):
        for case_id in ("a", "b"):
            state = judged(genuine("completed"), case_id=case_id, passed=passed or case_id == "a")
            state.strategy, state.started_at = strategy, f"2026-01-05T10:00:0{len(states)}.000+00:00"
            states.append(state)
    states[-1].tool_faults = {"in_text": 2, "wrong_name": 1}
    report = render_report(states)
    run = states[0]
    used = f"{run.calls_used:.1f} | {usd(run.cost_microusd)} | {run.prompt_tokens:,} + {run.completion_tokens:,}"
    assert f"| `scripted` | `react` | 2 | 2 | 0 | 0 | 100% | {used} | {run.seconds:.1f} | 0 |" in report
    assert f"| `scripted` | `native` | 2 | 1 | 1 | 0 | 50% | {used} | {run.seconds:.1f} | 3 |" in report
    assert row(report, "Comparison", "`a`")[1:] == ["pass", "pass"]
    assert row(report, "Comparison", "`b`")[1:] == ["pass", "**fail**"]
    faults = report.partition("## Tool-call faults")[2].partition("##")[0]
    assert "| `scripted` | `native` | 0 | 2 | 1 | 0 | 0 | 0 |" in faults
    assert "| `scripted` | `react` | 0 | 0 | 0 | 0 | 0 | 0 |" in faults


def test_several_epochs_of_a_case_are_one_line_of_the_comparison() -> None:
    states = []
    for strategy in ("react", "native"):
        for epoch in range(3):
            state = judged(genuine("completed"), case_id="a", passed=epoch != 1)
            state.strategy, state.epoch, state.run_id = strategy, epoch, f"{strategy}-{epoch}"
            states.append(state)
    assert row(render_report(states), "Comparison", "`a`")[1:] == ["2 of 3", "2 of 3"]


def test_the_turns_of_a_conversation_are_told_apart() -> None:
    report = render_report([judged(genuine("two_turns"), case_id="a")])
    assert report.index("Turn 2") < report.index("Now multiply that by 8.")


def test_nothing_to_report_says_what_to_do() -> None:
    assert render_report([]) == EMPTY
    assert "make suite" in EMPTY


# -- which traces -----------------------------------------------------------------------------------------------------


def test_the_newest_batch_is_reported_and_single_tasks_beside_it_are_not() -> None:
    older, newer = batch(), judged(genuine("completed"), case_id="late", batch_id="batch-2")
    newer.started_at = "2026-01-06T10:00:00.000+00:00"
    single = genuine("looped")
    single.run_id, single.started_at = "single", "2026-01-07T10:00:00.000+00:00"
    alone = render_report([newer])
    assert render_report([*older, newer, single]) == alone
    assert "`batch-2`" in alone
    assert "# Results of single tasks" in render_report([single])
    assert row(render_report([single]), "", "Runs")[1] == "1: **0 passed**, **0 failed**, **1 not judged**"


def test_the_same_traces_give_the_same_bytes_in_any_order_and_from_any_folder(tmp_path: Path) -> None:
    states = batch()
    reports = {render_report(states), render_report(states[::-1])}
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        for state in states:
            write_trace(folder, state)
        reports.add(render_report(load_all(folder)))
        reports.add(render_report(load_all(folder, "batch-1")))
    assert len(reports) == 1
    assert str(tmp_path) not in reports.pop()


# -- long ones --------------------------------------------------------------------------------------------------------


def test_a_long_run_shows_its_ends_and_says_what_it_leaves_out() -> None:
    state = judged(genuine("completed"), case_id="long")
    state.steps = [state.steps[0].model_copy(update={"index": i, "thought": f"thought-{i}."}) for i in range(50)]
    report = render_report([state])
    assert f"({50 - MAX_STEPS} steps are left out.)" in report
    shown = [int(n) for n in re.findall(r"thought-(\d+)\.", report)]
    assert shown == [*range(10), *range(40, 50)]


def test_long_texts_are_cut() -> None:
    state = judged(genuine("completed"), case_id="x" * 10_000)
    state.task = state.answer = state.steps[0].thought = state.steps[0].results[0].data = "y" * 1_000_000
    report = render_report([state])
    assert len(report) < 20_000
    assert "(998,000 more characters)" in report


def test_of_very_many_runs_those_that_did_not_pass_are_shown() -> None:
    last = MAX_RUNS + 4
    states = [judged(genuine("no_caps"), case_id=f"case-{n}", passed=n != last) for n in range(last + 1)]
    report = render_report(states)
    assert report.count("<details>") == MAX_RUNS
    assert f"<code>case-{last}</code>" in report
    assert "5 more runs are left out here" in report
    assert row(report, "", "Runs")[1].startswith(f"{MAX_RUNS + 5}: ")


# -- hostile texts ----------------------------------------------------------------------------------------------------


def hostile_run(text: str) -> AgentState:
    """A run in which everything that can hold a text holds this one."""
    state = judged(genuine("unreadable_replies"), case_id=text)
    state.suite = state.batch_id = state.strategy = state.git_commit = state.started_at = text
    state.task = state.answer = state.status_reason = state.model.name = state.model.backend = text
    state.model.digest = state.model.quantization = state.tools[0] = text
    for step in state.steps:
        step.progress_check = step.thought = step.answer = text
        step.actions = [ToolCall(name=text, arguments={text: [text]})] * 2
        step.results = [ToolResult(success=True, data=text), ToolResult(success=False, error=text, error_type=text)]
        step.faults, step.repairs = [text, f"{text}: {text}"], [text]
        step.guards = [GuardEvent(guard=text, tier=0, message=text)]
    state.verdict = Verdict(
        outcome="fail",
        reason=text,
        asserts=[AssertResult(type=text, expected={text: text}, passed=False, message=text)],
    )
    return state


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_in_code_and_is_never_markup(text: str) -> None:
    other = hostile_run(text)
    other.model.name, other.run_id = "other", "other"
    report = render_report([hostile_run(text), other])
    page = read(report)
    assert MARKED in report
    assert page.tags.keys() <= OUR_TAGS
    assert {name for name, _ in page.attributes} <= {"class"}
    assert MARKED not in page.bare
    assert page.open_code == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028\ud800]", report)
    assert report.encode("utf-8")
    assert page.tags["details"] == page.tags["summary"] == 2


@given(st.text(max_size=60))
def test_any_text_stays_inside_its_code(text: str) -> None:
    page = read(f"| a | b |\n| --- | --- |\n| {code_span(text)} | end |\n\n{code_block(text)}\n\nlast")
    assert re.sub(r"\s+", " ", page.bare).strip() == "a b end last"
    assert page.tags.keys() == {"table", "thead", "tbody", "tr", "th", "td", "code", "pre", "p"}
    summary = read(f"<details>\n<summary>{html_code(text)}</summary>\n\nlast\n\n</details>")
    assert summary.tags.keys() == {"details", "summary", "code", "p"}
    assert summary.bare.split() == ["last"]


@pytest.mark.parametrize("kind", GENUINE)
def test_every_kind_of_run_can_be_reported(kind: str) -> None:
    page = read(render_report([genuine(kind)]))
    assert page.tags.keys() <= OUR_TAGS
    assert "# " not in page.bare
