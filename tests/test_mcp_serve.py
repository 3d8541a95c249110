"""main.py mcp-serve, spoken to by the SDK's own client over stdio and HTTP; and scripts/mcp_chat.py."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from agent.errors import UsageError
from cli.arguments import mcp_serve_parser
from cli.mcp_offer import Address, loopback_address
from tests.support_cli import answer

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, str(ROOT / "main.py"), "mcp-serve"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}},
}


def spoken(client: Client, ask: Callable[[Client], Awaitable[Any]]) -> Any:
    async def talk() -> Any:
        async with client as connected:
            return await ask(connected)

    return asyncio.run(talk())


def stdio(*arguments: str, folder: Path) -> Client:
    return Client(StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *arguments], cwd=folder))


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


def test_the_page_speaks_of_every_option() -> None:
    options = set(re.findall(r"^  (--[a-z-]+)", mcp_serve_parser().format_help(), re.MULTILINE))
    assert "--sandbox" in options
    _, _, page = (ROOT / "docs" / "mcp.md").read_text("utf-8").partition("main.py mcp-serve\n")
    assert {option for option in options if option not in page} == set()


# -- over stdio -------------------------------------------------------------------------------------------------------


def test_the_tools_are_listed_and_called_over_stdio(tmp_path: Path) -> None:
    async def ask(client: Client) -> tuple[list[Any], list[CallToolResult]]:
        listed = (await client.list_tools()).tools
        calls: list[tuple[str, dict[str, Any]]] = [
            ("calculate_math", {"expression": "6 * 7"}),
            ("write_file", {"path": "notes.txt", "content": "tea"}),
            ("read_file", {"path": "notes.txt"}),
            ("read_file", {"path": "../../etc/passwd"}),
            ("execute_code", {"code": "print(1)"}),
            ("calculate_math", {"sum": 1}),
            ("nothing", {}),
        ]
        return listed, [await client.call_tool(name, arguments) for name, arguments in calls]

    listed, results = spoken(stdio("--toolset", "core,fs", "--approve", "execute=ask", folder=tmp_path), ask)
    declared = {tool.name: tool for tool in listed}
    assert declared["calculate_math"].input_schema["required"] == ["expression"]
    assert declared["read_file"].annotations.read_only_hint
    assert not declared["write_file"].annotations.read_only_hint
    assert [result.is_error for result in results] == [False, False, False, True, True, True, True]
    assert text(results[0]) == "42"
    assert text(results[2]) == "tea"
    assert text(results[3]).startswith("refused: ")
    assert text(results[4]) == (
        "denied: execute_code is not run: nobody can be asked about it (start mcp-serve with --approve"
        " execute_code=allow)."
    )
    assert text(results[5]).startswith("bad_args: ")
    assert text(results[6]).startswith("unknown_tool: ")
    assert list(tmp_path.iterdir()) == []  # the fresh folder was elsewhere, and is gone


def test_where_nothing_isolates_programs_are_not_run_unasked(tmp_path: Path) -> None:
    async def ask(client: Client) -> str:
        return text(await client.call_tool("execute_code", {"code": "print(1)"}))

    assert spoken(stdio("--sandbox", "external", folder=tmp_path), ask).startswith("denied: execute_code is not run")


def test_a_persons_folder_is_read_and_written_only_where_they_allow_it(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("tea")

    async def ask(client: Client) -> list[str]:
        read = await client.call_tool("read_file", {"path": "plan.txt"})
        return [text(read), text(await client.call_tool("write_file", {"path": "new.txt", "content": "milk"}))]

    asked = spoken(stdio("--toolset", "fs", "--workspace", ".", folder=tmp_path), ask)
    assert asked[0] == "tea"
    assert asked[1].startswith("denied: write_file is not run")
    assert not (tmp_path / "new.txt").exists()
    allowed = stdio("--toolset", "fs", "--workspace", ".", "--approve", "write=allow", folder=tmp_path)
    assert spoken(allowed, ask)[1].startswith("wrote 4 characters")
    assert (tmp_path / "new.txt").read_text() == "milk"


class Talk:
    """Lines to a server over stdio, and its answers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process, self.stdin, self.stdout, self.stderr = process, process.stdin, process.stdout, process.stderr

    def say(self, line: bytes | dict[str, Any]) -> None:
        self.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.stdin.flush()

    def hear(self) -> Any:
        return json.loads(self.stdout.readline())


@contextmanager
def talk(folder: Path, *arguments: str, command: list[str] = COMMAND) -> Iterator[Talk]:
    """Started, and killed if it has not ended by itself."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *arguments], cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield Talk(process)
        finally:
            process.kill()


def call(name: str, number: int = 2, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


SURROGATE = b'{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "x\\ud800"}}'


@pytest.mark.parametrize(
    ("line", "number", "code", "told"),
    [
        (b"GET / HTTP/1.1\r", None, -32700, "no message of the protocol"),
        (b"\xff\x00", None, -32700, "no message of the protocol"),
        (b"[" * 100_000, None, -32700, "no message of the protocol"),
        (b"x" * 5_000_000, None, -32700, "longer than 4,194,304 bytes"),
        (
            b'{"jsonrpc": "2.0", "id": 9, "method": "x", "params": {"a": ' + b"9" * 5_000 + b"}}",
            None,
            -32700,
            "no message",
        ),
        (SURROGATE % b"9", 9, -32600, "no message of the protocol"),
        (SURROGATE % b'"a"', "a", -32600, "no message of the protocol"),
        (SURROGATE % b'"\\udc00"', None, -32600, "no message of the protocol"),
        (b'{"id": 2, "result": 1e999}', None, -32600, "no message of the protocol"),
        (b"[]", None, -32600, "no message of the protocol"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_line_that_is_no_message_is_answered_with_an_error_and_the_next_is_read(
    tmp_path: Path, line: bytes, number: object, code: int, told: str
) -> None:
    with talk(tmp_path) as server:
        server.say(line)
        refusal = server.hear()
        assert (refusal["id"], refusal["error"]["code"]) == (number, code)
        assert told in refusal["error"]["message"]
        server.say(INITIALIZE)
        assert server.hear()["result"]["serverInfo"]["name"] == "shoestring"
        server.say(line)
        assert "error" in server.hear()
        server.say(call("calculate_math", expression="6 * 7"))
        assert server.hear()["result"]["content"][0]["text"] == "42"
        server.stdin.close()
        assert (server.process.wait(20), server.stdout.read(), server.stderr.read()) == (0, b"", b"")


def test_a_client_that_says_nothing_is_none(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


SLOW = """
import sys
import time
from agent.tools.base import Params, Tool
from agent.tools.registry import register_tool

class Slow(Tool[Params]):
    name, description, effect, params, self_timed = "slow", "Waits.", "read", Params, {self_timed}
    def run(self, params, context):
        print("begun", file=sys.stderr, flush=True)
        time.sleep(60)
        return "late"
    def close(self):
        print("closed", file=sys.stderr)

register_tool(Slow, "slow")
"""


@pytest.mark.parametrize("self_timed", [True, False])
@pytest.mark.parametrize("end", ["close", "signal"])
def test_a_call_that_is_being_made_does_not_outlive_its_client(tmp_path: Path, end: str, self_timed: bool) -> None:
    """Neither in the thread of the calls nor in one of its own; and a call that waits behind it is not made."""
    (tmp_path / "slow.py").write_text(SLOW.format(self_timed=self_timed))
    with talk(tmp_path, "--plugin", "slow.py", "--toolset", "slow,core") as server:
        server.say(INITIALIZE)
        server.hear()
        server.say(call("slow"))
        server.say(call("slow", 3))
        assert server.stderr.readline() == b"begun\n"
        began = time.monotonic()
        if end == "close":
            server.stdin.close()
        else:
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == (0 if end == "close" else 130)
        assert time.monotonic() - began < 8
        told = server.stderr.read().decode().splitlines()
    assert told[0] == "closed"
    assert told[1:] == ([] if end == "close" else ["shoestring: interrupted; what was finished is kept"])


def test_what_is_forbidden_is_refused(tmp_path: Path) -> None:
    client = stdio("--approve", "calculate_math=deny", folder=tmp_path)
    result = spoken(client, lambda connected: connected.call_tool("calculate_math", {"expression": "1"}))
    assert (result.is_error, text(result).split(":")[0]) == (True, "forbidden")


def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    """Not even what a person's own tool prints."""
    plugin = tmp_path / "loud.py"
    plugin.write_text(
        "from agent.tools.base import Params, Tool, ToolContext\n"
        "from agent.tools.registry import register_tool\n"
        "class Loud(Tool[Params]):\n"
        "    name, description, effect, params = 'loud', 'Prints.', 'read', Params\n"
        "    def run(self, params, context):\n"
        "        print('NOT OF THE PROTOCOL')\n"
        "        return 'quiet'\n"
        "register_tool(Loud, 'loud')\n"
    )
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    requests: list[dict[str, Any]] = [INITIALIZE, initialized, call("loud")]
    command = [*COMMAND, "--plugin", str(plugin), "--toolset", "loud"]
    with talk(tmp_path, command=command) as server:
        answers = []
        for request in requests:
            server.say(request)
            if "id" in request:
                answers.append(server.hear())
        server.stdin.close()
        assert server.stdout.read() == b""
        assert b"NOT OF THE PROTOCOL" in server.stderr.read()
        assert server.process.wait() == 0
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "quiet"}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("transport", [[], ["--http", "127.0.0.1:0"]])
def test_a_signal_ends_it(tmp_path: Path, transport: list[str], number: signal.Signals) -> None:
    with talk(tmp_path, *transport) as server:
        if transport:
            server.stderr.readline()
        else:
            server.say(INITIALIZE)
            server.hear()
        server.process.send_signal(number)
        assert server.process.wait(timeout=20) == 130
        assert b"Traceback" not in server.stderr.read()


# -- over HTTP --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("served")
    with subprocess.Popen([*COMMAND, "--http", "localhost:0"], cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        yield server.stderr.readline().split()[-1]
        server.terminate()


def test_the_tools_are_called_over_http(served: str) -> None:
    result = spoken(Client(served), lambda client: client.call_tool("calculate_math", {"expression": "6 * 7"}))
    assert text(result) == "42"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1.evil.example:{port}"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://localhost:{port}"}, 200),
        ({"Content-Type": "text/plain"}, 400),
    ],
)
def test_a_page_in_a_browser_cannot_speak_to_it(served: str, headers: dict[str, str], status: int) -> None:
    port = urlsplit(served).port
    assert port is not None
    usual = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    sent = {**usual, **{name: value.format(port=port) for name, value in headers.items()}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/mcp", json.dumps(INITIALIZE), sent)
    assert connection.getresponse().status == status
    connection.close()


def test_what_a_page_sent_reaches_the_terminal_inert(tmp_path: Path) -> None:
    with subprocess.Popen([*COMMAND, "--http", "[::1]:0"], cwd=tmp_path, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        port = urlsplit(server.stderr.readline().split()[-1].decode()).port or 0
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("POST", "/mcp", "{}", {"Content-Type": "application/json", "Host": "evil\x9b31m\xa0"})
        assert connection.getresponse().status == 421
        connection.close()
        server.terminate()
        told = server.stderr.read()
    assert told.startswith(b"shoestring: Invalid Host header: evil")
    assert b"\x9b" not in told.decode("utf-8").encode("latin-1", "replace")


def test_a_body_has_a_bound(served: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(served).port or 0, timeout=10)
    connection.request("POST", "/mcp", "", {"Content-Type": "application/json", "Content-Length": str(1 << 30)})
    assert connection.getresponse().status == 413
    connection.close()


def test_a_call_over_http_is_broken_off_by_a_signal_and_its_client_is_told(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(self_timed=True))
    with talk(tmp_path, "--plugin", "slow.py", "--toolset", "slow", "--http", "127.0.0.1:0") as server:
        url = server.stderr.readline().split()[-1].decode()

        def interrupted() -> None:
            server.stderr.readline()  # that it has begun
            server.process.send_signal(signal.SIGINT)

        signaller = threading.Thread(target=interrupted)
        signaller.start()
        result = spoken(Client(url), lambda client: client.call_tool("slow", {}))
        signaller.join()
        assert text(result) == "cancelled: mcp-serve has been ended."
        assert server.process.wait(20) == 130


TWO_SESSIONS = """
import sys
from agent.guards.approvals import Policy
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset
from cli.mcp_offer import Address, Offer, Sessions
from cli.mcp_protocol import serve

offer = Offer(ToolRegistry(toolset("core"), ToolContext()), Policy({}))
serve(offer, Address("127.0.0.1", 0), Sessions(most=2, idle_seconds=float(sys.argv[1])))
"""


def opened(url: str) -> tuple[int, bytes]:
    """What the request for a session of one's own brings."""
    sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=10)) as connection:
        connection.request("POST", "/mcp", json.dumps(INITIALIZE), sent)
        response = connection.getresponse()
        return response.status, response.read()


def test_sessions_over_http_are_few() -> None:
    with talk(ROOT, "600", command=[sys.executable, "-c", TWO_SESSIONS]) as server:
        url = server.stderr.readline().split()[-1].decode()
        assert [opened(url)[0] for _ in range(2)] == [200, 200]
        status, body = opened(url)
        assert (status, json.loads(body)["error"]["message"]) == (503, "Too many open sessions")


def test_a_session_over_http_that_is_not_used_ends() -> None:
    with talk(ROOT, "0.2", command=[sys.executable, "-c", TWO_SESSIONS]) as server:
        url = server.stderr.readline().split()[-1].decode()
        assert [opened(url)[0] for _ in range(2)] == [200, 200]
        deadline = time.monotonic() + 10
        while opened(url)[0] != 200:
            assert time.monotonic() < deadline


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", Address("127.0.0.1", 8000)),
        ("localhost:0", Address("127.0.0.1", 0)),
        ("[::1]:65535", Address("::1", 65_535)),
        ("127.1.2.3:1", Address("127.1.2.3", 1)),
    ],
)
def test_addresses_of_the_loopback(text: str, address: Address) -> None:
    assert loopback_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "8000",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "0.0.0.0:80",
            "[::]:80",
            "192.168.0.1:80",
            "::1:80",
        ),
        *("example.com:80", "127.0.0.1:80 ", "localhost.evil.example:80", "[::ffff:10.0.0.1]:1", "127.1:80"),
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--http: "):
        loopback_address(text)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--toolset", "mcp:notes"], "no toolset 'mcp:notes'"),
        (["--approve", "exceute=allow"], "approve: 'exceute' is neither an effect nor a tool (did you mean execute?)"),
        (["--workspace", "nowhere"], "--workspace 'nowhere': cannot be used"),
        (["--http", "0.0.0.0:1"], "--http: 0.0.0.0 is not of this machine's loopback"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert told in done.stderr


# -- scripts/mcp_chat.py ----------------------------------------------------------------------------------------------


def test_a_chat_with_the_tools_of_any_server(tmp_path: Path) -> None:
    """With Shoestring's own as that server: its tools are offered as those of a stranger are."""
    act = {"tool": "mcp_server_calculate_math", "args": {"expression": "6 * 7"}}
    called = {"progress_check": "on_track", "thought": "I ask.", "action": act, "final_answer": None}
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps([{"content": called}, {"content": answer("It is 42.")}]))
    script = [sys.executable, str(ROOT / "scripts" / "mcp_chat.py"), "--server", " ".join(COMMAND)]
    model = ["--backend", "scripted", "--scripted", "replies.json", "How much is 6 times 7?"]

    def chat(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*script, *more, *model],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    allowed = chat("--effect", "read")
    assert (allowed.returncode, allowed.stderr) == (0, "")
    assert re.search(r"^ +42$", allowed.stdout, re.MULTILINE), allowed.stdout
    assert "ANSWER    It is 42." in allowed.stdout
    asked = chat()
    assert asked.returncode == 1
    assert "confirmation_required: mcp_server_calculate_math" in asked.stdout
    verified = [sys.executable, str(ROOT / "main.py"), "verify", "traces"]
    assert subprocess.run(verified, cwd=tmp_path, capture_output=True, check=False).returncode == 0
