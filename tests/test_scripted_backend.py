"""A script plays what a server would: calls, counts, stop texts and the cap; and its file says where it is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict
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


WRAPPED = 'a reply that is itself JSON is written {"content": ...}'


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ([{"tool": "finish"}], f"must be a text or an object; {WRAPPED}"),
        (7, f"must be a text or an object; {WRAPPED}"),
        ({"tool": "none"}, "unknown field 'tool'; known are content, thinking, tool_calls, prompt_tokens,"),
        ({"tool": "none"}, WRAPPED),
        ({"content": 42}, "content must be a text, or a JSON object or list"),
        ({"content": None}, "content must be a text, or a JSON object or list"),
        ({"thinking": ["a"]}, "thinking must be a text"),
        ({"prompt_tokens": "7"}, "prompt_tokens must be a whole number of tokens, or null"),
        ({"completion_tokens": True}, "completion_tokens must be a whole number of tokens, or null"),
        ({"status": "200"}, "status must be a whole number"),
        ({"body": 7}, "body must be a text, a JSON object or list, or null"),
        ({"not_sent": 1}, "not_sent must be true or false"),
        ({"seconds": -1}, "seconds must be a number from 0 to 3600"),
        ({"seconds": float("nan")}, "seconds must be a number from 0 to 3600"),
        ({"seconds": 1e300}, "seconds must be a number from 0 to 3600"),
    ],
)
def test_a_reply_of_another_form_is_refused_with_its_place(tmp_path: Path, reply: object, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        loaded(tmp_path, ["fine", reply])
    assert str(refused.value).startswith(f"{tmp_path / 'script.json'}, reply 2: ")
    assert said in str(refused.value)


def test_every_field_of_a_reply_may_stand_in_a_file(tmp_path: Path) -> None:
    reply = ScriptedReply("a", "b", [OSLO], 1, -1, 500, "{}", not_sent=True, seconds=0.5)
    assert loaded(tmp_path, [asdict(reply)]) == [reply]
    assert loaded(tmp_path, [asdict(ScriptedReply())]) == [ScriptedReply(tool_calls=[])]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[", "cannot be read as a script \\(Expecting value"),
        (b"[" * 100_000, "cannot be read as a script \\(maximum recursion"),
        (b"\xff", "cannot be read as a script"),
        (None, "cannot be read as a script \\(No such file or directory\\); it must be a JSON list of replies"),
        (b"7", "holds no list of replies for a single task; give one under '\\*'$"),
    ],
)
def test_a_file_that_is_no_script_is_told_in_one_line(tmp_path: Path, data: bytes | None, said: str) -> None:
    path = tmp_path / "script.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UsageError, match=said):
        load_script(path)


def test_a_mapping_has_replies_for_each_case_or_for_any_other(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"a": ["of a"], "*": ["of any"]}')
    assert [load_script(path, case)[0].content for case in ("a", "b", None)] == ["of a", "of any", "of any"]
    path.write_text('{"a": ["of a"]}')
    with pytest.raises(UsageError, match=r"no list of replies for case 'b'; give one under its id, or under '\*'$"):
        load_script(path, "b")


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
