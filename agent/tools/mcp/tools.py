"""The tools of MCP servers, as a registry takes them. What a server lists is asked once; each run has its own server.

The SDK is an extra and takes a second to import, so it is imported where a server is really spoken to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.errors import UsageError
from agent.prompts.untrusted import inert_markers
from agent.redaction import redacted
from agent.tools.base import INSTALL_EXTRAS, Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.corpus import clean
from agent.tools.foreign import foreign
from agent.tools.mcp.config import McpServer, ServerFile
from agent.tools.mcp.schemas import Declared, InexpressibleError, arguments_of, declared

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

    from agent.tools.mcp.connection import Connection

MAX_TOOLS = 64  # of one server
MAX_ERROR = 300
_MAX_LEFT_OUT_TOLD = 5
Tell = Callable[[str], None]


def lacks(what: str, error: ModuleNotFoundError) -> str:
    """That the SDK, or a part of it, is not installed, and how to mend it."""
    missing = (error.name or "mcp").partition(".")[0]
    of_it = "" if missing == "mcp" else f", which needs {missing}"
    return f"{what} needs the package mcp{of_it}; install it with: {INSTALL_EXTRAS}"


class McpToolsets:
    """The toolsets mcp:NAME of one command. `environment` is what every server's program gets beside its own `env`.

    `servers` gives the list when the first server is asked for: a list that nobody needs is not read. `tell` says aloud
    what of a server cannot be offered. `secrets` are taken out of all that a server says, with those of its own entry.
    """

    def __init__(
        self,
        servers: Callable[[], ServerFile],
        environment: Mapping[str, str],
        tell: Tell,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._servers = servers
        self._environment = environment
        self._tell = tell
        self._secrets = secrets
        self._lock = threading.Lock()
        self._listed: dict[str, tuple[Declared, ...]] = {}

    def tools(self, name: str) -> list[Tool[Any]]:
        """The tools of a server for one run, which share its connection; none is open yet.

        Raises:
            UsageError: no such server, no SDK, or a server that does not answer as one.
        """
        connection = LazyConnection(self._servers(), name, self._environment, self._secrets)
        with self._lock:
            if name not in self._listed:
                self._listed[name] = self._ask(name, connection)
        return [McpTool(tool, connection) for tool in self._listed[name]]

    def _ask(self, name: str, connection: LazyConnection) -> tuple[Declared, ...]:
        offered, left_out = _offered(name, connection)
        if left_out:
            more = len(left_out) - _MAX_LEFT_OUT_TOLD
            told = "; ".join(left_out[:_MAX_LEFT_OUT_TOLD]) + (f"; and {more} more" if more > 0 else "")
            self._tell(f"mcp:{name}: left out: {connection.without_secrets(told)}")
        if not offered:
            raise UsageError(f"mcp:{name}: the server offers no tool that can be used")
        return offered


class LazyConnection:
    """A connection to a server that is made, and the SDK imported, when it is first needed."""

    def __init__(
        self, listing: ServerFile, name: str, environment: Mapping[str, str], secrets: tuple[str, ...]
    ) -> None:
        self._name = name
        self.server = listing.server(name)
        self.secrets = (*self.server.secrets(), *secrets)
        self._folder = listing.path.parent
        self._environment = environment
        self._connection: Connection | None = None

    def get(self) -> Connection:
        """The connection.

        Raises:
            UsageError: the SDK is not installed.
        """
        if self._connection is None:
            try:
                from agent.tools.mcp.connection import Address, Connection  # noqa: PLC0415  an extra, and a heavy one
                from agent.tools.mcp.stdio import Program  # noqa: PLC0415  as above
            except ModuleNotFoundError as error:
                raise UsageError(lacks(f"mcp:{self._name}", error)) from None
            server = self.server
            target: Program | Address
            if server.url is not None:
                target = Address(server.url, dict(server.headers))
            else:
                target = Program(*_program(server, self._folder, self._environment))
            self._connection = Connection(target, server.timeout)
        return self._connection

    def without_secrets(self, text: str) -> str:
        """A text of the server without what only its program, or nobody, was to know."""
        return redacted(text, self.secrets)

    def close(self) -> None:
        """End it, where there is one."""
        if self._connection is not None:
            self._connection.close()


class McpTool(Tool[Params]):
    """A tool of a server, by a name that begins with the server's: it can never pass for one of ours.

    What it does outlives the run and lies outside of its workspace and sandbox, so nothing contains it: a person is
    asked, unless they said in the list of servers that it only reads.
    """

    contained = False
    self_timed = True
    max_chars = 4000

    def __init__(self, tool: Declared, connection: LazyConnection) -> None:
        server = connection.server
        self.name = tool.name
        self.description = tool.description
        self.effect = server.effect_of(tool.server_name)
        self.timeout_seconds = server.timeout
        self.params = tool.params
        self._server_name = tool.server_name
        self._connection = connection

    def run(self, params: Params, context: ToolContext) -> str | Excerpt:  # noqa: ARG002  a server knows none
        """What the server says, as foreign data.

        Raises:
            ToolError: tool_error (the server's own word for a failure), tool_crashed (it exited, hung, or does not
                speak the protocol).
            UsageError: the SDK is not installed.
        """
        connection = self._connection.get()
        from agent.tools.mcp.connection import RefusedError, ServerFailedError  # noqa: PLC0415  there by now

        try:
            result = connection.call(self._server_name, arguments_of(params))
        except RefusedError as error:
            told = clean(self._connection.without_secrets(str(error))[: 4 * MAX_ERROR])[:MAX_ERROR]
            raise ToolError("tool_error", f"{self.name} was refused: {told}") from None
        except ServerFailedError as error:
            message = f"The server of {self.name} failed: {error}. Do without it, or try once more."
            raise ToolError("tool_crashed", message) from None
        said = "\n".join(_words(block, self._connection.without_secrets) for block in result.content)
        text = self._connection.without_secrets(said or _structured(result))
        shown = self._foreign(text) if text else None
        if result.is_error:
            why = shown.text if isinstance(shown, Excerpt) else shown
            raise ToolError("tool_error", why or f"{self.name} failed, and does not say why.")
        return shown or "Done; there is nothing to show."

    def _foreign(self, text: str) -> str | Excerpt:
        return foreign(text, f"the MCP server of {self.name}", self.max_chars)

    def close(self) -> None:
        """End the server that this run's tools of it share."""
        self._connection.close()


def _offered(name: str, connection: LazyConnection) -> tuple[tuple[Declared, ...], list[str]]:
    """What a server's tools are to us, and what of them is left out, in words.

    Raises:
        UsageError: the server does not answer as one; the message holds the end of what it wrote to stderr.
    """
    asked = connection.get()
    from agent.tools.mcp.connection import RefusedError, ServerFailedError  # noqa: PLC0415  there by now

    try:
        tools = asked.tools()
    except ServerFailedError as error:
        words = f"; it wrote: {connection.without_secrets(clean(error.complaint))}" if error.complaint else ""
        raise UsageError(f"mcp:{name}: the server failed: {error}{words}") from None
    except RefusedError as error:
        told = clean(connection.without_secrets(str(error)))[:MAX_ERROR]
        raise UsageError(f"mcp:{name}: the server does not list its tools: {told}") from None
    finally:
        connection.close()
    offered: dict[str, Declared] = {}
    left_out = [f"all tools after the first {MAX_TOOLS}"] if len(tools) > MAX_TOOLS else []
    for tool in tools[:MAX_TOOLS]:
        shown = ascii(tool.name[:80])
        try:
            ours = declared(name, tool.name, tool.description, tool.input_schema, connection.secrets)
        except InexpressibleError as error:
            left_out.append(f"{shown} ({error})")
            continue
        if ours.name in offered:
            left_out.append(f"{shown} (another tool is called {ours.name} too)")
            continue
        offered[ours.name] = ours
        left_out += [f"of {shown}, the parameter {part}" for part in ours.left_out]
    return tuple(offered.values()), left_out


def _program(
    server: McpServer, base: Path, environment: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str], Path | None]:
    """The command line, the environment and the folder of a server's program; paths begin at the list's folder."""
    command = server.command or ""
    if "/" in command:
        command = str(base / Path(command).expanduser())
    cwd = base / Path(server.cwd).expanduser() if server.cwd is not None else None
    return (command, *server.args), {**environment, **server.env}, cwd


def _words(block: ContentBlock, without_secrets: Callable[[str], str]) -> str:
    """A part of a result in words: texts as they are, and of everything else what it is; that, being cut, without
    secrets."""
    if block.type == "text":
        return block.text
    if block.type == "image" or block.type == "audio":  # noqa: PLR1714  mypy tells the types apart by this
        return f"[{block.type}, {clean(block.mime_type[:80])}, {len(block.data) * 3 // 4:,} bytes: not shown]"
    if block.type == "resource_link":
        return f"[link to {clean(without_secrets(block.name)[:200])}: {clean(without_secrets(str(block.uri))[:500])}]"
    resource = block.resource
    uri = clean(without_secrets(str(resource.uri))[:500])
    return f"[{uri}]\n{resource.text}" if hasattr(resource, "text") else f"[{uri}: not text, not shown]"


def _structured(result: CallToolResult) -> str:
    """The structured result, where there is no other."""
    if result.structured_content is None:
        return ""
    return inert_markers(json.dumps(result.structured_content, ensure_ascii=False))
