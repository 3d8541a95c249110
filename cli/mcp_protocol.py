"""The protocol's side of main.py mcp-serve, over stdio and HTTP. Imported on first use: it needs the SDK, an extra."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

import anyio
import uvicorn
from anyio.abc import SocketAttribute
from anyio.from_thread import start_blocking_portal
from mcp.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from agent.errors import UsageError
from agent.tools.mcp.stdio import spoken_over
from agent.tools.registry import ToolRegistry
from cli.mcp_calls import Calls
from cli.mcp_offer import Address, Offer, Sessions
from cli.outcome import log_traceback, say

PATH = "/mcp"
MAX_BODY_BYTES = 1 << 20
_FAREWELL_SECONDS = 2  # for what is under way when the server is told to stop


def serve(offer: Offer, address: Address | None, sessions: Sessions) -> None:
    """Serve over standard input and output, or at an address, until the client or a signal ends it.

    The protocol is spoken on a thread of its own; calls are made on this one, which must be the main one.

    Raises:
        UsageError: the address is taken, or a stream is closed.
        KeyboardInterrupt: a signal.
    """
    logging.getLogger().addHandler(_Told(logging.WARNING))
    calls = Calls(offer)
    server = _server(offer.tools, calls)
    with start_blocking_portal(name="mcp-serve") as portal:
        leave = portal.call(anyio.Event)
        if address is None:
            served = portal.start_task_soon(_over_stdio, server, leave)
        else:
            served = portal.start_task_soon(_over_http, server, leave, address, sessions)
        served.add_done_callback(lambda _: calls.end())
        try:
            calls.make()
        finally:
            portal.call(leave.set)
            served.result()


def _server(tools: ToolRegistry, calls: Calls) -> Server[Any]:
    """The tools as the SDK serves them."""

    async def list_tools(_context: object, _params: object) -> ListToolsResult:
        return ListToolsResult(tools=[_declared(tools, name) for name in tools.names])

    async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
        result = await asyncio.wrap_future(calls.hand_in(params.name, params.arguments or {}))
        text = result.data if result.success else f"{result.error_type}: {result.error}"
        return CallToolResult(content=[TextContent(text=text)], is_error=not result.success)

    return Server("shoestring", on_list_tools=list_tools, on_call_tool=call_tool)


def _declared(tools: ToolRegistry, name: str) -> Tool:
    function, effect = tools.native_tool(name)["function"], tools.effect(name)
    hints = ToolAnnotations(read_only_hint=effect == "read", open_world_hint=effect == "network")
    return Tool(name=name, description=function["description"], input_schema=function["parameters"], annotations=hints)


async def _over_stdio(server: Server[Any], leave: anyio.Event) -> None:
    """Until the client closes our input. Whatever else would be printed goes to stderr, and nothing else reads."""
    try:
        reading, writing = os.dup(0), os.dup(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
    except OSError as error:
        raise UsageError(f"mcp-serve speaks over standard input and output; one is closed ({error.strerror})") from None
    async with spoken_over(reading, writing) as (read, write), anyio.create_task_group() as tasks:
        tasks.start_soon(_once, leave, tasks.cancel_scope.cancel)
        await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _once(event: anyio.Event, act: Callable[[], None]) -> None:
    await event.wait()
    act()


async def _over_http(server: Server[Any], leave: anyio.Event, address: Address, sessions: Sessions) -> None:
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
            streamable_http_path=PATH,
            max_request_body_size=MAX_BODY_BYTES,
            session_idle_timeout=sessions.idle_seconds,
            max_sessions=sessions.most,
            transport_security=security,
        )
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=_FAREWELL_SECONDS
        )
        announced = _Announced(config, f"the tools are at http://{shown}:{port}{PATH}")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_once, leave, announced.leave)
            await announced.serve(sockets=sockets)
            tasks.cancel_scope.cancel()


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

    def leave(self) -> None:
        """Take nothing more, and end when what is under way has its answer or its time is over."""
        self.should_exit = True
