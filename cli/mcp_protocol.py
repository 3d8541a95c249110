"""The protocol's side of main.py mcp-serve, over stdio and HTTP. Imported on first use: it needs the SDK, an extra."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import anyio
import uvicorn
from anyio.abc import SocketAttribute
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from agent.errors import UsageError
from agent.tools.mcp.stdio import ENDED, Heard, spoken_over
from agent.tools.registry import ToolRegistry
from cli.mcp_offer import Address, Offer
from cli.outcome import log_traceback, say

PATH = "/mcp"
MAX_BODY_BYTES = 1 << 20
_FAREWELL_SECONDS = 2  # for what is under way when the server is told to stop


def serve(offer: Offer, address: Address | None) -> None:
    """Serve over standard input and output, or at an address, until the client or a signal ends it.

    Raises:
        UsageError: the address is taken, a stream is closed, or what comes is not the protocol.
        KeyboardInterrupt: a signal.
    """
    logging.getLogger().addHandler(_Told(logging.WARNING))
    for number in (signal.SIGTERM, signal.SIGHUP):  # the event loop knows how to end at Ctrl-C, and only at that
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    if address is None:
        anyio.run(_over_stdio, _server(offer))
    else:
        anyio.run(_over_http, _server(offer), address)


def _server(offer: Offer) -> Server[Any]:
    """The tools as the SDK serves them. One call at a time: within a run, no tool ever meets itself either."""
    one_at_a_time = anyio.Semaphore(1)

    async def list_tools(_context: object, _params: object) -> ListToolsResult:
        return ListToolsResult(tools=[_declared(offer.tools, name) for name in offer.tools.names])

    async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
        async with one_at_a_time:
            result = await anyio.to_thread.run_sync(offer.call, params.name, params.arguments or {})
        text = result.data if result.success else f"{result.error_type}: {result.error}"
        return CallToolResult(content=[TextContent(text=text)], is_error=not result.success)

    return Server("shoestring", on_list_tools=list_tools, on_call_tool=call_tool)


def _declared(tools: ToolRegistry, name: str) -> Tool:
    function, effect = tools.native_tool(name)["function"], tools.effect(name)
    hints = ToolAnnotations(read_only_hint=effect == "read", open_world_hint=effect == "network")
    return Tool(name=name, description=function["description"], input_schema=function["parameters"], annotations=hints)


async def _over_stdio(server: Server[Any]) -> None:
    """Until the client closes our input. Whatever else would be printed goes to stderr, and nothing else reads."""
    try:
        reading, writing = os.dup(0), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
    except OSError as error:
        raise UsageError(f"mcp-serve speaks over standard input and output; one is closed ({error.strerror})") from None
    heard = Heard()
    async with spoken_over(reading, writing, heard) as (read, write):
        await server.run(read, write, server.create_initialization_options())
    if heard.fault not in (None, ENDED):
        raise UsageError(f"mcp-serve: the client cannot be understood: {heard.fault}")


async def _over_http(server: Server[Any], address: Address) -> None:
    """Until a signal ends it. A page in a browser here cannot speak to it: its Host and Origin are others."""
    try:
        listener = await anyio.create_tcp_listener(local_host=address.host, local_port=address.port)
    except OSError as error:
        raise UsageError(f"--http: {address.host}:{address.port} cannot be served on ({error.strerror})") from None
    async with listener:
        sockets = [one.extra(SocketAttribute.raw_socket) for one in listener.listeners]  # noqa: S610  no Django here
        port = sockets[0].getsockname()[1]
        shown = f"[{address.host}]" if ":" in address.host else address.host
        hosts = [f"{name}:{port}" for name in dict.fromkeys((shown, "127.0.0.1", "localhost", "[::1]"))]
        security = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        )
        app = server.streamable_http_app(
            streamable_http_path=PATH, max_request_body_size=MAX_BODY_BYTES, transport_security=security
        )
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=_FAREWELL_SECONDS
        )
        await _Announced(config, f"the tools are at http://{shown}:{port}{PATH}").serve(sockets=sockets)


class _Told(logging.Handler):
    """What the SDK and the HTTP server log, a line each and inert: it may hold what a client or a page sent."""

    def emit(self, record: logging.LogRecord) -> None:
        bug = record.exc_info[1] if record.exc_info else None
        say(record.getMessage() if bug is None else f"{record.getMessage()}; its traceback is in {log_traceback(bug)}")


class _Announced(uvicorn.Server):
    """Says where it is once it is really there."""

    def __init__(self, config: uvicorn.Config, where: str) -> None:
        super().__init__(config)
        self._where = where

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        say(self._where)
