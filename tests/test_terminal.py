"""Nothing hostile reaches a terminal: what a model writes can show, and do nothing else."""

from __future__ import annotations

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agent.state import (
    AgentState,
    AssertResult,
    GuardEvent,
    LedgerEntry,
    LimitsRecord,
    LLMCall,
    ModelInfo,
    PricesRecord,
    Sampling,
    StepRecord,
    ToolCall,
    ToolResult,
    Verdict,
)
from cli.escape import encodable, inert, inert_line
from cli.show import render_markdown, render_terminal
from cli.terminal import TerminalReporter, bar, make_console
from evals.inert import BLANK

# What rich itself sends to style a line: SGR sequences only. No cursor, no link, no title.
SGR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = [
    pytest.param("\u202etxt.exe", id="bidi override: a name that reads backwards"),
    pytest.param("\x1b[2J\x1b[1;1HPASS 100%", id="clear screen: a forged result"),
    pytest.param("\x1b]52;c;cHduZWQ=\x07", id="OSC 52: writes the clipboard"),
    pytest.param("\x9b2J\x9d0;title\x9c", id="C1 forms of CSI and OSC"),
    pytest.param("\x1b]8;;http://evil.test/\x1b\\click\x1b]8;;\x1b\\", id="OSC 8: a link"),
    pytest.param("real\rFAKE", id="carriage return: overwrites its own line"),
    pytest.param("a\x08\x08b\x7f\x00", id="backspace, delete, NUL"),
    pytest.param("a\u200bb\u2066c\u2069\U000e0041\ufeff", id="zero-width, isolates, tag characters"),
    pytest.param("half \ud800 pair", id="lone surrogate: no stream can encode it"),
    pytest.param("[red]x[/red] [link=http://evil.test]y[/link] :skull:", id="rich markup"),
]
ANYTHING = st.text(st.characters(exclude_categories=()), max_size=60)


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def run_with(text: str) -> AgentState:
    """A run in which every text that a model, a page or a server wrote is `text`."""
    step = StepRecord(
        index=0,
        calls=[0],
        progress_check=text,
        thought=text,
        thinking=text,
        actions=[ToolCall(name=text, arguments={text: text})],
        results=[ToolResult(success=False, error=text, error_type=text)],
        answer=text,
        repairs=[text],
        faults=[text],
        guards=[GuardEvent(guard="loop", tier=0, message=text)],
    )
    call = LLMCall(
        index=0,
        step=0,
        attempt=0,
        carried=0,
        appended=[],
        temperature=0,
        seed=7,
        num_ctx=8192,
        endpoint="",
        repairs=[text],
    )
    entry = LedgerEntry(
        index=0,
        purpose="act",
        prompt_tokens_bound=9,
        bound_kind="exact",
        max_completion_tokens=9,
        prompt_microusd_per_1k=10_000,
        completion_microusd_per_1k=30_000,
        reserved_microusd=9,
    )
    return AgentState(
        run_id=text,
        case_id=text,
        suite=text,
        task=text,
        strategy="react",
        tools=[text],
        model=ModelInfo(name=text, backend="scripted", quantization=text),
        sampling=Sampling(temperature=0, seed=7, num_ctx=8192, max_completion_tokens=512),
        limits=LimitsRecord(max_calls=10, max_cost_microusd=200_000, max_seconds=600),
        prices=PricesRecord(prompt_microusd_per_1k=10_000, completion_microusd_per_1k=30_000),
        steps=[step],
        calls=[call],
        ledger=[entry],
        scratchpad=[text],
        answer=text,
        status="completed",
        status_reason=text,
        verdict=Verdict(outcome="fail", asserts=[AssertResult(type="equals", passed=False, message=text)], reason=text),
    )


def live(state: AgentState, console: Console) -> None:
    """Every event that a run can report."""
    reporter, step = TerminalReporter(console), state.steps[0]
    reporter.run_started(state)
    reporter.text(state.task)
    reporter.call_finished(state, state.calls[0])
    reporter.think(step)
    reporter.act(step.actions[0])
    reporter.observe(step.actions[0], step.results[0])
    reporter.observe(step.actions[0], ToolResult(success=True, data=state.task))
    reporter.notice(state.task)
    reporter.run_finished(state)
    reporter.trace_written(state.task)


def shown_on(stream: io.StringIO, text: str, *, color: bool = True) -> str:
    """All that a run and its `show` write to a stream."""
    console = make_console(stream, color=color)
    live(run_with(text), console)
    render_terminal(run_with(text), console)
    return stream.getvalue()


def is_active(character: str) -> bool:
    """Whether a terminal may act on a character, or a reader be deceived by it."""
    if character in "\n\t\u200c\u200d":
        return False
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_forced_terminal_gets_no_control_but_richs_own_styles(text: str) -> None:
    output = shown_on(Tty(), text)
    assert SGR.search(output), "the terminal was not coloured, so this would prove nothing"
    assert [c for c in SGR.sub("", output) if is_active(c)] == []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_pipe_gets_no_control_at_all(text: str) -> None:
    assert [c for c in shown_on(io.StringIO(), text) if is_active(c)] == []


@given(ANYTHING)
def test_whatever_is_written_no_control_passes(text: str) -> None:
    assert [c for c in SGR.sub("", shown_on(Tty(), text)) if is_active(c)] == []
    assert [c for c in shown_on(io.StringIO(), text) if is_active(c)] == []
    assert [c for c in render_markdown(run_with(text)) if is_active(c)] == []


@given(ANYTHING)
def test_inert_is_done_after_once_and_can_always_be_encoded(text: str) -> None:
    once = inert(text)
    assert inert(once) == once
    once.encode("utf-8")


@given(st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters="".join(map(chr, BLANK))), max_size=60))
def test_ordinary_text_of_any_script_is_left_alone(text: str) -> None:
    assert inert(text) == text


def test_emoji_and_persian_keep_their_joiners() -> None:
    for text in ("\U0001f469\u200d\U0001f52c", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"):
        assert inert(text) == text


def test_nothing_vanishes_unseen() -> None:
    assert inert("a\x1b[2Jb") == "a\u241b[2Jb"
    assert inert("a\u202eb") == "a<U+202E>b"
    for blank in (
        *(
            0x3164,
            0x115F,
            0x1160,
            0xFFA0,
            0xAD,
            0x34F,
            0x2800,
            0xFE01,
            0xE0100,
            0x2065,
            0xFFF0,
            0xFFF8,
            0x1D159,
            0x16FE4,
        ),
        *(0xE0000, 0xE0002, 0xE0080, 0xE00FF, 0xE01F0, 0xE0FFF, 0x13439, 0x13442, 0xFDD0, 0xFFFF, 0x1FFFE, 0x10FFFF),
    ):
        assert inert(f"a{chr(blank)}b") == f"a<U+{blank:04X}>b"
    assert inert("one\r\ntwo\rthree") == "one\ntwo\u240dthree"


def test_an_error_is_one_line_that_says_what_was_cut() -> None:
    assert inert_line("a\nb\r\n\x1bc") == "a b \u241bc"
    assert inert_line("x" * 50, limit=10) == "x" * 10 + " ... (40 more characters)"


def test_lone_surrogates_can_be_logged() -> None:
    assert encodable("a\ud800b") == "a\\ud800b"


@pytest.mark.parametrize("color", [False, True])
def test_plain_means_no_escape_sequence_even_on_a_terminal(color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if color:
        monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown_on(Tty(), "hello", color=color)


def test_markup_is_shown_as_it_was_written() -> None:
    text = "[bold]x[/bold] :smile: [link=http://a.test]y[/link]"
    assert text in shown_on(io.StringIO(), text)


def test_piped_lines_are_not_wrapped_and_keep_their_margin() -> None:
    out = io.StringIO()
    TerminalReporter(make_console(out)).notice("word " * 60 + "\nsecond line")
    first, second = out.getvalue().splitlines()
    assert len(first) > 300
    assert second == " " * 10 + "second line"


def test_a_streamed_reply_does_not_run_into_the_next_line() -> None:
    out = io.StringIO()
    reporter = TerminalReporter(make_console(out))
    reporter.text("The ans")
    reporter.text("wer")
    reporter.notice("next")
    assert out.getvalue().splitlines() == ["The answer", "NOTICE    next"]


@given(ANYTHING.filter(lambda text: "`" in text) | st.text("`\n a", min_size=1, max_size=30))
def test_markdown_keeps_hostile_text_inside_code(text: str) -> None:
    """Whatever stands in a block cannot close it: only its own fence, on a line of its own, does."""
    state = run_with(f"first\n{text}\nlast")
    lines = iter(render_markdown(state).splitlines())
    outside = []
    for line in lines:
        if opening := re.fullmatch("(`{3,})text", line):
            while next(lines) != opening[1]:
                pass
        else:
            outside.append(line)
    ours = re.compile(r"(#{1,2} [A-Z][a-z]+( \d+)?|\*\*\w+\*\*( `.*)?|)")
    assert [line for line in outside if not ours.fullmatch(line)] == []


@pytest.mark.parametrize(("used", "cells"), [(0, 0), (1, 1), (5, 5), (10, 10), (12, 10)])
def test_the_bar_shows_calls_of_their_cap(used: int, cells: int) -> None:
    assert bar(used, 10) == "#" * cells + "-" * (10 - cells)
