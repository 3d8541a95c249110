"""The file that lists MCP servers, in the form that most clients read, checked as a whole before anything is started.

Only the person writes it: what stands in it is trusted as a command line of theirs is.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from agent.config import SECRET_WORDS
from agent.errors import UsageError
from agent.tools.base import Effect

MAX_FILE_BYTES = 1 << 20
SERVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,23}")  # the tools' names begin with it, and may have 64 characters
_MAX_SHOWN = 60

_Text = Annotated[str, Field(max_length=4096)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ToolRule(_Form):
    """What the person says of one tool of a server: what it does to the world."""

    effect: Effect


class McpServer(_Form):
    """How one server is reached, and what the person says of its tools.

    `command` with `args`, `env` and `cwd` is a program spoken to over its pipes; `url` with `headers` is one over
    streamable HTTP. `effect` is that of its tools, unless `tools` says otherwise of one by the server's own name for
    it. `timeout` is how long it may take to be ready, to list its tools, and to answer a call, each, in seconds.
    """

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    args: list[_Text] = Field([], max_length=256)
    env: dict[str, _Text] = Field({}, max_length=256)
    cwd: _Text | None = None
    url: _Text | None = None
    headers: dict[str, _Text] = Field({}, max_length=64)
    effect: Effect = "execute"
    tools: dict[str, ToolRule] = Field({}, max_length=256)
    timeout: float = Field(30.0, strict=False, ge=1, le=600, allow_inf_nan=False)

    @field_validator("command", "cwd")
    @classmethod
    def _no_null(cls, text: str | None) -> str | None:
        if text is not None and "\0" in text:
            raise ValueError("holds a null character")
        return text

    @field_validator("args")
    @classmethod
    def _no_nulls(cls, texts: list[str]) -> list[str]:
        if any("\0" in text for text in texts):
            raise ValueError("holds a null character")
        return texts

    @field_validator("env")
    @classmethod
    def _names_of_variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!a:.40} cannot be a variable of the environment")
        return env

    @field_validator("url")
    @classmethod
    def _an_http_address(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
                raise ValueError("must be an address like http://127.0.0.1:8000/mcp")
            if parts.username is not None or parts.password is not None:
                raise ValueError("must hold no user or password; put them into headers")
        return url

    @field_validator("headers")
    @classmethod
    def _printable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", name) or not (value.isascii() and value.isprintable()):
                raise ValueError(f"{name!a:.40} or its value cannot stand in a request")
        return headers

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url, and not both")
        if self.type is not None and (self.type == "stdio") != (self.url is None):
            raise ValueError(f"type {self.type} does not go with {'a url' if self.url else 'a command'}")
        strangers = ("args", "env", "cwd") if self.url else ("headers",)
        if out_of_place := [name for name in strangers if name in self.model_fields_set]:
            raise ValueError(f"{', '.join(out_of_place)}: not for a server that is reached by {self._reached_by}")
        return self

    @property
    def _reached_by(self) -> str:
        return "a url" if self.url else "a command"

    def effect_of(self, tool: str) -> Effect:
        """What a tool does to the world, as far as the person says; `tool` is the server's own name for it."""
        rule = self.tools.get(tool)
        return rule.effect if rule else self.effect

    def secrets(self) -> tuple[str, ...]:
        """What must stand in no result: headers, and variables whose names say so."""
        variables = [value for name, value in self.env.items() if any(word in name.upper() for word in SECRET_WORDS)]
        words = [word for value in self.headers.values() for word in (value, *value.split()[1:])]
        return tuple(sorted({*variables, *words}, key=len, reverse=True))


@dataclass(frozen=True)
class ServerFile:
    """The servers of one file. `path` is where it stands, which relative folders and commands begin at."""

    path: Path
    servers: dict[str, McpServer]

    def server(self, name: str) -> McpServer:
        """One server by its name.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.servers:
            listed = ", ".join(self.servers) or "none"
            raise UsageError(f"mcp:{_shown(name)}: {self.path} lists no such server (it lists: {listed})")
        return self.servers[name]


def read_servers(path: Path) -> ServerFile:
    """The servers that a file lists.

    Raises:
        UsageError: the file cannot be read, or something in it cannot be; every mistake is named.
    """
    document = _document(path)
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise UsageError(f'{path}: must be an object like {{"mcpServers": {{"NAME": {{"command": "..."}}}}}}')
    read: dict[str, McpServer] = {}
    faults: list[str] = []
    for name, entry in servers.items():
        if not SERVER_NAME.fullmatch(name):
            faults.append(f"{_shown(name)}: no server can be called that; use up to 24 letters, digits, _ and -")
            continue
        try:
            read[name] = McpServer.model_validate(entry)
        except ValidationError as error:
            faults += [f"{name}{_fault(details)}" for details in error.errors(include_url=False)]
    if faults:
        raise UsageError(f"{path}: {'; '.join(faults)}")
    return ServerFile(path.absolute(), read)


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); name the list of servers with --mcp-config or MCP_CONFIG"
            " (docs/mcp.md)"
        ) from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: is longer than {MAX_FILE_BYTES:,} bytes, and no list of servers is")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once_each)
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: is no JSON ({error.msg})") from None
    except _TwiceError as error:
        raise UsageError(f"{path}: {_shown(str(error))} stands twice in one object") from None
    except (RecursionError, ValueError):
        raise UsageError(f"{path}: is no JSON that can be read") from None


class _TwiceError(Exception):
    """A key stands twice: the second would silently take the place of the first."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise _TwiceError(key)
        seen[key] = value
    return seen


def _fault(details: Any) -> str:
    """One mistake in words, with its place. Values are not shown: they may be secrets."""
    where = "".join(f".{_word(part)}" for part in details["loc"])
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(details["loc"][-1]), McpServer.model_fields, n=1)
        message = "is not known" + (f"; did you mean {near[0]}?" if near else "")
    return f"{where}: {message[:1].lower()}{message[1:]}"


def _word(part: str | int) -> str:
    return str(part) if isinstance(part, int) or part.isidentifier() else _shown(part)


def _shown(text: str) -> str:
    return ascii(text[:_MAX_SHOWN])
