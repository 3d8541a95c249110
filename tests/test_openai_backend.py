"""What the /v1 backend sends, streams and looks up, against a server of bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import BackendError
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.envelopes import decode, usage_of
from agent.state import Message, ToolCall
from tests.support_wire import always, ask, chunk, chunked_head, http_reply, serving

DONE = (
    '{"choices":[{"message":{"content":"4"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
)
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
LABEL = {"type": "object", "properties": {"label": {"type": "string"}}}


def sent_for(*, extra_body: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    with serving(always(http_reply(DONE))) as wire:
        OpenAIBackend(wire.url + "/v1", "tiny", extra_body=extra_body).send(ask(**changes))
        assert wire.seen[0].path == "/v1/chat/completions"
        body: dict[str, Any] = wire.seen[0].json
    return body


def test_every_limit_is_sent_where_the_server_reads_it() -> None:
    assert sent_for(max_completion_tokens=99, temperature=0.5, seed=3) == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 99,
        "temperature": 0.5,
        "seed": 3,
        "stream": False,
    }


def test_a_schema_tools_and_extra_fields_are_sent_where_there_are_any() -> None:
    body = sent_for(schema=LABEL, tools=(WEATHER,), extra_body={"cache_prompt": True, "max_tokens": 10**6})
    contract = {"name": "reply", "schema": LABEL, "strict": True}
    assert body["response_format"] == {"type": "json_schema", "json_schema": contract}
    assert (body["tools"], body["cache_prompt"], body["max_tokens"]) == ([WEATHER], True, 64)
    assert sent_for(stop=("</think>",))["stop"] == ["</think>"]


def test_history_carries_arguments_as_text_and_ties_results_to_calls() -> None:
    calls = [ToolCall(name="a", arguments={"x": "é"}, id="c1"), ToolCall(name="b", arguments={})]
    messages = (
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content="1", tool_name="a", tool_call_id="c1"),
        Message(role="tool", content="2", tool_name="b"),
        Message(role="tool", content="3", tool_name="?"),
    )
    wire = sent_for(messages=messages)["messages"]
    assert wire[0] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "a", "arguments": '{"x": "é"}'}},
            {"id": "call_0_1", "type": "function", "function": {"name": "b", "arguments": "{}"}},
        ],
    }
    assert [m["tool_call_id"] for m in wire[1:]] == ["c1", "call_0_1", "call_3"]


def test_text_is_told_as_it_comes_and_usage_is_asked_for() -> None:
    events: list[object] = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": "Hel"}}]},
        {"choices": [{"delta": {"content": "lo"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    ]
    data = [b": ping\n\n", *(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events), b"data: [DONE]\n\n"]
    pieces: list[str] = []
    with serving(always(chunked_head(content_type="text/event-stream"), *map(chunk, data), chunk(b""))) as wire:
        reply = OpenAIBackend(wire.url, "tiny").send(ask(stream=True), pieces.append)
        assert wire.seen[0].json["stream_options"] == {"include_usage": True}
    assert pieces == ["Hel", "lo"]
    assert (decode(reply).content, usage_of(reply).completion_tokens) == ("Hello", 2)


def test_a_key_is_sent_and_never_shown() -> None:
    with serving(always(http_reply('{"error":{"message":"bad key"}}', status=401))) as wire:
        backend = OpenAIBackend(wire.url, "tiny", api_key="sk-hush")
        reply = backend.send(ask())
        assert wire.seen[0].headers["authorization"] == "Bearer sk-hush"
    with pytest.raises(BackendError, match="LLM_API_KEY") as caught:
        decode(reply)
    assert caught.value.error_type == "unauthorized"
    assert "hush" not in repr(backend) + str(caught.value) + repr(reply)


def described(listed: object, status: int = 200) -> Any:
    with serving(always(http_reply(json.dumps(listed), status=status))) as wire:
        info = OpenAIBackend(wire.url, "tiny").describe()
        assert wire.seen[0].path == "/v1/models"
    return info


def test_a_model_is_described_as_far_as_the_server_tells() -> None:
    info = described({"data": [{"id": "tiny", "meta": {"n_ctx_train": 8192}}, {"id": 7}, None]})
    assert (info.name, info.backend, info.context_window) == ("tiny", "openai", 8192)
    assert (info.tools, info.continues) == (None, False)
    assert described({"data": [{"id": "tiny", "max_model_len": 4096}]}).context_window == 4096
    assert described({"data": [{"id": "tiny", "meta": []}]}).context_window is None


def test_a_server_without_a_list_is_taken_at_its_word() -> None:
    assert described({"error": "no such thing"}, status=404).name == "tiny"


@pytest.mark.parametrize(
    ("listed", "there"),
    [({"data": None}, "no model at all"), ({}, "no model at all"), ({"data": [{"id": "b"}, {"id": "a\x1b"}]}, "a , b")],
)
def test_an_unknown_model_is_told_what_is_there(listed: object, there: str) -> None:
    with pytest.raises(BackendError) as caught:
        described(listed)
    assert caught.value.error_type == "model_not_found"
    assert str(caught.value).endswith(f"set LLM_MODEL to one of: {there}")


def test_llama_cpp_tells_what_it_had_cached() -> None:
    body = {
        "choices": [{"message": {"content": "4"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 40}},
        "timings": {"cache_n": 40, "prompt_n": 10, "prompt_ms": 25.0, "predicted_n": 2, "predicted_ms": 8},
    }
    with serving(always(http_reply(json.dumps(body)))) as wire:
        reply = OpenAIBackend(wire.url, "tiny").send(ask())
    envelope = decode(reply)
    assert usage_of(reply) == envelope.usage
    assert (envelope.usage.prompt_tokens, envelope.usage.cached_tokens) == (50, 40)
    assert (envelope.prompt_seconds, envelope.completion_seconds) == (0.025, 0.008)
