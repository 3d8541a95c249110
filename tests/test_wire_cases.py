"""Every case of `fixtures/wire/cases.jsonl`, or of the file named by WIRE_CASES, comes out as it says.

A case with `http` is served from a socket, cut as it says, to the real backend; the way is the one a run takes:
send, count, decode, read.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agent.errors import BackendError, ModelError
from agent.llm.backends.base import ChatRequest, Envelope, RawReply
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.envelopes import decode, prompt_was_cut, usage_of
from agent.llm.replies import Reply, read_reply
from agent.state import Usage
from tests.support_named import cases_named_by
from tests.support_wire import (
    FIXTURES,
    Wire,
    always,
    ask,
    body_in_pieces,
    fault_seen_as,
    meets,
    seen_as,
    serving,
    tool_definition,
)

KINDS = {
    *("server_error", "stream", "usage", "truncation", "json_contract"),
    *("tool_call_native", "tool_call_in_content", "thinking"),
}

CASES = cases_named_by("WIRE_CASES", FIXTURES / "cases.jsonl")


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case['kind']}-{case['id']}") for case in CASES])
def test_a_case_comes_out_as_expected(case: dict[str, Any]) -> None:
    if case["kind"] not in KINDS:
        pytest.skip(f"{case['id']}: nothing here knows how to judge a {case['kind']}")
    expected = dict(case["expect"]) if isinstance(case["expect"], dict) else case["expect"]
    expected_usage = expected.pop("usage", None) if isinstance(expected, dict) else None
    usage = Usage()
    reply: Reply | None = None
    try:
        if "http" in case:
            raw = _fetched(case)
            usage = usage_of(raw)
            reply = _read(case, decode(raw), usage)
        else:
            reply = _read(case, Envelope(content=case["raw"], finish="stop"), usage)
        seen = seen_as(reply)
    except (ModelError, BackendError) as error:
        seen = fault_seen_as(error)
    assert meets(seen, expected), f"{case['why']}: saw {seen}"
    if expected_usage is not None:
        assert {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens} == expected_usage
    if reply is not None and "repairs" in case:
        assert sorted(reply.repairs) == sorted(case["repairs"])


def _fetched(case: dict[str, Any]) -> RawReply:
    http = case["http"]
    pieces = [base64.b64decode(piece) for piece in case.get("chunks_b64", ())] or [
        piece.encode() for piece in case.get("chunks", ())
    ]
    answer = always(
        *body_in_pieces(case["raw"].encode(), pieces, status=http["status"], content_type=http["content_type"])
    )
    tools = tuple(map(tool_definition, case["tools"])) or None
    request = ask(stream=bool(http.get("stream")), tools=tools, schema=case.get("schema"))
    with serving(answer) as wire:
        return _asked(http["endpoint"], wire, request)


def _asked(endpoint: str, wire: Wire, request: ChatRequest) -> RawReply:
    """The request that reaches `endpoint`, by the backend that makes it."""
    if endpoint == "/v1/chat/completions":
        return OpenAIBackend(wire.url, "tiny:1b").send(request)
    ollama = OllamaBackend(wire.url, "tiny:1b")
    if endpoint == "/api/chat":
        return ollama.send(request)
    if endpoint == "/api/generate":
        return ollama.generate("Hello", request)
    assert endpoint == "/api/tags"
    ollama.models()
    raise AssertionError("a refused list of models must raise")


def _read(case: dict[str, Any], envelope: Envelope, usage: Usage) -> Reply:
    sent, window = (case.get("http", {}).get(key) for key in ("sent_prompt_tokens_estimate", "num_ctx"))
    if sent is not None and window is not None and prompt_was_cut(usage.prompt_tokens or 0, sent, window):
        raise BackendError("prompt_truncated", "the server cut the prompt")
    return read_reply(envelope, schema=case.get("schema"), tools=[tool_definition(tool) for tool in case["tools"]])
