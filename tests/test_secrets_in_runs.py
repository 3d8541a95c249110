"""Whole runs that meet secrets of several lines: nothing of them is sent, asked or kept, and the trace still holds."""

from __future__ import annotations

import json
import sys
from base64 import encodebytes
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.config import environment_of_programs, load_settings
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import ScriptedBackend, ScriptedReply
from agent.llm.clean_replies import without_secrets
from agent.redaction import MARK, redacted, texts_of
from agent.reporter import SilentReporter
from agent.state import AgentState, ToolCall
from agent.tools.base import ToolContext
from agent.tools.mcp.config import read_servers
from agent.tools.mcp.tools import McpToolsets
from agent.tools.registry import TOOLSET_FAMILIES, ToolRegistry, toolset
from evals.plan import plan_task
from evals.replay import replay
from evals.runner import Runner
from evals.store import TraceStore
from evals.traces import dump, load_all
from evals.verify import verify
from tests.support_foreign import said
from tests.support_runs import answer, run_script, turn
from tests.support_secrets import KEY_LINES, PEM, TOKEN, seen_of
from tests.support_traces import genuine

SECRETS = (PEM, TOKEN)
NOTES = Path(__file__).resolve().parent / "mcp_servers" / "notes.py"
WAYS: list[Callable[[str], str]] = [
    str,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: " ".join(text.split()),
    repr,
    json.dumps,
    lambda text: json.dumps(json.dumps({"key": text})),
    lambda text: encodebytes(text.encode()).decode(),
    lambda text: text.splitlines()[1],
]
NAMES = ["plain", "crlf", "one line", "repr", "json", "json in json", "base64", "line"]


def pieces_in(*texts: str) -> set[str]:
    return {piece for secret in SECRETS for piece in seen_of(secret, *texts)}


def in_pieces(content: str, size: int = 3) -> str:
    """A reply as Ollama streams it: some characters an object, and the counts in the last."""
    parts = [content[at : at + size] for at in range(0, len(content), size)]
    lines = [{"model": "m", "message": {"role": "assistant", "content": part}, "done": False} for part in parts]
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    return "\n".join(map(json.dumps, [*lines, {**last, "prompt_eval_count": 900, "eval_count": 60}]))


def run_of(
    folder: Path, script: list[ScriptedReply | str], task: str = "Use it.", **more: Any
) -> tuple[AgentState, str]:
    """A run's trace as it was kept, and all that its model was told."""
    told: list[str] = []

    def plays(request: ChatRequest, number: int) -> ScriptedReply:
        told.extend(message.content for message in request.messages)
        reply = script[number]
        return ScriptedReply(reply) if isinstance(reply, str) else reply

    settings = load_settings(folder / "none.env", llm_backend="scripted", **more)
    with TraceStore(folder / "traces", SECRETS) as store:
        runner = Runner(store=store, backend_for=lambda _plan: ScriptedBackend(plays), secrets=SECRETS)
        runner.run(plan_task(settings, task), SilentReporter(), iter(()))
    kept = "".join(path.read_text("utf-8", "replace") for path in (folder / "traces").rglob("*") if path.is_file())
    (state,) = load_all(folder / "traces")
    decoded = "\n".join(texts_of(json.loads(state.model_dump_json())))
    assert pieces_in(kept, decoded, *told) == set()
    assert redacted(decoded, SECRETS) == decoded
    return state, "\n".join(told)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_a_key_in_task_thought_call_result_and_answer_is_kept_nowhere_and_the_trace_holds(
    tmp_path: Path, way: Callable[[str], str], streamed: bool
) -> None:
    code = f"print({way(PEM)!r})\nprint({PEM!r})"
    script: list[ScriptedReply | str] = [
        turn(thought=f"I know {way(PEM)}", action={"tool": "execute_code", "args": {"code": code}}),
        answer(f"The key is {way(PEM)} and {TOKEN}."),
    ]
    if streamed:
        script = [ScriptedReply(body=in_pieces(str(reply))) for reply in script]
    state, _ = run_of(tmp_path, script, f"Use {way(PEM)}.")
    assert state.status == "completed"
    assert MARK in state.task
    assert state.answer is not None
    assert state.answer.startswith(("The key is [redacted]", "The key is '[", 'The key is "[', 'The key is "{'))
    assert f"and {MARK}." in state.answer
    assert verify(state) == []
    assert replay(state).difference is None


def test_a_native_call_with_a_key_is_kept_without_it_and_the_trace_holds(tmp_path: Path) -> None:
    call = {"name": "execute_code", "arguments": {"code": f"key = {PEM!r}\nprint(len(key))"}}
    state, _ = run_of(tmp_path, [ScriptedReply(tool_calls=[call]), "Done."], strategy="native")
    (result,) = state.steps[0].results
    assert result.data == str(len(f"{MARK}\n"))
    assert verify(state) == []


def test_a_reply_without_secrets_stays_byte_for_byte() -> None:
    bodies = [
        in_pieces('{"a": "b"}'),
        '{"x" : [1, NaN,"\\u00e4"]}',
        "data: {}\n\ndata: [DONE]\n",
        "<html>",
        "",
        "[" * 5000,
    ]
    for body in bodies:
        assert without_secrets(body, SECRETS) == body
    numbers = '{"eval_count": 41234567, "text": "1234"}'
    assert json.loads(without_secrets(numbers, ("1234",))) == {"eval_count": 41234567, "text": MARK}


def test_pieces_of_a_v1_stream_are_cleaned_together_and_what_is_no_json_by_itself() -> None:
    def event(text: str) -> str:
        return "data: " + json.dumps({"choices": [{"delta": {"content": text}}]})

    body = "\n\n".join([*map(event, (f"a {TOKEN[:50]}", TOKEN[50:90], f"{TOKEN[90:]} b", " c")), "data: [DONE]"])
    clean = without_secrets(body, SECRETS)
    texts = [json.loads(line[6:])["choices"][0]["delta"]["content"] for line in clean.split("\n\n")[:4]]
    assert texts == [f"a {MARK}", "", " b", " c"]
    assert clean.endswith("data: [DONE]")
    assert without_secrets(f"<p>{TOKEN}</p>", SECRETS) == f"<p>{MARK}</p>"
    deep = '{"a":' * 100_000 + json.dumps(TOKEN)
    assert pieces_in(without_secrets(deep, SECRETS)) == set()


# -- a real server of the protocol ------------------------------------------------------------------------------------


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[None]:
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    listing = tmp_path / "mcp.json"
    listing.write_text(json.dumps({"mcpServers": {"notes": {"command": sys.executable, "args": [str(NOTES)]}}}))
    servers = McpToolsets(lambda: read_servers(listing), environment_of_programs(), lambda _said: None, SECRETS)
    TOOLSET_FAMILIES["mcp"] = servers.tools
    yield
    TOOLSET_FAMILIES.pop("mcp", None)


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_no_server_is_sent_a_key(way: Callable[[str], str]) -> None:
    context = ToolContext(secrets=SECRETS)
    with closing(ToolRegistry(toolset("mcp:notes"), context)) as tools:
        refused = tools.execute(ToolCall(name="mcp_notes_add_note", arguments={"text": f"so: {way(PEM)}"}))
        assert refused.error_type == "secret_in_request"
        assert pieces_in(refused.error or "") == set()
        assert said(tools.execute(ToolCall(name="mcp_notes_read_notes", arguments={}))) == "none"


@pytest.mark.usefixtures("notes")
def test_a_run_that_would_send_a_key_to_a_server_does_not() -> None:
    put = turn(action={"tool": "mcp_notes_add_note", "args": {"text": PEM}})
    look = turn(action={"tool": "mcp_notes_read_notes", "args": {}})
    state = run_script(
        [put, look, answer(f"the key is {PEM}")], tools_named="mcp:notes", approve={"execute": "allow"}, secrets=SECRETS
    )
    results = [result for step in state.steps for result in step.results]
    assert [result.error_type or said(result) for result in results] == ["secret_in_request", "none"]
    assert state.answer == f"the key is {MARK}\n"
    assert pieces_in(*texts_of(json.loads(state.model_dump_json()))) == set()
    assert verify(state) == []


# -- what is written --------------------------------------------------------------------------------------------------


def test_a_trace_is_written_without_the_lines_of_a_key_whatever_stands_in_the_state() -> None:
    state = genuine("completed")
    state.scratchpad = [f"key {PEM}", PEM.replace("\n", "\r\n"), KEY_LINES[0], json.dumps({"a": PEM})]
    state.status_reason = encodebytes(PEM.encode()).decode()
    text = dump(state, SECRETS).decode("ascii")
    assert pieces_in(text, *texts_of(json.loads(text))) == set()
    assert json.loads(text)["scratchpad"] == [
        f"key {MARK}\n",
        f"{MARK}\r\n",
        MARK,
        json.dumps({"a": MARK + "\\n"}).replace("\\\\", "\\"),
    ]
