"""What the Ollama backend sends, streams, looks up and pulls, against a server of bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.errors import BackendError, NotSentError
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.envelopes import decode
from agent.state import Message, ModelInfo, ToolCall
from tests.support_recordings import RECORDINGS
from tests.support_wire import Answer, Seen, Wire, always, ask, chunk, chunked_head, http_reply, serving

DONE = '{"message":{"content":"4"},"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":1}'
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
LABEL = {"type": "object", "properties": {"label": {"type": "string"}}}


def sent_for(**changes: Any) -> dict[str, Any]:
    with serving(always(http_reply(DONE))) as wire:
        OllamaBackend(wire.url, "tiny", keep_alive=changes.pop("keep_alive", None)).send(ask(**changes))
        body: dict[str, Any] = wire.seen[0].json
    return body


def ndjson(*lines: object) -> Answer:
    pieces = (chunk(json.dumps(line).encode() + b"\n") for line in lines)
    return always(chunked_head(), *pieces, chunk(b""))


def test_every_limit_is_sent_where_the_server_reads_it() -> None:
    body = sent_for(max_completion_tokens=99, temperature=0.5, seed=3, num_ctx=4096)
    assert body == {
        "model": "tiny:latest",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": False,
        "think": False,
        "truncate": False,
        "shift": False,
        "options": {"num_ctx": 4096, "num_predict": 99, "temperature": 0.5, "seed": 3},
    }


def test_a_schema_is_sent_as_an_object_and_without_thinking() -> None:
    body = sent_for(schema=LABEL, think=True)
    assert (body["format"], body["think"]) == (LABEL, False)
    assert sent_for(think=True)["think"] is True


def test_tools_and_keep_alive_are_sent_where_there_are_any() -> None:
    body = sent_for(tools=(WEATHER,), keep_alive="10m")
    assert (body["tools"], body["keep_alive"]) == ([WEATHER], "10m")


def test_stop_texts_are_sent_as_a_list() -> None:
    assert sent_for(stop=("</think>", "\n"))["options"]["stop"] == ["</think>", "\n"]


def test_history_carries_arguments_as_objects() -> None:
    call = ToolCall(name="get_weather", arguments={"city": "Oslo"}, id="call_1")
    bare = ToolCall(name="get_time", arguments={})
    messages = (
        Message(role="assistant", content="", tool_calls=[call, bare]),
        Message(role="tool", content="4 degrees", tool_name="get_weather", tool_call_id="call_1"),
    )
    assert sent_for(messages=messages)["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call_1", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}},
                {"function": {"name": "get_time", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "4 degrees", "tool_name": "get_weather", "tool_call_id": "call_1"},
    ]


def test_half_a_character_does_not_stop_a_request() -> None:
    sent = sent_for(messages=(Message(role="user", content="a\ud83d b\ud83d\ude00 <é>"),))
    assert sent["messages"][0]["content"] == "a\ufffd b\U0001f600 <é>"


def test_text_is_told_as_it_comes_and_the_body_is_kept_whole() -> None:
    pieces: list[str] = []
    answer = ndjson(
        {"message": {"content": "", "thinking": "hm"}, "done": False},
        {"message": {"content": "Hel"}, "done": False},
        {"message": {"content": "lo"}, "done": False},
        {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2},
    )
    with serving(answer) as wire:
        reply = OllamaBackend(wire.url, "tiny").send(ask(stream=True), pieces.append)
        assert wire.seen[0].json["stream"] is True
    assert pieces == ["Hel", "lo"]
    envelope = decode(reply)
    assert (envelope.content, envelope.thinking, envelope.finish) == ("Hello", "hm", "stop")
    assert reply.body.count("\n") == 4


def test_rubbish_in_a_stream_is_told_to_nobody() -> None:
    pieces: list[str] = []
    with serving(always(http_reply('[1]\nnull\n{"message":7}\n{"message":{"content":["x"]}}\n\xff{'))) as wire:
        reply = OllamaBackend(wire.url, "tiny").send(ask(stream=True), pieces.append)
    assert pieces == []
    with pytest.raises(BackendError):
        decode(reply)


def test_generate_continues_a_raw_prompt_under_a_schema() -> None:
    pieces: list[str] = []
    answer = ndjson({"response": '{"label"', "done": False}, {"response": ':"ham"}', "done": True, "eval_count": 5})
    with serving(answer) as wire:
        reply = OllamaBackend(wire.url, "tiny").generate("So: ", ask(schema=LABEL, stream=True), on_text=pieces.append)
        body = wire.seen[0].json
    assert (wire.seen[0].path, body["prompt"], body["raw"], body["format"]) == ("/api/generate", "So: ", True, LABEL)
    assert "messages" not in body
    assert "".join(pieces) == decode(reply).content == '{"label":"ham"}'


# -- looking up -------------------------------------------------------------------------------------------------------


def api(**answers: object) -> Answer:
    """A server that knows these paths below /api/."""

    def answer(seen: Seen) -> Iterator[bytes]:
        name = seen.path.rpartition("/")[2]
        yield http_reply(json.dumps(answers[name])) if name in answers else http_reply("404 page not found", status=404)

    return answer


def test_a_name_without_a_tag_is_the_latest() -> None:
    assert OllamaBackend("", "tiny").model == "tiny:latest"
    assert OllamaBackend("", "reg.test:5000/a/tiny").model == "reg.test:5000/a/tiny:latest"
    assert OllamaBackend("", "tiny:1b").model == "tiny:1b"


def test_a_model_is_described_as_far_as_the_server_tells() -> None:
    models = [{"name": "tiny:latest", "digest": "abc", "details": {"quantization_level": "Q4_0"}}, {"size": 3}, 7]
    show = {"model_info": {"general.architecture": "llama", "llama.context_length": 2048}}
    with serving(api(tags={"models": models}, show=show, version={"version": "0.5.1"})) as wire:
        info = OllamaBackend(wire.url, "tiny").describe()
    assert (info.name, info.digest, info.quantization, info.parameters) == ("tiny:latest", "abc", "Q4_0", None)
    assert (info.context_window, info.backend_version) == (2048, "0.5.1")


def described(version: object = "0.32.15", **show: object) -> ModelInfo:
    tags = {"models": [{"name": "tiny:latest"}]}
    with serving(api(tags=tags, show=show, version={"version": version})) as wire:
        return OllamaBackend(wire.url, "tiny").describe()


@pytest.mark.parametrize(
    ("told", "tools"),
    [
        (["completion", "tools"], True),
        (["completion"], False),
        ([], None),
        (None, None),
        ("tools", None),
        ({"tools": True}, None),
        ([1, 2], None),
        ([["tools"]], None),
        (["completion", None], None),
    ],
)
def test_whether_a_model_calls_tools_is_what_the_server_says(told: object, tools: bool | None) -> None:
    assert described(capabilities=told).tools is tools


@pytest.mark.parametrize(("version", "continues"), [("0.32.0", True), ("1.0", True), ("0.31.9", False), (None, False)])
def test_only_a_server_that_renders_prompts_goes_on_from_a_reply(version: object, continues: bool) -> None:
    assert described(version).continues is continues


@pytest.mark.parametrize(
    ("model", "show", "tools"),
    [
        ("smollm2:135m", "show_smollm2", False),
        ("smollm2-tools:135m", "show_tools", True),
        ("smollm2-jinjatools:135m", "show_jinjatools", True),  # of which `/api/tags` does not say so
    ],
)
def test_a_recorded_server_says_which_model_calls_tools(model: str, show: str, tools: bool) -> None:
    if not {"tags", show} <= RECORDINGS.keys():
        pytest.skip("these recordings are not there")
    tags, shown = (json.loads(RECORDINGS[name].parts[2]) for name in ("tags", show))
    with serving(api(tags=tags, show=shown, version={"version": "0.32.15"})) as wire:
        assert OllamaBackend(wire.url, model).describe().tools is tools


@pytest.mark.parametrize("models", [[], None, "x", [None], [{"name": None}], [{"name": "other:latest"}]])
def test_a_missing_model_names_the_command_that_fetches_it(models: object) -> None:
    with serving(api(tags={"models": models})) as wire, pytest.raises(BackendError) as caught:
        OllamaBackend(wire.url, "tiny").describe()
    assert (caught.value.error_type, caught.value.retry) == ("model_not_found", False)
    assert "ollama pull tiny:latest" in str(caught.value)


def test_a_server_that_is_not_there_says_so_when_asked_what_it_has() -> None:
    with pytest.raises(NotSentError, match="is the server running"):
        OllamaBackend("127.0.0.1:1", "tiny").describe()


def test_a_server_of_another_kind_is_recognised() -> None:
    with serving(api()) as wire, pytest.raises(BackendError, match="no such path as /api/tags") as caught:
        OllamaBackend(wire.url, "tiny").models()
    assert caught.value.error_type == "not_found"


@pytest.mark.parametrize("version", ["0.31.9", "0.9", "", None, 5, "0.32.0-rc1x.beta", "main"])
def test_a_server_that_may_generate_instead_is_never_asked_to_render(version: object) -> None:
    with serving(api(version={"version": version}, chat={"_debug_info": {"rendered_template": "x"}})) as wire:
        OllamaBackend(wire.url, "tiny").render_prompt(ask())
        asked = [seen.path for seen in wire.seen]
    assert asked == ["/api/version"] + (["/api/chat"] if str(version).startswith("0.32.") else [])


# -- pulling ----------------------------------------------------------------------------------------------------------

Told = list[tuple[str, int | None, int | None]]


def pulled(answer: Answer) -> tuple[Told, Wire]:
    told: Told = []
    with serving(answer) as wire:
        OllamaBackend(wire.url, "tiny").pull(lambda *progress: told.append(progress))
    return told, wire


def test_a_pull_tells_its_progress_in_bytes() -> None:
    told, wire = pulled(
        ndjson(
            {"status": "pulling manifest"},
            {"status": "pulling abc", "digest": "sha256:abc", "total": 9},
            {"status": "pulling abc", "digest": "sha256:abc", "total": 9, "completed": 4},
            {"status": "success"},
        )
    )
    assert told == [
        ("pulling manifest", None, None),
        ("pulling abc", None, 9),
        ("pulling abc", 4, 9),
        ("success", None, None),
    ]
    assert (wire.seen[0].path, wire.seen[0].json) == ("/api/pull", {"model": "tiny:latest", "stream": True})


def test_control_codes_in_a_status_reach_nobody() -> None:
    told, _ = pulled(ndjson({"status": "a\x1b[2Jb\nc"}, {"status": "success"}))
    assert told[0][0] == "a [2Jb c"


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (
            ndjson({"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"}),
            "model_not_found",
        ),
        (ndjson({"status": "x"}, {"error": "dial tcp: no such host"}, {"status": "success"}), "server_error"),
        (ndjson({"status": "pulling abc"}), "stream_incomplete"),
        (ndjson(), "stream_incomplete"),
        (always(http_reply('{"error":"invalid model name"}', status=400)), "request_invalid"),
        (always(http_reply("<html>", status=502, content_type="text/html")), "proxy_error"),
    ],
)
def test_a_pull_that_fails_says_why(answer: Answer, error_type: str) -> None:
    with pytest.raises(BackendError) as caught:
        pulled(answer)
    assert caught.value.error_type == error_type
