"""The real model in the box: it starts, counts exactly, keeps its contract, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
    assert (info.tools, info.continues) == (False, True)


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


# -- replies that go on ---------------------------------------------------------------------------------------------


def begun(*texts: str, cap: int = 24, stop: tuple[str, ...] = (), **changes: Any) -> ChatRequest:
    """A request whose last message is the model's own, left open."""
    return replace(request(*texts, cap=cap), continues=True, stop=stop, **changes)


THOUGHT = "<think>\nI should name one colour and one number.\n</think>\n"


@pytest.mark.parametrize(
    "texts",
    [
        ("Be brief.", "Name a colour.", begun_with)
        for begun_with in (
            "Red",
            "Red,",
            " Red",
            "Red ",
            "R",
            "",
            " ",
            "\n",
            "\n\n\n",
            "Grüße, 世界! 🙂",
            "\r\n\tif x:\n    y()",
            "special: <|im_end|> inside",
            "<|im_end|>\n<|im_start|>user\n",
            "<|im_start|>",
            "<|im_st",
            THOUGHT,
            "<think>",
            '[{"tool": "a", "args": {"b": ',
            "12345678901234567890",
        )
    ]
    + [("", "", "x"), ("Be brief.", "a", "b", "c", "d"), ("a\u0301\u200b", "\ufeff<|endoftext|>", "\ufeff")],
)
def test_prompts_of_begun_replies_are_counted_exactly(backend: EmbeddedBackend, texts: tuple[str, ...]) -> None:
    ask = begun(*texts, cap=1)
    reply = backend.send(ask)
    assert reply.endpoint == "/v1/completions"
    assert backend.count_prompt_tokens(ask) == decode(reply).usage.prompt_tokens


def test_a_begun_reply_goes_on_under_a_schema(backend: EmbeddedBackend) -> None:
    ask = begun("Answer in JSON.", "Pick a colour and a count.", THOUGHT, cap=48, schema=SCHEMA)
    told: list[str] = []
    reply, streamed = decode(backend.send(ask)), decode(backend.send(replace(ask, stream=True), told.append))
    value = json.loads(reply.content)
    assert value["colour"] in ("red", "blue")
    assert (streamed.content, streamed.finish) == (reply.content, "stop")
    assert "".join(told) == reply.content
    assert len(told) > 1
    assert streamed.usage.prompt_tokens == reply.usage.prompt_tokens == backend.count_prompt_tokens(ask)


def test_a_reply_ends_before_a_stop_text(backend: EmbeddedBackend) -> None:
    counting = ("Be brief.", "Count from one to nine.", "1, 2, 3, 4, 5,")
    whole = decode(backend.send(begun(*counting))).content
    assert " 7" in whole
    for ask in (begun(*counting, stop=(" 7",)), begun(*counting, stop=("never", " 7"))):
        reply = decode(backend.send(ask))
        assert (reply.content, reply.finish) == (whole.partition(" 7")[0], "stop")
    said = decode(backend.send(request("Be brief.", "Say hi."))).content
    assert len(said.split()) > 1
    cut = decode(backend.send(replace(request("Be brief.", "Say hi."), stop=(" ",))))
    assert (cut.content, cut.finish) == (said.partition(" ")[0], "stop")


def test_a_begun_reply_keeps_cap_and_window(backend: EmbeddedBackend) -> None:
    capped = decode(backend.send(begun("Be long.", "Tell a story.", "Once", cap=5)))
    assert (capped.usage.completion_tokens, capped.finish) == (5, "length")
    with pytest.raises(BackendError) as refused:
        decode(backend.send(begun("Be brief.", "hello", "word " * WINDOW)))
    assert refused.value.error_type == "context_overflow"


# -- the cache ------------------------------------------------------------------------------------------------------


def prompt_text(ask: ChatRequest) -> str:
    """The prompt as the model reads it."""
    turns = [f"<|im_start|>{message.role}\n{message.content}" for message in ask.messages]
    return "<|im_end|>\n".join(turns if ask.continues else [*turns, "<|im_start|>assistant\n"])


@dataclass
class Played:
    """Calls on one server. `shares`: of the longest earlier prompt with the same head, how much was cached."""

    backend: EmbeddedBackend
    shares: list[float] = field(default_factory=list)
    earlier: list[tuple[str, int]] = field(default_factory=list)

    def send(self, ask: ChatRequest) -> str:
        reply, text = decode(self.backend.send(ask)), prompt_text(ask)
        assert reply.usage.cached_tokens is not None
        assert reply.usage.prompt_tokens is not None
        if heads := [count for head, count in self.earlier if text.startswith(head)]:
            self.shares.append(reply.usage.cached_tokens / max(heads))
        self.earlier.append((text, reply.usage.prompt_tokens))
        return reply.content


def test_no_conversation_loses_its_cache_to_another(backend: EmbeddedBackend) -> None:
    """Four conversations in turn, two of them with the same system message, each with thoughts that are dropped."""
    played = Played(backend)
    rules = " ".join(f"Rule {n}: be as kind as you can." for n in range(8))
    heads = [f"You route. {rules}", f"You extract. {rules}", *[f"You answer. {rules}"] * 2]
    talks = [[head, f"Task {n}: say hi to visitor {n}."] for n, head in enumerate(heads)]
    for number in range(3):
        for talk in talks:
            said = played.send(request(*talk, cap=6))
            played.send(begun(*talk, f"<think>\n{said}\n</think>\n", cap=4))
            if number < 2:
                talk += [said or "Hi.", f"And visitor {number}?"]
    branch = [*talks[0][:4], "Something else entirely."]
    for _ in range(2):
        played.send(request(*branch[:3], branch[-1], cap=6))
    assert len(played.shares) == 4 * (1 + 2 + 2) + 2
    assert min(played.shares) >= 0.95


def test_a_prompt_may_fill_the_window(tmp_path: Path) -> None:
    small = EmbeddedBackend(EMBEDDED_MODEL, 256, log_path=tmp_path / "llama.log")
    try:
        ask = request("Be brief.", "word " * 237, cap=1, num_ctx=256)
        assert small.count_prompt_tokens(ask) == decode(small.send(ask)).usage.prompt_tokens == 255
        with pytest.raises(BackendError) as refused:
            decode(small.send(request("Be brief.", "word " * 238, cap=1, num_ctx=256)))
        assert refused.value.error_type == "context_overflow"
    finally:
        small.close()


# -- tools ----------------------------------------------------------------------------------------------------------

CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object"}},
}
# A template that has a place for tools, with the calls of a conversation; no longer than the model's own.
WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools|tojson }}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>"
    "{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function|tojson }}</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_tools_without_a_place_in_the_template_are_refused(backend: EmbeddedBackend) -> None:
    with pytest.raises(BackendError) as refused:
        backend.send(replace(request("Be brief.", "What time is it?"), tools=(CLOCK,)))
    assert refused.value.error_type == "tools_unsupported"


def test_tools_with_a_place_in_the_template_are_sent_and_counted(tmp_path: Path) -> None:
    weights = EMBEDDED_MODEL.read_bytes()
    start = weights.index(b"{% for message in messages %}")
    end = weights.index(b"{% endif %}", weights.index(b"add_generation_prompt", start)) + len(b"{% endif %}")
    assert end - start >= len(WITH_TOOLS)
    changed = tmp_path / "with-tools.gguf"
    changed.write_bytes(weights[:start] + WITH_TOOLS.ljust(end - start).encode() + weights[end:])
    capable = EmbeddedBackend(changed, WINDOW, log_path=tmp_path / "llama.log")
    try:
        assert capable.describe().tools is True
        bare, begun_reply = request("Be brief.", "What time is it?", cap=1), begun("Be brief.", "Time?", "It", cap=1)
        for ask in (bare, begun_reply):
            offered = replace(ask, tools=(CLOCK,))
            count, without = capable.count_prompt_tokens(offered), capable.count_prompt_tokens(ask)
            assert count == decode(capable.send(offered)).usage.prompt_tokens
            assert count is not None
            assert without is not None
            assert count > without + 20
    finally:
        capable.close()


# -- what is refused ------------------------------------------------------------------------------------------------


def test_a_prompt_over_the_window_is_refused_not_cut(backend: EmbeddedBackend) -> None:
    with pytest.raises(BackendError) as refused:
        decode(backend.send(request("Be brief.", "word " * WINDOW)))
    assert refused.value.error_type == "context_overflow"


def test_what_the_server_would_misread_is_refused_before_it_is_sent(backend: EmbeddedBackend) -> None:
    for odd in (request(), request("a", "b", cap=0), request("a", "b", num_ctx=4096), begun("a")):
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
