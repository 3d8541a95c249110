"""main.py mcp-serve, spoken to by the SDK's own client over stdio and HTTP; and scripts/mcp_chat.py."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
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


@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [(b"", 0, ""), (b"GET / HTTP/1.1\r\n", 2, "no message of the protocol"), (b"x" * 5_000_000, 2, "longer than")],
)
def test_a_client_that_does_not_speak_the_protocol_is_told(tmp_path: Path, sent: bytes, code: int, told: str) -> None:
    (tmp_path / "sent").write_bytes(sent)
    with (tmp_path / "sent").open("rb") as file:
        done = subprocess.run(COMMAND, cwd=tmp_path, stdin=file, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr


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
    requests: list[dict[str, Any]] = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "loud", "arguments": {}}},
    ]
    command = [*COMMAND, "--plugin", str(plugin), "--toolset", "loud"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        answers = []
        for request in requests:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            if "id" in request:
                answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.stdout.read() == b""
        assert b"NOT OF THE PROTOCOL" in process.stderr.read()
        assert process.wait() == 0
    assert answers[1]["result"]["content"] == [{"type": "text", "text": "quiet"}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("transport", [[], ["--http", "127.0.0.1:0"]])
def test_a_signal_ends_it(tmp_path: Path, transport: list[str], number: signal.Signals) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *transport], cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        if transport:
            process.stderr.readline()
        else:
            process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
            process.stdin.flush()
            process.stdout.readline()
        process.send_signal(number)
        assert process.wait(timeout=20) == 130
        assert b"Traceback" not in process.stderr.read()


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
    assert "OBSERVE   mcp_server_calculate_math: 42" in allowed.stdout
    assert "ANSWER    It is 42." in allowed.stdout
    asked = chat()
    assert asked.returncode == 1
    assert "confirmation_required: mcp_server_calculate_math" in asked.stdout
    verified = [sys.executable, str(ROOT / "main.py"), "verify", "traces"]
    assert subprocess.run(verified, cwd=tmp_path, capture_output=True, check=False).returncode == 0
