"""A reply that was begun goes on: what each backend sends for it, and what it refuses before it sends anything."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agent.errors import BackendError, ReplayMismatchError, RequestError
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.backends.replay import ReplayBackend
from agent.llm.backends.scripted import ScriptedBackend
from agent.llm.envelopes import decode
from agent.state import AgentState, Message
from tests.support_runs import act, answer, run_script
from tests.support_wire import Answer, Seen, ask, chunk, chunked_head, http_reply, serving

HEAD = "<|im_start|>user\nRead notes.txt<|im_end|>\n<|im_start|>assistant\n"
THOUGHT = "<think>\nI read it.\n</think>\n"
ACTIONS = {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 4}
CONTINUED = {"response": "[{}]", "done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}


def begun(text: str = THOUGHT, **changes: Any) -> ChatRequest:
    messages = (Message(role="user", content="Read notes.txt"), Message(role="assistant", content=text))
    return ask(messages=messages, continues=True, **changes)


def ollama(rendered: str | None = HEAD, *, version: str = "0.32.15", generate: bytes | None = None) -> Answer:
    """An Ollama that renders `rendered`."""
    rendering = {"message": {"role": "", "content": ""}, "done": False}
    if rendered is not None:
        rendering["_debug_info"] = {"rendered_template": rendered}
    replies = {
        "/api/version": http_reply(json.dumps({"version": version})),
        "/api/chat": http_reply(json.dumps(rendering)),
        "/api/generate": generate or http_reply(json.dumps(CONTINUED)),
    }

    def answer(seen: Seen) -> Iterator[bytes]:
        yield replies[seen.path]

    return answer


def prompt_for(rendered: str, text: str) -> str:
    with serving(ollama(rendered)) as wire:
        OllamaBackend(wire.url, "tiny").send(begun(text))
        prompt: str = wire.seen[-1].json["prompt"]
    return prompt


def test_ollama_renders_what_was_said_before_and_completes_the_open_reply() -> None:
    with serving(ollama()) as wire:
        backend = OllamaBackend(wire.url, "tiny")
        reply = backend.send(begun(schema=ACTIONS, stop=("\n\n",), tools=(CLOCK,), seed=3))
        backend.send(begun())
    asked, rendering, generating = wire.seen[:3]
    assert [seen.path for seen in wire.seen] == [asked.path, *["/api/chat", "/api/generate"] * 2]  # its age only once
    assert rendering.json["_debug_render_only"] is True
    assert rendering.json["messages"] == [{"role": "user", "content": "Read notes.txt"}]
    assert (rendering.json["tools"], rendering.json.get("format")) == ([CLOCK], None)
    options = {"num_ctx": 2048, "num_predict": 64, "temperature": 0.0, "seed": 3, "stop": ["\n\n"]}
    # Another window would load the model anew; and should a server not know the field, it must not write much.
    assert rendering.json["options"] == options | {"num_predict": 1}
    assert generating.json == {
        "model": "tiny:latest",
        "prompt": HEAD + THOUGHT,
        "raw": True,
        "format": ACTIONS,
        "stream": False,
        "think": False,
        "truncate": False,
        "shift": False,
        "options": options,
    }
    envelope = decode(reply)
    assert (reply.endpoint, envelope.content, envelope.usage.prompt_tokens) == ("/api/generate", "[{}]", 9)


@pytest.mark.parametrize("opened", ["<think>\n", "<think>", "<think>\n\n</think>\n\n"])
def test_thinking_that_the_template_opened_is_not_opened_twice(opened: str) -> None:
    assert prompt_for(HEAD + opened, THOUGHT) == HEAD + THOUGHT
    assert prompt_for(HEAD + opened, "So: ") == HEAD + opened + "So: "


def test_thinking_inside_a_conversation_stays() -> None:
    earlier = "<|im_start|>assistant\n<think>\n\n</think>\n\nYes.<|im_end|>\n"
    assert prompt_for(earlier + HEAD, THOUGHT) == earlier + HEAD + THOUGHT


def test_a_continued_reply_is_told_as_it_comes() -> None:
    lines = [{"response": "[{", "done": False}, {**CONTINUED, "response": "}]"}]
    pieces = b"".join(chunk(json.dumps(line).encode() + b"\n") for line in lines)
    told: list[str] = []
    with serving(ollama(generate=chunked_head() + pieces + chunk(b""))) as wire:
        reply = OllamaBackend(wire.url, "tiny").send(begun(stream=True), told.append)
    assert [seen.json.get("stream") for seen in wire.seen[1:]] == [False, True]
    assert told == ["[{", "}]"]
    assert decode(reply).content == "[{}]"


def test_one_deadline_holds_for_both_requests() -> None:
    stop = threading.Event()

    def stalls(seen: Seen) -> Iterator[bytes]:
        if seen.path == "/api/generate":
            yield chunked_head()
            stop.wait(5)
            return
        yield from ollama()(seen)

    with serving(stalls) as wire:
        with pytest.raises(BackendError) as caught:
            OllamaBackend(wire.url, "tiny").send(begun(deadline_seconds=0.3))
        stop.set()
    assert caught.value.error_type == "deadline"


def test_a_server_that_is_too_old_is_not_asked() -> None:
    with serving(ollama(version="0.31.9")) as wire, pytest.raises(RequestError, match="too old"):
        OllamaBackend(wire.url, "tiny").send(begun())
    assert [seen.path for seen in wire.seen] == ["/api/version"]


def test_a_rendering_that_fails_comes_back_as_it_came() -> None:
    def refuses(seen: Seen) -> Iterator[bytes]:
        if seen.path == "/api/version":
            yield http_reply('{"version":"0.32.0"}')
        yield http_reply('{"error":"model \'tiny\' not found"}', status=404)

    with serving(refuses) as wire:
        reply = OllamaBackend(wire.url, "tiny").send(begun())
    assert (reply.status, reply.endpoint, len(wire.seen)) == (404, "/api/chat", 2)
    with pytest.raises(BackendError) as caught:
        decode(reply)
    assert caught.value.error_type == "model_not_found"


def test_a_server_that_does_not_render_is_named() -> None:
    with serving(ollama(None)) as wire, pytest.raises(BackendError, match="did something else"):
        OllamaBackend(wire.url, "tiny").send(begun())


def test_an_unknown_v1_server_is_never_asked() -> None:
    with serving(ollama()) as wire, pytest.raises(RequestError):
        OpenAIBackend(wire.url, "tiny").send(begun())
    assert wire.seen == []


def test_a_script_answers_in_the_envelope_of_the_request() -> None:
    backend = ScriptedBackend(['[{"tool": "a"}]', "plain"])
    reply = backend.send(begun(schema=ACTIONS))
    assert (reply.endpoint, decode(reply).content) == ("/api/generate", '[{"tool": "a"}]')
    assert backend.send(ask()).endpoint == "/api/chat"
    assert backend.describe().continues


def recorded(**changes: Any) -> AgentState:
    """A trace whose first call was asked so."""
    trace = run_script([act("6*7"), answer("42")])
    trace.calls[0] = trace.calls[0].model_copy(update={"schema_hash": None, **changes})
    return trace


def asked_again(trace: AgentState, **changes: Any) -> ChatRequest:
    """The first call of a trace, without stop texts and with nothing open."""
    return ask(
        messages=tuple(trace.calls[0].appended),
        max_completion_tokens=trace.ledger[0].max_completion_tokens,
        num_ctx=trace.sampling.num_ctx,
        **changes,
    )


@pytest.mark.parametrize(
    ("was", "named"),
    [
        ({"stop": ["x"]}, "stop texts differs: recorded \"['x']\", asked '[]'"),
        ({"continues": True}, "open last message"),
    ],
)
def test_a_replay_names_what_was_asked_otherwise(was: dict[str, Any], named: str) -> None:
    trace = recorded(**was)
    with pytest.raises(ReplayMismatchError) as caught:
        ReplayBackend(trace).send(asked_again(trace))
    assert named in str(caught.value)


def test_a_replay_plays_what_was_asked_alike() -> None:
    trace = recorded(stop=["x"], continues=True)
    reply = ReplayBackend(trace).send(asked_again(trace, stop=("x",), continues=True))
    assert reply.body == trace.calls[0].raw
