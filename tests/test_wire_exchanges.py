"""Recordings from a real Ollama, served again from a socket: each gives a reply or a typed error.

`fixtures/wire/exchanges.jsonl` holds them; WIRE_EXCHANGES names a folder of NAME.req.json and NAME.resp.txt instead.
A recording of a request that a backend makes is replayed through that backend, the others through its transport.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from agent.errors import BackendError, ModelError, ShoestringError
from agent.llm.backends.base import ChatRequest, RawReply
from agent.llm.backends.http import Transport
from agent.llm.backends.http_call import Call
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.envelopes import decode, object_of, usage_of
from agent.llm.replies import read_reply
from agent.state import Message, ToolCall, Usage
from tests.support_recordings import RECORDINGS, Recording
from tests.support_wire import (
    Answer,
    Seen,
    ask,
    fault_seen_as,
    meets,
    seen_as,
    serving,
)


def _replayed(recording: Recording) -> Any:
    """What comes of a recording: a reply or an error in the form of the cases, or the value of a look-up."""
    answer: Answer = recording.answer
    with serving(answer) as wire:
        try:
            return _outcome(recording, wire.url)
        except (ModelError, BackendError) as error:
            return fault_seen_as(error)


def _outcome(recording: Recording, url: str) -> Any:
    method, path, body = recording.request["method"], recording.request["path"], recording.request.get("body")
    if not isinstance(body, dict):
        body = {}
    ollama = OllamaBackend(url, body.get("model") or "smollm2:135m")
    chats = path in ("/api/chat", "/v1/chat/completions") and isinstance(body.get("messages"), list)
    if chats and body.get("_debug_render_only"):
        return ollama.render_prompt(_request(body))
    if chats:
        backend = OpenAIBackend(url, body["model"]) if path.startswith("/v1") else ollama
        return _reply(backend.send(_request(body)), body)
    if path == "/api/generate" and "prompt" in body:
        return _reply(ollama.generate(body["prompt"], ask(stream=body.get("stream", True))), body)
    looks = {"/api/tags": ollama.models, "/api/ps": ollama.running, "/api/show": ollama.show}
    if path in looks and "origin" not in {name.lower() for name in recording.request["headers"]}:
        return looks[path]()
    reply = Transport(url).send(Call(method, path, 5.0))
    return _reply(reply, body) if path in ("/api/chat", "/api/generate") else object_of(reply)


def _reply(raw: RawReply, body: dict[str, Any]) -> Any:
    usage = usage_of(raw)
    try:
        reply = read_reply(decode(raw), schema=_schema(body), tools=body.get("tools") or ())
    except (ModelError, BackendError) as error:
        return {**fault_seen_as(error), "usage": usage}
    seen = seen_as(reply)
    return {**seen, "usage": usage} if isinstance(seen, dict) else seen


def _request(body: dict[str, Any]) -> ChatRequest:
    messages = tuple(_message(m) for m in body["messages"] if m.get("role") in ("system", "user", "assistant", "tool"))
    stream = body.get("stream", "options" in body)
    tools = tuple(body["tools"]) if body.get("tools") else None
    return ask(messages=messages, stream=stream, schema=_schema(body), tools=tools)


def _schema(body: dict[str, Any]) -> dict[str, Any] | None:
    wanted = body.get("format")
    if isinstance(body.get("response_format"), dict):
        wanted = body["response_format"].get("json_schema", {}).get("schema")
    # A schema that points nowhere is refused by the server; it is not one to hold a reply against.
    return wanted if isinstance(wanted, dict) and "nowhere" not in json.dumps(wanted) else None


def _message(wire: dict[str, Any]) -> Message:
    calls = [
        ToolCall(name=c["function"]["name"], arguments=c["function"]["arguments"], id=c.get("id"))
        for c in wire.get("tool_calls", ())
        if isinstance(c["function"]["arguments"], dict)
    ]
    return Message(
        role=wire["role"],
        content=wire.get("content") or "",
        tool_calls=calls or None,
        tool_name=wire.get("tool_name"),
        tool_call_id=wire.get("tool_call_id"),
    )


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_gives_a_reply_or_a_typed_error(name: str) -> None:
    assert _replayed(RECORDINGS[name]) is not None


ALICE = {"name": "Alice", "age": 30}
HELLO = "I'm so sorry to hear that you're going through a tough time."
BERLIN = [{"tool": "get_weather", "args": {"city": "Berlin"}}]


def _answer(text: Any, prompt: int, completion: int) -> dict[str, Any]:
    return {"answer": text, "usage": Usage(prompt_tokens=prompt, completion_tokens=completion)}


def _fault(error_type: str, **more: Any) -> dict[str, Any]:
    return {"error_type": error_type, **more}


NOTHING_COUNTED = Usage()

OUTCOMES: dict[str, Any] = {
    "busy_queue_full_v1": _fault("server_busy", retry=True),
    "chat_bad_model_name": _fault("request_invalid", retry=False),
    "chat_empty_body": _fault("request_invalid"),
    "chat_format_bad_schema": _fault("request_invalid"),
    "chat_format_bad_schema_stream": _fault("request_invalid"),
    "chat_format_invalid_string": _fault("request_invalid"),
    "chat_format_invalid_type": _fault("request_invalid"),
    "chat_format_schema": _answer(ALICE, 21, 18),
    "chat_format_schema_gotemplate": _answer(ALICE, 21, 18),
    "chat_format_schema_stream": _answer(ALICE, 21, 18),
    "chat_format_schema_truncated": _fault("truncated", usage=Usage(prompt_tokens=21, completion_tokens=5)),
    "chat_format_schema_unsupported_pattern": _fault("request_invalid"),
    "chat_malformed_json": _fault("request_invalid"),
    "chat_no_model": _fault("request_invalid"),
    "chat_nostream": _answer(HELLO, 16, 16),
    "chat_nostream_gotemplate": _answer(HELLO, 16, 16),
    "chat_num_ctx_truncate_false": _fault("context_overflow", retry=False),
    "chat_num_predict_5": _fault("truncated", usage=Usage(prompt_tokens=15, completion_tokens=5)),
    "chat_num_predict_5_stream": _fault("truncated", usage=Usage(prompt_tokens=15, completion_tokens=5)),
    "chat_option_wrong_type": _fault("request_invalid"),
    "chat_prefill_assistant": _answer("Paris.", 21, 3),
    "chat_stream": _answer(HELLO, 16, 16),
    "chat_system": _answer("Bonjour!", 20, 4),
    "chat_think_unsupported": _fault("thinking_unsupported"),
    "chat_token_repeat_abort": _fault("stream_incomplete", detail="repetition", usage=NOTHING_COUNTED),
    "chat_token_repeat_abort_gotemplate": _fault("stream_incomplete", detail="repetition"),
    "chat_tools_arguments_as_string": _fault("request_invalid"),
    "chat_tools_native": BERLIN,
    "chat_tools_native_stream": BERLIN,
    "chat_tools_native_truncated_call": _fault("model_tool_parse_failed"),
    "chat_tools_native_truncated_call_stream": _fault("model_tool_parse_failed"),
    "chat_tools_stream": BERLIN,
    "chat_tools_truncated_call": _fault("truncated", usage=Usage(prompt_tokens=383, completion_tokens=15)),
    "chat_tools_truncated_call_stream": _fault("truncated"),
    "chat_tools_two_calls": BERLIN,
    "chat_tools_two_calls_stream": BERLIN,
    "chat_tools_unsupported": _fault("tools_unsupported"),
    "chat_tools_unsupported_stream": _fault("tools_unsupported"),
    "chat_unload": _fault("empty_load", detail="unload"),
    "chat_wrong_type": _fault("request_invalid"),
    "forbidden_host_header": _fault("forbidden"),
    "forbidden_origin": _fault("forbidden"),
    "generate_empty_prompt_load": _fault("empty_load"),
    "generate_missing_model": _fault("model_not_found"),
    "generate_nostream": _fault("truncated", usage=Usage(prompt_tokens=12, completion_tokens=10)),
    "generate_raw_schema": _answer({"name": "John", "age": 30}, 12, 18),
    "method_not_allowed": _fault("request_invalid"),
    "midstream_runner_killed_chat": _fault("stream_error", retry=True, usage=NOTHING_COUNTED),
    "midstream_runner_killed_chat_gotemplate": _fault("stream_error", retry=True),
    "native_chat_format_bad_schema": _fault("request_invalid"),
    "native_chat_format_schema": _answer(ALICE, 21, 19),
    "native_chat_format_schema_stream": _answer(ALICE, 21, 19),
    "native_chat_num_ctx_truncate_false": _fault("context_overflow"),
    "native_v1_chat_bad_schema": _fault("request_invalid"),
    "native_v1_chat_json_schema": _answer(ALICE, 21, 19),
    "ps": [],
    "root": _fault("bad_reply"),
    "runner_killed_v1_nostream": _fault("server_error", retry=True),
    "show_missing_model": _fault("model_not_found", retry=False),
    "unknown_path": _fault("not_found"),
    "v1_chat": _answer(HELLO, 16, 16),
    "v1_chat_bad_schema": _fault("request_invalid"),
    "v1_chat_json_schema": _answer(ALICE, 21, 18),
    "v1_chat_max_tokens_5": _fault("truncated", usage=Usage(prompt_tokens=15, completion_tokens=5)),
    "v1_chat_missing_model": _fault("model_not_found"),
    "v1_chat_missing_model_stream": _fault("model_not_found"),
    "v1_chat_stream_usage": _answer(HELLO, 16, 16),
    "v1_chat_tools": BERLIN,
    "v1_chat_tools_stream": BERLIN,
    "v1_chat_tools_truncated_call": _fault("model_tool_parse_failed"),
    "v1_chat_tools_truncated_call_stream": _fault("model_tool_parse_failed"),
    "v1_chat_tools_two_calls": BERLIN,
    "v1_chat_tools_two_calls_stream": BERLIN,
    "v1_chat_tools_unsupported": _fault("tools_unsupported"),
    "v1_model_missing": _fault("model_not_found"),
    "v1_token_repeat_abort": _fault("stream_incomplete", detail="repetition", usage=NOTHING_COUNTED),
}


@pytest.mark.parametrize("name", [name for name in OUTCOMES if name in RECORDINGS])
def test_a_recording_comes_out_as_it_must(name: str) -> None:
    seen = _replayed(RECORDINGS[name])
    assert meets(seen, OUTCOMES[name]), seen


def test_no_outcome_is_left_untested() -> None:
    if "WIRE_EXCHANGES" not in os.environ:
        assert set(OUTCOMES) <= set(RECORDINGS)


def _recorded(name: str) -> Recording:
    if name not in RECORDINGS:
        pytest.skip(f"no recording called {name}")
    return RECORDINGS[name]


def test_the_list_of_models_tells_what_a_trace_needs() -> None:
    models = {model.name: model for model in _replayed(_recorded("tags"))}
    assert sorted(models) == ["gemma3:270m", "smollm2-jinjatools:135m", "smollm2-tools:135m", "smollm2:135m"]
    model = models["smollm2-tools:135m"]
    assert (model.quantization, model.parameters, model.context_window) == ("Q4_1", "134.52M", 8192)
    assert (model.capabilities, model.size) == (("completion", "tools"), 98363874)
    assert model.digest == "dd3e4a87155aa4feeb291e608761da08a33cbe12c8db1b63466d96efe6b1ede2"


def test_loaded_models_tell_the_window_they_are_served_with() -> None:
    loaded = {model.name: model.context_window for model in _replayed(_recorded("ps_loaded"))}
    assert loaded == {"smollm2:135m": 4096, "gemma3:270m": 256, "smollm2-jinjatools:135m": 4096}


def test_a_rendered_prompt_is_what_the_model_would_see() -> None:
    rendered = _replayed(_recorded("chat_debug_render_only"))
    assert rendered == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRead notes.txt<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "<tools>" in _replayed(_recorded("chat_debug_render_only_tools"))


def test_a_model_is_described_from_tags_show_and_version() -> None:
    tags, show = _recorded("tags"), _recorded("show_smollm2")

    def answer(seen: Seen) -> Iterator[bytes]:
        recording = show if seen.path == "/api/show" else tags
        yield from recording.answer(seen)

    with serving(answer) as wire:
        info = OllamaBackend(wire.url, "smollm2:135m").describe()
        with pytest.raises(ShoestringError, match="ollama pull nope:latest"):
            OllamaBackend(wire.url, "nope").describe()
    assert (info.name, info.backend, info.backend_version) == ("smollm2:135m", "ollama", "0.32.15")
    assert (info.quantization, info.parameters, info.context_window) == ("Q4_1", "134.52M", 8192)
    assert info.digest == "fd5f44c0b5aff6453726119fc560d73a8a995a55b4a49804bc24b1969ecf1794"
