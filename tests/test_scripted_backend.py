"""A script plays what a server would: calls, counts, stop texts and the cap; and its file says where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.llm.backends.base import Envelope
from agent.llm.backends.scripted import ScriptedBackend, ScriptedReply, load_script
from agent.llm.envelopes import decode
from agent.llm.replies import read_reply
from agent.state import ToolCall
from tests.support_cli import Desk
from tests.support_replies import WEATHER
from tests.support_wire import ask

OSLO = {"name": "get_weather", "arguments": {"city": "Oslo"}}


def played(reply: ScriptedReply | str, **changes: Any) -> Envelope:
    return decode(ScriptedBackend([reply]).send(ask(**changes)))


def loaded(tmp_path: Path, script: object) -> list[ScriptedReply]:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script))
    return load_script(path)


def test_native_calls_of_a_file_come_as_a_server_gives_them(tmp_path: Path) -> None:
    script = loaded(tmp_path, [{"content": "I look.", "tool_calls": [OSLO, OSLO]}])
    envelope = played(script[0], tools=(WEATHER,))
    reply = read_reply(envelope, tools=(WEATHER,))
    assert reply.source == "native"
    calls = [outcome for outcome in reply.outcomes if isinstance(outcome, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [("get_weather", {"city": "Oslo"})] * 2
    assert len({call.id for call in calls}) == 2
    assert envelope.content == "I look."
    assert envelope.usage.completion_tokens == -(-len("I look." + json.dumps([OSLO, OSLO])) // 4)


@pytest.mark.parametrize(
    "calls",
    [None, {}, "get_weather", [7], [{"name": "a"}], [{"name": 7, "arguments": {}}], [{"name": "a", "arguments": "{}"}]],
)
def test_calls_of_another_form_are_refused_with_their_place(tmp_path: Path, calls: object) -> None:
    with pytest.raises(UsageError, match="reply 2: tool_calls must be"):
        loaded(tmp_path, ["fine", {"tool_calls": calls}])


def test_a_reply_ends_before_the_first_stop_text() -> None:
    envelope = played("one, two; three", stop=(";", ","))
    assert (envelope.content, envelope.finish, envelope.usage.completion_tokens) == ("one", "stop", 1)
    assert played("one", stop=(";",)).content == "one"


def test_a_stop_text_behind_the_cap_is_not_reached() -> None:
    envelope = played("x" * 100 + ";", stop=(";",), max_completion_tokens=4)
    assert (envelope.content, envelope.finish) == ("x" * 16, "length")


def test_thinking_stops_too_and_then_nothing_is_said() -> None:
    reply = ScriptedReply("So: 4", thinking="2 and 2, then", tool_calls=[OSLO])
    for stop, thinking, content in (
        ("</think>", "2 and 2, then", ""),
        (",", "2 and 2", ""),
        (":", reply.thinking, "So"),
    ):
        envelope = played(reply, stop=(stop,), max_completion_tokens=500)
        assert (envelope.thinking, envelope.content, envelope.native_calls) == (thinking, content, [])


def test_a_cap_loses_the_calls_it_cuts() -> None:
    envelope = played(ScriptedReply(tool_calls=[OSLO]), max_completion_tokens=4)
    assert (envelope.native_calls, envelope.content, envelope.finish) == ([], "", "length")


def test_a_file_drives_a_strategy_that_calls_natively(tmp_path: Path) -> None:
    call = {"name": "calculate_math", "arguments": {"expression": "6*7"}}
    desk = Desk(tmp_path)
    replies = desk.script([{"tool_calls": [call]}, "It is 42."])
    flags = ("--strategy", "native", "--backend", "scripted", "--scripted", replies, "--json")
    said = json.loads(desk.inside("What is 6 * 7?", *flags).out)
    assert (said["status"], said["answer"], said["calls"]) == ("completed", "It is 42.", 2)
