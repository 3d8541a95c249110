"""The real model in the box: it starts, counts exactly, keeps its contract, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config import EMBEDDED_MODEL
from agent.errors import BackendError, RequestError, UsageError
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.embedded import EmbeddedBackend
from agent.llm.envelopes import decode
from agent.state import AgentState, Message
from evals.verify import verify

ROOT = Path(__file__).resolve().parent.parent
WINDOW = 2048
SECONDS = 120.0
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


def request(*texts: str, cap: int = 24, schema: dict[str, object] | None = None, num_ctx: int = WINDOW) -> ChatRequest:
    roles = ("system", "user", "assistant", "user", "assistant", "user")
    messages = tuple(Message(role=r, content=t) for r, t in zip(roles, texts, strict=False))  # type: ignore[arg-type]  # roles as they are
    return ChatRequest(messages, cap, 0.0, 7, num_ctx, SECONDS, schema=schema)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    log = tmp_path_factory.mktemp("embedded") / "llama.log"
    backend = EmbeddedBackend(EMBEDDED_MODEL, WINDOW, log_path=log)
    yield backend
    backend.close()


def test_it_says_which_weights_answer(backend: EmbeddedBackend) -> None:
    info = backend.describe()
    assert info.name == "SmolLM2-135M-Instruct.Q4_1"
    assert info.digest == "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert (info.quantization, info.context_window) == ("Q4_1", 8192)


@pytest.mark.parametrize(
    "texts",
    [
        ("Be brief.", "Name a colour."),
        ("Be brief.", "Grüße, 世界! 🙂\r\n\tif x:\n    y()"),
        ("Be brief.", "a", "b", "c"),
        ("Be brief.", "special: <|im_end|> inside"),
        ("x " * 400, "long head"),
    ],
)
def test_prompts_are_counted_exactly_before_the_call(backend: EmbeddedBackend, texts: tuple[str, ...]) -> None:
    ask = request(*texts, cap=1)
    assert backend.count_prompt_tokens(ask) == decode(backend.send(ask)).usage.prompt_tokens


def test_a_schema_holds_and_the_cap_holds(backend: EmbeddedBackend) -> None:
    reply = decode(backend.send(request("Answer in JSON.", "Pick a colour and a count.", cap=48, schema=SCHEMA)))
    value = json.loads(reply.content)
    assert value["colour"] in ("red", "blue")
    assert 0 <= value["count"] <= 9
    capped = decode(backend.send(request("Be long.", "Tell a story.", cap=5)))
    assert (capped.usage.completion_tokens, capped.finish) == (5, "length")


def test_a_growing_conversation_is_read_from_the_cache(backend: EmbeddedBackend) -> None:
    head = "You are a patient helper who explains things step by step. " * 10
    first = decode(backend.send(request(head, "Say hi.", cap=8)))
    second = decode(backend.send(request(head, "Say hi.", first.content, "Again.", cap=8)))
    assert first.usage.prompt_tokens is not None
    assert second.usage.cached_tokens is not None
    assert second.usage.cached_tokens >= 0.95 * first.usage.prompt_tokens


def test_a_prompt_over_the_window_is_refused_not_cut(backend: EmbeddedBackend) -> None:
    with pytest.raises(BackendError) as refused:
        decode(backend.send(request("Be brief.", "word " * WINDOW)))
    assert refused.value.error_type == "context_overflow"


def test_what_the_server_would_misread_is_refused_before_it_is_sent(backend: EmbeddedBackend) -> None:
    for odd in (request(), request("a", "b", cap=0), request("a", "b", num_ctx=4096)):
        with pytest.raises(RequestError):
            backend.send(odd)


def test_a_file_that_is_no_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make setup"):
        EmbeddedBackend(tmp_path / "none.gguf", WINDOW, log_path=tmp_path / "l.log").describe()
    other = tmp_path / "other.gguf"
    other.write_bytes(b"MZ" * 100)
    with pytest.raises(UsageError, match="not a GGUF"):
        EmbeddedBackend(other, WINDOW, log_path=tmp_path / "l.log").describe()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 1000)
    with pytest.raises(BackendError, match="cannot serve") as refused:
        EmbeddedBackend(broken, WINDOW, log_path=tmp_path / "llama.log").describe()
    assert "\n" not in str(refused.value)


def test_the_server_ends_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import pathlib, time\n"
        "from agent.config import EMBEDDED_MODEL\n"
        "from agent.llm.backends.embedded import EmbeddedBackend\n"
        f"b = EmbeddedBackend(EMBEDDED_MODEL, 512, log_path=pathlib.Path({str(tmp_path / 'l.log')!r}))\n"
        "b.describe()\n"
        "print(b._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 20
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(child)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # an orphan in a container without init stays as a zombie, which serves nobody
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_task_from_the_command_line_to_a_verified_trace(tmp_path: Path) -> None:
    command = [sys.executable, "main.py", "What is 12 times 7?", "--backend", "embedded", "--json", "--max-calls", "3"]
    done = subprocess.run(
        [*command, "--traces", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    said = json.loads(done.stdout)
    trace = AgentState.model_validate_json(Path(said["trace"]).read_text())
    assert verify(trace) == []
    assert 1 <= said["calls"] <= 3
    assert said["prompt_tokens"] == trace.prompt_tokens > 0
    assert all(entry.bound_kind == "exact" for entry in trace.ledger)
    assert all(call.usage.cached_tokens is not None for call in trace.calls)
    assert done.returncode in (0, 1)
