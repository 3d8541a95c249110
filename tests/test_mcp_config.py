"""The list of MCP servers: what is read, and one clear line for what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.config import environment_of_programs
from agent.errors import UsageError
from agent.tools.mcp.config import read_servers
from agent.tools.mcp.stdio import MAX_COMPLAINT, Heard
from tests.support_cli import ROOT, Desk


def written(folder: Path, content: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_common_form_is_read(tmp_path: Path) -> None:
    servers = {
        "files": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "server"],
            "env": {"API_TOKEN": "abcd", "LEVEL": "info"},
        },
        "far": {"url": "http://127.0.0.1:8000/mcp", "headers": {"Authorization": "Bearer efgh"}, "timeout": 5},
        "my_Server-2": {"command": "x", "cwd": "~/x", "effect": "network", "tools": {"add": {"effect": "write"}}},
    }
    listing = read_servers(written(tmp_path, {"mcpServers": servers}))
    files, far, mine = (listing.server(name) for name in servers)
    assert (files.command, files.args, files.effect, files.timeout) == ("npx", ["-y", "server"], "execute", 30)
    assert (files.secrets(), far.secrets()) == (("abcd",), ("Bearer efgh", "efgh"))
    assert (mine.effect_of("add"), mine.effect_of("other")) == ("write", "network")
    with pytest.raises(UsageError, match=r"^mcp:'fles': .*mcp\.json lists no such server \(it lists: files, far, my_"):
        listing.server("fles")


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({}, "srv: needs either a command or a url, and not both"),
        ({"command": "a", "url": "http://b"}, "srv: needs either a command or a url, and not both"),
        ({"command": "a", "evn": {}}, "srv.evn: is not known; did you mean env?"),
        ({"command": "a", "disabled": True}, "srv.disabled: is not known"),
        ({"command": ["a"]}, "srv.command: input should be a valid string"),
        ({"command": ""}, "srv.command: string should have at least 1 character"),
        ({"command": "a\0b"}, "srv.command: holds a null character"),
        ({"command": "a", "args": "b"}, "srv.args: input should be a valid list"),
        ({"command": "a", "args": [1]}, "srv.args.0: input should be a valid string"),
        ({"command": "a", "env": {"A": 1}}, "srv.env.A: input should be a valid string"),
        ({"command": "a", "env": {"A=B": "c"}}, "srv.env: 'A=B' cannot be a variable of the environment"),
        ({"command": "a", "headers": {"X": "y"}}, "srv: headers: not for a server that is reached by a command"),
        ({"command": "a", "type": "http"}, "srv: type http does not go with a command"),
        ({"command": "a", "type": "sse"}, "srv.type: input should be 'stdio', 'http' or 'streamable-http'"),
        ({"command": "a", "effect": "nothing"}, "srv.effect: input should be 'read', 'write', 'execute' or 'network'"),
        ({"command": "a", "tools": {"t": "read"}}, "srv.tools.t: input should be"),
        ({"command": "a", "timeout": 0}, "srv.timeout: input should be greater than or equal to 1"),
        ({"url": "ftp://b"}, "srv.url: must be an address like http://127.0.0.1:8000/mcp"),
        ({"url": "http://user:pass@b"}, "srv.url: must hold no user or password; put them into headers"),
        ({"url": "http://b", "env": {}}, "srv: env: not for a server that is reached by a url"),
        ({"url": "http://b", "headers": {"A": "b\r\nC: d"}}, "srv.headers: 'A' or its value cannot stand in a request"),
        ("npx", "srv: input should be"),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, server: Any, told: str) -> None:
    path = written(tmp_path, {"mcpServers": {"srv": server}})
    with pytest.raises(UsageError) as refused:
        read_servers(path)
    assert str(refused.value).startswith(f"{path}: {told}")


def test_all_mistakes_are_named_and_no_value_is_shown(tmp_path: Path) -> None:
    servers = {"a b": {"command": "x"}, "c": {"command": 1, "args": "s3cret"}, "d": {"command": "fine"}}
    with pytest.raises(UsageError) as refused:
        read_servers(written(tmp_path, {"mcpServers": servers}))
    told = str(refused.value)
    assert told.count(";") == 3  # one is in the words for the name
    assert "s3cret" not in told
    assert "'a b': no server can be called that" in told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", ":1: is no JSON"),
        ('{"a": 1,\n"b" 2}', ":2: is no JSON"),
        ("[]", "must be an object like"),
        ("{}", "must be an object like"),
        ('{"mcpServers": []}', "must be an object like"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' stands twice in one object"),
        ("[" * 200_000, "is no JSON"),
        ("9" * 10_000, "is no JSON"),
        (" " * 2_000_000, "is longer than 1,048,576 bytes"),
    ],
)
def test_a_file_that_is_no_list_is_told(tmp_path: Path, content: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_servers(written(tmp_path, content))
    assert told in str(refused.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read_servers(tmp_path / "nowhere.json")
    assert str(refused.value) == (
        f"{tmp_path / 'nowhere.json'}: cannot be read (No such file or directory);"
        " name the list of servers with --mcp-config or MCP_CONFIG (docs/mcp.md)"
    )
    with pytest.raises(UsageError, match=r"cannot be read \(Is a directory\)"):
        read_servers(tmp_path)
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_servers(tmp_path / "latin")


def test_a_servers_last_words_begin_with_a_line_or_a_word() -> None:
    for written, shown in (
        ("cannot go on\n", "cannot go on"),
        ("Traceback of the server:\n" + "  File a\n" * 100, "\n  ".join(["File a"] * 55)),
        ("word " * 200, " ".join(["word"] * 100)),
        ("x" * MAX_COMPLAINT, "x" * MAX_COMPLAINT),
        ("x" * (MAX_COMPLAINT + 1), ""),
    ):
        assert Heard(complaint=bytearray(written.encode())).last_words() == shown


def test_where_servers_can_be_had_they_are_among_the_toolsets(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    done = desk.inside("Hello!", "--toolset", "cor", "--backend", "scripted", "--scripted", desk.script([]))
    assert done.line == (
        "shoestring: no toolset 'cor': use one of core, fs, web, code, pdf, browser, mcp:NAME, or several with commas"
    )


@pytest.mark.parametrize(
    ("package", "needed"), [("mcp", "mcp"), ("anyio", "mcp, which needs anyio"), ("httpx2", "mcp, which needs httpx2")]
)
def test_without_the_sdk_the_person_is_told_what_to_install(tmp_path: Path, package: str, needed: str) -> None:
    path = written(tmp_path, {"mcpServers": {"srv": {"command": "true"}}})
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from cli.outcome import exit_code\n"
        "from main import run\n"
        "sys.exit(exit_code(lambda: run(sys.argv[1:])))"
    )
    task = ["hello", "--toolset", "mcp:srv", "--mcp-config", str(path), "--traces", str(tmp_path / "traces")]
    for words, who in ((task, "mcp:srv"), (["mcp-serve"], "mcp-serve")):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert (done.returncode, done.stderr) == (
            2,
            f"shoestring: {who} needs the package {needed}; install it with: make extras\n",
        )


def test_a_servers_program_inherits_nothing_that_could_be_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/somewhere")
    for name in ("LLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "PYTHONPATH", "LD_PRELOAD"):
        monkeypatch.setenv(name, "x")
    inherited = environment_of_programs()
    assert inherited["PATH"] == "/somewhere"
    assert set(inherited) <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}
