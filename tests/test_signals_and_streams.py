"""The process around a run: signals that end it cleanly, streams that the caller closed, and secrets."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from agent.config import load_settings
from agent.llm.backends.scripted import ScriptedBackend
from agent.reporter import SilentReporter
from agent.state import AgentState, ToolCall
from agent.tools.base import ToolContext
from agent.tools.execute_code import ExecuteCode
from agent.tools.registry import ToolRegistry
from evals.plan import plan_task
from evals.runner import Runner
from evals.store import TraceStore
from evals.traces import load_all
from evals.verify import verify
from tests.support_cli import CALCULATE, MULTIPLY, Desk, answer
from tests.support_runs import act
from tests.support_runs import answer as answer_turn


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_run_and_keeps_its_trace(tmp_path: Path, number: signal.Signals) -> None:
    desk = Desk(tmp_path)
    script = desk.script([{"content": CALCULATE}, {"content": answer("42"), "seconds": 30}])
    process = subprocess.Popen(
        desk.command("main.py", "6 * 7?", "--backend", "scripted", "--scripted", script),
        cwd=tmp_path,
        env=desk.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    desk.wait_for_entries(2)
    process.send_signal(number)
    assert process.wait(20) == 130
    (path,) = desk.traces()
    trace = AgentState.model_validate_json(path.read_text("utf-8"))
    assert (trace.status, trace.scratchpad) == ("cancelled", ["calculate_math: 42"])
    assert verify(trace) == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_is_no_bug(tmp_path: Path, closed: str) -> None:
    desk = Desk(tmp_path)
    command = desk.command("main.py", "6 * 7?", "--backend", "scripted", "--scripted", desk.script(MULTIPLY))
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=tmp_path,
        env=desk.environment(),
        timeout=60,
        check=False,
        capture_output=closed == "<&-",
    )
    assert done.returncode == 0
    assert len(desk.traces()) == 1


def test_a_secret_that_a_program_prints_is_in_no_result() -> None:
    tools = ToolRegistry([ExecuteCode()], ToolContext(secrets=("sk-very-secret",)))
    call = ToolCall(name="execute_code", arguments={"code": "print('key: sk-very-' + 'secret')"})
    assert tools.execute(call).data == "key: [redacted]"


def test_a_misspelt_cap_is_refused_and_a_foreign_name_is_not(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (tmp_path / ".env").write_text("MAX_COSTS_USD=0.001\n", encoding="utf-8")
    refused = desk.inside("6 * 7?", "--backend", "scripted", "--scripted", desk.script(MULTIPLY))
    assert refused.code == 2
    assert "did you mean MAX_COST_USD?" in refused.line
    (tmp_path / ".env").write_text("COMPOSE_PROJECT_NAME=x\n", encoding="utf-8")
    assert desk.inside("6 * 7?", "--backend", "scripted", "--scripted", desk.script(MULTIPLY)).code == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"SEARCH_PROVIDER": "corpus"}, "SEARCH_PROVIDER=corpus, and there is no corpus to search; set it to auto or"),
        ({"SEARCH_PROVIDER": "searxng"}, "SEARCH_PROVIDER=searxng needs SEARXNG_URL; set it to the server's address"),
        (
            {"SEARXNG_URL": "http://127.0.0.1:9", "SEARCH_API_KEY": "a key"},
            "SEARCH_API_KEY holds characters that cannot stand in an HTTP header; copy it again",
        ),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_before_the_run(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    desk = Desk(tmp_path)
    flags = ("Hello!", "--strategy", "native", "--backend", "scripted", "--scripted", desk.script(["Good day."]))
    done = desk.inside(*flags, **settings)
    assert done.code == 2
    assert done.line.startswith(f"shoestring: {said}")
    assert desk.traces() == []
    assert desk.inside(*flags, "--toolset", "fs", **settings).code == 0, "there is nothing to search with"


class _InterruptedAtTheEnd(SilentReporter):
    def run_finished(self, state: AgentState) -> None:
        raise KeyboardInterrupt


def test_a_stop_after_the_loop_loses_no_trace(tmp_path: Path) -> None:
    settings = load_settings(tmp_path / "none.env", llm_backend="scripted")
    with TraceStore(tmp_path) as store:
        runner = Runner(store=store, backend_for=lambda _plan: ScriptedBackend([act("6*7"), answer_turn("42")]))
        with pytest.raises(KeyboardInterrupt):
            runner.run(plan_task(settings, "6 * 7?"), _InterruptedAtTheEnd())
        (trace,) = load_all(tmp_path)
    assert (trace.status, trace.answer) == ("completed", "42")
