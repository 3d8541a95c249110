"""Any body gives an Envelope or a typed error, and a count that is missing is never zero."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BackendError, ModelError, RequestError
from agent.llm.backends.base import RawReply
from agent.llm.envelopes import decode, object_of, prompt_was_cut, usage_of
from agent.llm.replies import read_reply
from agent.state import Usage

CHAT, V1 = "/api/chat", "/v1/chat/completions"


def raw(body: str, endpoint: str = CHAT, *, status: int = 200, streamed: bool = False, kind: str = "") -> RawReply:
    return RawReply(endpoint=endpoint, status=status, content_type=kind, body=body, streamed=streamed, seconds=0.1)


# -- anything at all --------------------------------------------------------------------------------------------------

KEYS = [
    *("message", "response", "content", "thinking", "tool_calls", "function", "name", "arguments", "id", "index"),
    *("done", "done_reason", "error", "detail", "choices", "delta", "finish_reason", "reasoning", "reasoning_content"),
    *("usage", "prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens", "prompt_eval_count"),
    *("eval_count", "load_duration", "timings", "cache_n", "prompt_n", "prompt_ms", "data"),
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["stop", "length", "load", "\ud83d", "<think>", "error parsing tool call: x", "out of memory"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
BODIES = (
    st.text()
    | st.binary().map(lambda data: data.decode("utf-8", "replace"))
    | st.lists(DOCUMENTS, max_size=4).map(lambda docs: "\n".join(map(json.dumps, docs)))
    | st.lists(DOCUMENTS, max_size=4).map(
        lambda docs: "".join(f"data: {json.dumps(d)}\n\n" for d in docs) + "data: [DONE]"
    )
)


@given(
    body=BODIES,
    endpoint=st.sampled_from([CHAT, "/api/generate", V1]),
    status=st.sampled_from([200, 200, 200, 204, 301, 400, 401, 403, 404, 405, 407, 429, 499, 500, 502, 503, 504]),
    streamed=st.booleans(),
    kind=st.sampled_from(["", "application/json", "text/html"]),
    cut=st.integers(min_value=0, max_value=40),
)
def test_any_body_gives_an_envelope_or_a_typed_error(
    body: str, endpoint: str, status: int, streamed: bool, kind: str, cut: int
) -> None:
    reply = raw(body[: len(body) - cut] if cut < 20 else body, endpoint, status=status, streamed=streamed, kind=kind)
    usage = usage_of(reply)
    for count in (usage.prompt_tokens, usage.completion_tokens):
        assert count is None or count > 0
    try:
        envelope = decode(reply)
        assert envelope.usage == usage
        (envelope.content + envelope.thinking).encode()
        json.dumps(read_reply(envelope).answer, allow_nan=False).encode()
    except (ModelError, BackendError) as error:
        assert_fit_to_show(error)
    with contextlib.suppress(ModelError, BackendError):
        object_of(reply)


def assert_fit_to_show(error: Exception) -> None:
    assert str(error).isprintable()
    str(error).encode()


@pytest.mark.parametrize("endpoint", [CHAT, V1])
@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"done":true,"x":' + "9" * 5000 + "}", "\x00", "null"]
)
def test_bombs_are_bad_replies(body: str, endpoint: str) -> None:
    with pytest.raises(BackendError) as caught:
        decode(raw(body, endpoint))
    assert caught.value.error_type == "bad_reply"
    assert usage_of(raw(body, endpoint)) == Usage()


def test_broken_numbers_elsewhere_spoil_no_reply() -> None:
    body = '{"message":{"content":"4"},"done":true,"logprobs":[NaN,-Infinity,1e999],"eval_count":2}'
    assert (decode(raw(body)).content, usage_of(raw(body)).completion_tokens) == ("4", 2)


def test_a_line_separator_inside_a_string_is_no_end_of_line() -> None:
    lines = ['{"message":{"content":"a\u2028b\x85"},"done":false}', '{"message":{"content":"c"},"done":true}']
    assert decode(raw("\r\n".join(lines), streamed=True)).content == "a\u2028b\x85c"


# -- counts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [None, 0, -1, True, 1.5, "3", [3], 10**30])
def test_what_is_no_count_is_unknown_and_never_zero(count: Any) -> None:
    native = json.dumps({"message": {"content": "x"}, "done": True, "prompt_eval_count": count, "eval_count": count})
    v1 = json.dumps({"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": count}})
    assert usage_of(raw(native)) == usage_of(raw(v1, V1)) == Usage()


def test_an_empty_cache_is_a_count() -> None:
    body = (
        '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}'
    )
    assert usage_of(raw(body, V1)).cached_tokens == 0


def test_counts_are_found_in_a_reply_that_is_an_error() -> None:
    ended = raw('{"message":{"content":"x"},"done":true,"eval_count":7}\n{"error":"CUDA error"}\n{"brok', streamed=True)
    with pytest.raises(BackendError):
        decode(ended)
    assert usage_of(ended).completion_tokens == 7


def test_a_count_that_was_still_growing_is_unknown() -> None:
    lines = '{"message":{"content":"x"},"done":false,"eval_count":7}\n{"error":"CUDA error"}'
    assert usage_of(raw(lines, streamed=True)) == Usage()
    v1 = 'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    assert usage_of(raw(v1, V1, streamed=True)) == Usage()
    assert usage_of(raw(v1 + "data: [DONE]\n\n", V1, streamed=True)).completion_tokens == 1


def test_llama_cpp_timings_stand_in_for_usage() -> None:
    body = '{"choices":[],"timings":{"cache_n":40,"prompt_n":10,"predicted_n":2}}'
    assert usage_of(raw(body, V1)) == Usage(prompt_tokens=50, completion_tokens=2, cached_tokens=40)


def test_durations_are_seconds() -> None:
    times = '"load_duration":2000000000,"prompt_eval_duration":5000000,"eval_duration":1e9'
    body = f'{{"message":{{"content":"x"}},"done":true,{times}}}'
    envelope = decode(raw(body))
    assert (envelope.load_seconds, envelope.prompt_seconds, envelope.completion_seconds) == (2.0, 0.005, 1.0)
    assert decode(raw('{"message":{"content":"x"},"done":true}')).load_seconds is None


# -- a cut prompt -----------------------------------------------------------------------------------------------------


@given(truth=st.integers(1, 300_000), window=st.integers(16, 262_144), guess=st.floats(0.1, 1.4))
def test_an_honest_prompt_is_never_taken_for_a_cut_one(truth: int, window: int, guess: float) -> None:
    assert not prompt_was_cut(truth, int(truth * guess), window)


@given(window=st.integers(1024, 262_144), times=st.floats(1.5, 50), more=st.sampled_from([2, 3]))
def test_a_cut_prompt_is_noticed(window: int, times: float, more: int) -> None:
    assert prompt_was_cut(window // 2 + more, int(window * times), window)
    assert prompt_was_cut(window, int(window * times), window)


# -- faults -----------------------------------------------------------------------------------------------------------


def fault(body: str, endpoint: str = CHAT, **more: Any) -> ModelError | BackendError:
    try:
        envelope = decode(raw(body, endpoint, **more))
    except (ModelError, BackendError) as error:
        return error
    raise AssertionError(f"taken for a reply: {envelope}")


@pytest.mark.parametrize(
    ("body", "status", "error_type", "retry"),
    [
        ('{"error":"unauthorized"}', 401, "unauthorized", False),
        ("404 page not found", 404, "not_found", False),
        ('{"error":"XML syntax error on line 3: unexpected EOF"}', 500, "model_tool_parse_failed", False),
        ('{"error":"prediction aborted, token repeat limit reached"}', 500, "repetition", False),
        ('{"error":{"message":"invalid tool call arguments"}}', 400, "request_invalid", False),
        ('{"error":{"message":"invalid message content type: <nil>"}}', 400, "request_invalid", False),
        ('{"error":"option \\"stop\\" must be of type array"}', 500, "request_invalid", False),
        ('{"error":{"message":"Loading model","code":503}}', 503, "server_busy", True),
        ('{"error":"llama runner process no longer running: -1"}', 500, "server_error", True),
        ('{"error":"unable to load model: /blobs/x"}', 500, "server_error", False),
        ('{"error":"rate limited"}', 429, "server_busy", True),
        ("", 502, "proxy_error", True),
        ("", 504, "proxy_error", True),
        ("", 503, "proxy_error", True),
        ("<html>", 503, "proxy_error", True),
        ("", 407, "proxy_error", False),
        ("", 302, "proxy_error", False),
        ("<html>hotel wifi</html>", 200, "proxy_error", False),
        ("", 200, "bad_reply", False),
        ("Ollama is running", 200, "bad_reply", False),
        ('{"models":[]}', 200, "bad_reply", False),
        ("", 499, "server_error", False),
        ('{"error":"The model `x` does not exist."}', 404, "model_not_found", False),
        ('{"error":"This model\'s maximum context length is 4096 tokens"}', 400, "context_overflow", False),
    ],
)
def test_a_refusal_is_told_by_its_words_then_by_its_status(
    body: str, status: int, error_type: str, retry: bool
) -> None:
    error = fault(body, status=status)
    assert (error.error_type, error.retry) == (error_type, retry)


def test_a_wrong_request_is_told_apart_from_a_broken_server() -> None:
    assert isinstance(fault('{"error":"bad"}', status=400), RequestError)
    assert isinstance(fault('{"error":"XML syntax error"}', status=500), ModelError)


def test_a_missing_model_names_the_command_that_fetches_it() -> None:
    body = '{"error":"model \'tiny:9b\' not found"}'
    assert "ollama pull tiny:9b" in str(fault(body, status=404))
    assert "ollama" not in str(fault(body, V1, status=404))


def test_a_servers_words_are_shown_short_and_harmless() -> None:
    said = str(fault(json.dumps({"error": "\x1b[31mred\n\u202e" + "x" * 10**6}), status=500))
    assert said.isprintable()
    assert len(said) < 400


def test_an_error_in_a_stream_wins_over_what_came_before_and_after() -> None:
    lines = '{"message":{"content":"4"},"done":false}\n{"error":"failed to parse JSON: x"}\n{"message":{},"done":true}'
    assert fault(lines, streamed=True).error_type == "model_tool_parse_failed"


@pytest.mark.parametrize(
    ("body", "endpoint"),
    [
        ('{"message":{"content":"a"},"done":false}\n', CHAT),
        ('{"message":{"content":"a"},"done":false}\n{"mess', CHAT),
        ('data: {"choices":[{"delta":{"content":"a"}}]}\n\n', V1),
        ("", CHAT),
    ],
)
def test_a_stream_without_an_end_is_no_answer(body: str, endpoint: str) -> None:
    assert fault(body, endpoint, streamed=True).error_type == "stream_incomplete"


def test_an_error_event_is_an_error_however_it_is_marked() -> None:
    for line in ('error: {"message":"x","error":{"message":"slot lost"}}', 'event: error\ndata: {"error":"slot lost"}'):
        error = fault(f'data: {{"choices":[{{"delta":{{"content":"a"}}}}]}}\n\n{line}\n\n', V1, streamed=True)
        assert (error.error_type, error.retry) == ("stream_error", True)


def test_pieces_of_a_call_are_put_together_and_parallel_ones_kept_apart() -> None:
    def delta(**call: Any) -> str:
        return "data: " + json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}) + "\n\n"

    body = (
        delta(index=0, id="a", function={"name": "f", "arguments": ""})
        + delta(index=0, function={"arguments": '{"x"'})
        + delta(index=1, id="b", function={"name": "g", "arguments": "{}"})
        + delta(index=0, function={"arguments": ":1}"})
        + 'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    )
    calls = decode(raw(body, V1, streamed=True)).native_calls
    assert [(c["id"], c["name"], c["arguments"]) for c in calls] == [("a", "f", '{"x":1}'), ("b", "g", "{}")]
