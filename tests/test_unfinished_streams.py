"""A stream that counts as it goes and then breaks off has not said what it cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.llm.backends.base import RawReply
from agent.llm.envelopes import usage_of
from agent.state import Usage

RUNNING = {"message": {"role": "assistant", "content": "a"}, "done": False, "prompt_eval_count": 9, "eval_count": 1}
LAST = {"message": {"role": "assistant", "content": ""}, "done": True, "prompt_eval_count": 9, "eval_count": 5}
V1_RUNNING = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}], "usage": {"completion_tokens": 1}}
V1_LAST = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 5}}


def streamed(*documents: dict[str, Any], v1: bool = False) -> RawReply:
    lines = "".join(f"{'data: ' if v1 else ''}{json.dumps(document)}\n\n" for document in documents)
    return RawReply("/v1/chat/completions" if v1 else "/api/chat", 200, "", lines, streamed=True, seconds=0.0)


@pytest.mark.parametrize(
    "reply",
    [
        streamed(RUNNING, RUNNING),
        streamed(RUNNING, {"error": "the runner fell over"}),
        streamed(V1_RUNNING, V1_RUNNING, v1=True),
    ],
)
def test_counts_of_a_stream_without_an_end_are_unknown(reply: RawReply) -> None:
    assert usage_of(reply) == Usage()


def test_counts_of_a_stream_with_its_end_are_the_last_ones() -> None:
    assert usage_of(streamed(RUNNING, LAST)) == Usage(prompt_tokens=9, completion_tokens=5)
    assert usage_of(streamed(V1_RUNNING, V1_LAST, v1=True)).completion_tokens == 5
    done = RawReply("/v1/chat/completions", 200, "", f"data: {json.dumps(V1_RUNNING)}\n\ndata: [DONE]\n", True, 0.0)
    assert usage_of(done).completion_tokens == 1
