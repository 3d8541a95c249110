"""The toolset mcp:NAME, with real servers: the SDK's over stdio and HTTP, and hostile ones that are written by hand."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.config import environment_of_programs
from agent.errors import UsageError
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.mcp.config import read_servers
from agent.tools.mcp.tools import McpToolsets
from agent.tools.registry import TOOLSET_FAMILIES, AnyTool, ToolRegistry, toolset
from evals.replay import replay
from evals.verify import verify
from tests.support_foreign import said
from tests.support_runs import answer, run_script, turn

pytest.importorskip("mcp", reason="the extra mcp is not installed")

SERVERS = Path(__file__).resolve().parent / "mcp_servers"
NOTES = {"command": sys.executable, "args": [str(SERVERS / "notes.py")], "env": {"NOTES_TOKEN": "hush-hush"}}


def hostile(*arguments: str, timeout: float = 20) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "hostile.py"), *arguments], "timeout": timeout}


CRASHES = ("exit", "garbage", "binary", "huge", "form", "error", "flood", "stubborn", "pings", "notices", "daemon")


class Offered:
    """Servers in a list, offered as a command does it; `said` is what was told aloud."""

    def __init__(self, folder: Path, servers: dict[str, Any]) -> None:
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        self.said: list[str] = []
        self.toolsets = McpToolsets(
            lambda: read_servers(path), environment_of_programs(), self.said.append, ("sk-of-the-settings",)
        )
        TOOLSET_FAMILIES["mcp"] = self.toolsets.tools

    def registry(self, name: str) -> ToolRegistry:
        return ToolRegistry(toolset(f"mcp:{name}"), ToolContext())


Offer = Callable[..., Offered]


@pytest.fixture(scope="module")
def usual_servers(tmp_path_factory: pytest.TempPathFactory) -> Offered:
    """Listed once for all tests, since each listing starts the server."""
    servers = {"notes": NOTES, **{what: hostile(what) for what in CRASHES}}
    return Offered(tmp_path_factory.mktemp("usual"), servers)


@pytest.fixture
def usual(usual_servers: Offered) -> Iterator[Offered]:
    TOOLSET_FAMILIES["mcp"] = usual_servers.toolsets.tools
    yield usual_servers
    TOOLSET_FAMILIES.pop("mcp", None)


@pytest.fixture
def offer(tmp_path: Path) -> Iterator[Offer]:
    yield lambda **servers: Offered(tmp_path, servers)
    TOOLSET_FAMILIES.pop("mcp", None)


def call(tools: ToolRegistry, name: str, **arguments: Any) -> ToolResult:
    return tools.execute(ToolCall(name=name, arguments=arguments))


def held() -> tuple[int, int]:
    """How many files and threads this process holds."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a dead one that nobody has asked about yet


# -- a server over stdio ----------------------------------------------------------------------------------------------


def test_a_servers_tools_are_offered_by_names_that_begin_with_its_own(usual: Offered) -> None:
    tools = usual.registry("notes")
    assert tools.names[:3] == ("mcp_notes_add_note", "mcp_notes_read_notes", "mcp_notes_execute_code")
    assert "place (one of first, last, optional)" in tools.prose()
    assert {tools.effect(name) for name in tools.names} == {"execute"}


def test_the_calls_of_a_run_reach_one_server_and_another_run_has_its_own(usual: Offered) -> None:
    with closing(usual.registry("notes")) as first, closing(usual.registry("notes")) as second:
        assert said(call(first, "mcp_notes_add_note", text="tea")) == "kept 1"
        assert said(call(first, "mcp_notes_add_note", text="milk", place="first")) == "kept 2"
        assert said(call(first, "mcp_notes_read_notes")) == "milk\ntea"
        assert said(call(second, "mcp_notes_read_notes")) == "none"


def test_arguments_are_checked_before_the_server_is_asked(usual: Offered) -> None:
    tools = usual.registry("notes")
    assert call(tools, "mcp_notes_add_note", text="tea", place="middle").error_type == "bad_args"
    assert call(tools, "mcp_notes_add_note", text="t" * 4001).error_type == "bad_args"
    assert call(tools, "mcp_notes_add_note").error_type == "bad_args"


def test_a_servers_own_failure_and_a_picture_are_told_in_words(usual: Offered) -> None:
    with closing(usual.registry("notes")) as tools:
        failed = call(tools, "mcp_notes_fail")
        assert (failed.success, failed.error_type) == (False, "tool_error")
        assert said(call(tools, "mcp_notes_picture")) == "a picture:\n[image, image/png, 6 bytes: not shown]"


def test_a_server_gets_no_secret_of_ours_and_a_folder_of_its_own(
    usual: Offered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLM_API_KEY", "sk-of-the-person")
    monkeypatch.setenv("SOME_OTHER_SETTING", "not for servers")
    with closing(usual.registry("notes")) as tools:
        told = dict(line.partition("=")[::2] for line in said(call(tools, "mcp_notes_surroundings")).splitlines())
    allowed = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "NOTES_TOKEN"}
    assert set(told) <= allowed | {"cwd", "pid"}
    assert told["NOTES_TOKEN"] == "[redacted]"  # its program was told, and the model is not
    assert Path(told["cwd"]) not in {Path.cwd(), tmp_path}
    assert not Path(told["cwd"]).exists()
    assert not is_alive(int(told["pid"]))


def test_the_person_says_where_a_server_runs_and_what_its_tools_do(offer: Offer, tmp_path: Path) -> None:
    about = {**NOTES, "cwd": ".", "effect": "network", "tools": {"read_notes": {"effect": "read"}}}
    with closing(offer(notes=about).registry("notes")) as tools:
        assert f"cwd={tmp_path}" in said(call(tools, "mcp_notes_surroundings")).splitlines()
        assert tools.effect("mcp_notes_read_notes") == "read"
        assert tools.effect("mcp_notes_add_note") == "network"


def test_a_server_tool_never_takes_the_name_of_one_of_ours(usual: Offered) -> None:
    alone = ToolRegistry(toolset("mcp:notes"), ToolContext())
    assert call(alone, "execute_code", code="print(1)").error_type == "unknown_tool"
    beside = toolset("core,mcp:notes")
    assert [type(tool).__name__ for tool in beside if tool.name == "execute_code"] == ["ExecuteCode"]
    with closing(alone):
        assert said(call(alone, "mcp_notes_execute_code", code="print(1)")) == "not run: print(1)"


def test_two_servers_whose_tools_would_share_a_name_are_not_offered_together(offer: Offer, tmp_path: Path) -> None:
    schemas = {"a": [listed("b_c")], "a_b": [listed("c")]}
    servers = {}
    for name, tools in schemas.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(tools))
        servers[name] = hostile("schemas", str(tmp_path / f"{name}.json"))
    offer(**servers)
    assert [tool.name for tool in toolset("mcp:a,mcp:a")] == ["mcp_a_b_c"]
    with pytest.raises(UsageError, match="two tools called mcp_a_b_c"):
        toolset("mcp:a,mcp:a_b")


# -- a server over HTTP -----------------------------------------------------------------------------------------------


@pytest.fixture
def http_notes() -> Iterator[str]:
    command = [sys.executable, str(SERVERS / "notes.py"), "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
        server.kill()


def test_a_server_over_http_is_spoken_to_as_well(
    offer: Offer, http_notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nothing listens there
    with closing(offer(notes={"url": http_notes}).registry("notes")) as tools:
        assert said(call(tools, "mcp_notes_add_note", text="tea")) == "kept 1"
        assert said(call(tools, "mcp_notes_read_notes")) == "tea"
        assert call(tools, "mcp_notes_fail").error_type == "tool_error"


def test_where_no_server_is_the_person_is_told(offer: Offer) -> None:
    offer(nobody={"url": "http://127.0.0.1:9/mcp"})
    with pytest.raises(UsageError, match=r"^mcp:nobody: the server failed: it cannot be reached \(ConnectError\)$"):
        toolset("mcp:nobody")


def test_an_answer_over_http_has_a_bound(offer: Offer, endless_server: str) -> None:
    offer(endless={"url": endless_server, "timeout": 10})
    with pytest.raises(UsageError, match="mcp:endless: the server failed"):
        toolset("mcp:endless")


@pytest.fixture
def endless_server() -> Iterator[str]:
    """Answers every request with JSON that never ends."""
    program = (
        "import http.server, sys\n"
        "class Endless(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        self.send_response(200)\n"
        "        self.send_header('content-type', 'application/json')\n"
        "        self.end_headers()\n"
        "        while True:\n"
        "            self.wfile.write(b' ' * 65536)\n"
        "    def log_message(self, *words): pass\n"
        "    def handle(self):\n"
        "        try: super().handle()\n"
        "        except ConnectionError: pass\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Endless)\n"
        "print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
        server.kill()


# -- hostile servers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("exit", "it ended"),
        ("garbage", "it wrote a line that is no message of the protocol"),
        ("binary", "it wrote a line that is no message of the protocol"),
        ("huge", "it wrote a line longer than 4,194,304 bytes"),
        ("form", "its answer is not of the protocol's form"),
        ("pings", "it wrote more than 1,000 messages or 16,777,216 bytes in one exchange"),
        ("notices", "it wrote more than 1,000 messages or 16,777,216 bytes in one exchange"),
    ],
)
def test_a_server_that_crashes_ends_the_call_and_not_the_run(usual: Offered, what: str, told: str) -> None:
    with closing(usual.registry(what)) as tools, closing(usual.registry("flood")) as others:
        for _ in range(2):  # another one is started for the second call, and crashes too
            result = call(tools, f"mcp_{what}_crash")
            assert (result.success, result.error_type) == (False, "tool_crashed")
            assert told in str(result.error)
        assert call(others, "mcp_flood_crash").success


def test_a_server_that_hangs_is_ended_when_its_time_is_over(offer: Offer) -> None:
    offered = offer(srv=hostile("hang", timeout=1.5))
    with closing(offered.registry("srv")) as tools:
        result = call(tools, "mcp_srv_crash")
    assert result.error_type == "tool_crashed"
    assert "it gave no answer within 1.5 seconds" in str(result.error)
    assert result.seconds < 6


def test_a_stubborn_server_and_its_child_are_gone_after_the_run(usual: Offered) -> None:
    with closing(usual.registry("stubborn")) as tools:
        processes = [int(word) for word in said(call(tools, "mcp_stubborn_crash")).split()]
        assert len(processes) == 2
        handles = [os.pidfd_open(process) for process in processes]
        assert select.select(handles, [], [], 0)[0] == []  # both run
    for handle in handles:
        assert select.select([handle], [], [], 10)[0] == [handle]  # and have ended
        os.close(handle)


def test_a_child_in_a_session_of_its_own_is_gone_after_the_run(usual: Offered) -> None:
    with closing(usual.registry("daemon")) as tools:
        handle = os.pidfd_open(int(said(call(tools, "mcp_daemon_crash"))))
        assert select.select([handle], [], [], 0)[0] == []  # it runs
    assert select.select([handle], [], [], 10)[0] == [handle]
    os.close(handle)


def test_what_a_server_may_write_is_counted_anew_for_each_call(usual: Offered) -> None:
    with closing(usual.registry("flood")) as tools:
        for _ in range(20):  # a million bytes each, and more than one exchange may bring together
            assert call(tools, "mcp_flood_crash").success


def test_a_refused_call_is_the_servers_word_inert_and_short(usual: Offered) -> None:
    with closing(usual.registry("error")) as tools:
        result = call(tools, "mcp_error_crash")
    assert result.error_type == "tool_error"
    assert str(result.error).startswith("mcp_error_crash was refused: no such thing [2Jyyy")
    assert len(str(result.error)) < 400


def test_a_long_result_is_cut(usual: Offered) -> None:
    with closing(usual.registry("flood")) as tools:
        result = call(tools, "mcp_flood_crash")
    assert (result.success, result.truncated) == (True, True)
    assert 3900 < len(result.data) <= 4000


def test_a_server_that_never_says_a_word_is_given_up(offer: Offer) -> None:
    offer(srv=hostile("mute", timeout=1))
    with pytest.raises(UsageError, match=r"^mcp:srv: the server failed: it was not ready within 1 seconds$"):
        toolset("mcp:srv")


def test_a_program_that_is_not_there_or_dies_at_once_is_told_with_its_last_words(offer: Offer) -> None:
    dying = {"command": sys.executable, "args": ["-c", "import nothing_of_that_name"]}
    offer(gone={"command": "no-such-program-anywhere"}, dying=dying)
    with pytest.raises(UsageError, match=r"^mcp:gone: .* it cannot be started \(No such file or directory\)$"):
        toolset("mcp:gone")
    with pytest.raises(
        UsageError, match=r"^mcp:dying: .* it ended; it wrote: .*No module named 'nothing_of_that_name'$"
    ):
        toolset("mcp:dying")


def test_no_thread_and_no_file_is_left_open_by_many_runs(usual: Offered) -> None:
    with closing(usual.registry("flood")) as tools:
        call(tools, "mcp_flood_crash")
    before = held()
    for _ in range(5):
        with closing(usual.registry("flood")) as tools:
            assert call(tools, "mcp_flood_crash").success
    files, threads = held()
    assert (files <= before[0], threads <= before[1]) == (True, True)  # what earlier tests left may have gone


def listed(name: str, schema: Any = None) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema or {"type": "object", "properties": {}}}


def test_what_of_a_server_cannot_be_offered_is_left_out_and_said(offer: Offer, tmp_path: Path) -> None:
    free = {"type": "object", "properties": {"any": {}}, "required": ["any"]}
    tools = [listed("good"), listed("n" * 70), listed("free", free), listed("a.b"), listed("a/b"), listed("")]
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    offered = offer(srv=hostile("schemas", str(tmp_path / "tools.json")))
    assert offered.registry("srv").names == ("mcp_srv_good", "mcp_srv_a_b")
    assert len(offered.said) == 1
    for words in ("'free' (a part of it says no type", "'a/b' (another tool is called mcp_srv_a_b too)"):
        assert words in offered.said[0]
    offered.registry("srv")
    assert len(offered.said) == 1  # the list is asked for once, and told of once


def test_of_a_thousand_tools_the_first_are_offered(offer: Offer, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps([listed(f"t{place}") for place in range(1000)]))
    offered = offer(srv=hostile("schemas", str(tmp_path / "tools.json")))
    assert len(offered.registry("srv").names) == 64
    assert "all tools after the first 64" in offered.said[0]


def test_a_servers_declarations_hold_no_secret(offer: Offer, tmp_path: Path) -> None:
    told = "Uses hush-hush and sk-of-the-settings."
    properties = {
        "where": {"type": "string", "description": told},
        "which": {"enum": ["plain", "hush-hush"]},
        "x-hush-hush": {"type": "string"},
    }
    listed = [
        {"name": "look", "description": told, "inputSchema": {"type": "object", "properties": properties}},
        {"name": "look_hush-hush", "inputSchema": {"type": "object", "properties": {}}},
    ]
    (tmp_path / "tools.json").write_text(json.dumps(listed))
    offered = offer(srv=hostile("schemas", str(tmp_path / "tools.json")) | {"env": {"SRV_TOKEN": "hush-hush"}})
    tools = offered.registry("srv")
    assert tools.names == ("mcp_srv_look",)
    assert tools.prose().count("Uses [redacted] and [redacted].") == 2
    for text in (tools.prose(), json.dumps(tools.native_tools()), json.dumps(tools.action_schema()), *offered.said):
        assert "hush-hush" not in text
        assert "of-the-settings" not in text
    assert offered.said[0].count("holds a secret") == 3


def test_a_server_without_a_tool_that_can_be_used_is_no_toolset(offer: Offer, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text("[]")
    offer(srv=hostile("schemas", str(tmp_path / "tools.json")))
    with pytest.raises(UsageError, match="offers no tool that can be used"):
        toolset("mcp:srv")


# -- whole runs -------------------------------------------------------------------------------------------------------

KEEP = turn(action={"tool": "mcp_notes_add_note", "args": {"text": "tea"}})
READ = turn(action={"tool": "mcp_notes_read_notes", "args": {}})


def test_a_run_with_a_servers_tools_keeps_its_promises_and_replays_without_the_server(usual: Offered) -> None:
    state = run_script([KEEP, READ, answer("tea")], tools_named="core,mcp:notes", approve={"execute": "allow"})
    assert (state.status, state.answer) == ("completed", "tea")
    assert [said(result) for step in state.steps for result in step.results] == ["kept 1", "tea"]
    assert verify(state) == []
    assert replay(state).difference is None


def test_where_the_servers_are_not_at_hand_a_trace_is_checked_and_not_replayed(usual: Offered) -> None:
    state = run_script([KEEP, answer("done")], tools_named="mcp:notes", approve={"execute": "allow"})
    del TOOLSET_FAMILIES["mcp"]
    assert verify(state) == []
    with pytest.raises(UsageError, match="no toolset 'mcp:notes'"):
        replay(state)


def test_a_server_that_crashes_in_a_run_is_an_observation(usual: Offered) -> None:
    crash = turn(action={"tool": "mcp_exit_crash", "args": {}})
    state = run_script([crash, answer("it failed")], tools_named="mcp:exit", evidence=False)
    assert state.status == "completed"
    assert [result.error_type for step in state.steps for result in step.results] == ["tool_crashed"]
    assert verify(state) == []


def test_nothing_contains_what_a_server_does(usual: Offered) -> None:
    tools: list[AnyTool] = toolset("mcp:notes")
    assert not any(tool.contained for tool in tools)
