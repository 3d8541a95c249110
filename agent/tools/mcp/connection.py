"""One connection to an MCP server for one run: the SDK's session on an event loop in a thread of its own.

The SDK is asynchronous and the harness is not, so every call here waits for the thread, and never longer than it says.
Opened by the first call; a call after a crash opens another one. Imported on first use: it needs the SDK.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotDoneError
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from httpx2 import HTTPError
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    Tool,
)
from pydantic import ValidationError

from agent.tools.mcp.http import bounded_client
from agent.tools.mcp.stdio import Heard, Program, spoken_to

MAX_PAGES = 20
_CLOSE_SECONDS = 5.0

# The SDK logs what servers send, which is nothing for a terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False

# What the SDK raises where a connection breaks in the middle of something.
_BROKEN = (CancelledError, OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError)

T = TypeVar("T")


class ServerFailedError(Exception):
    """The server crashed, hung, or does not speak the protocol; nothing more is to be had from this connection.

    `complaint` is the end of what it wrote to stderr. Both texts may be the server's: hostile.
    """

    def __init__(self, message: str, complaint: str = "") -> None:
        super().__init__(message)
        self.complaint = complaint


class RefusedError(Exception):
    """The server answered a request with an error of the protocol. The text is the server's: hostile."""


@dataclass(frozen=True)
class Address:
    """Where a server over streamable HTTP is."""

    url: str
    headers: dict[str, str] = field(repr=False)


@dataclass
class _Open:
    """A connection that stands: what runs its loop, the session, and what ends it."""

    stack: ExitStack
    portal: BlockingPortal
    client: Client
    heard: Heard
    leave: anyio.Event
    served: Future[None]


class Connection:
    """A server, spoken to by one run. `seconds` bounds each of: coming to stand, the list of its tools, a call."""

    def __init__(self, target: Program | Address, seconds: float) -> None:
        self._target = target
        self._seconds = seconds
        self._lock = threading.Lock()
        self._open: _Open | None = None

    def tools(self) -> list[Tool]:
        """All that the server offers, as it says so.

        Raises:
            ServerFailedError, RefusedError: it does not say so.
        """
        return self._within(_listed)

    def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """What a tool of the server gives. Its output schema is not looked at: the result is text for a model.

        Raises:
            ServerFailedError: it crashed, hung or spoke nonsense; it has been ended.
            RefusedError: it does not take the call.
        """
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        return self._within(lambda client: client.session.send_request(request, CallToolResult))

    def close(self) -> None:
        """End the connection and the program behind it. May be called again."""
        with self._lock:
            self._end()

    def _within(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """One exchange. Whatever goes wrong but the server's refusal ends the connection."""
        with self._lock:
            connection = self._open or self._connect()
            connection.heard.new_exchange()
            future: Future[T] = connection.portal.start_task_soon(ask, connection.client)
            try:
                return future.result(self._seconds)
            except MCPError as error:
                if error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
                    raise RefusedError(error.message) from None
                raise self._failed("it closed the connection") from None
            except NotDoneError:
                future.cancel()
                raise self._failed(f"it gave no answer within {self._seconds:g} seconds") from None
            except ValidationError:
                raise self._failed("its answer is not of the protocol's form") from None
            except _BROKEN as error:
                raise self._failed("the connection broke") from error
            except BaseException:  # the person's Ctrl-C, or a bug of ours
                self._end()
                raise

    def _connect(self) -> _Open:
        """A new connection.

        Raises:
            ServerFailedError: there is no server there, or none that speaks the protocol.
        """
        heard, ready = Heard(), Future[tuple[Client, anyio.Event]]()
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name="mcp"))
            stack.callback(portal.call, portal.stop, True)
            served = portal.start_task_soon(self._serve, heard, ready)
            served.add_done_callback(lambda ended: _end_waiting(ready, ended))
            try:
                client, leave = ready.result(self._seconds)
            except NotDoneError:
                message = f"it was not ready within {self._seconds:g} seconds"
                raise ServerFailedError(heard.fault or message, heard.last_words()) from None
            except Exception as error:
                raise ServerFailedError(heard.fault or _why(error), heard.last_words()) from error
            self._open = _Open(stack.pop_all(), portal, client, heard, leave, served)
            return self._open

    async def _serve(self, heard: Heard, ready: Future[tuple[Client, anyio.Event]]) -> None:
        """The life of a connection from its beginning to its end, within one task as the SDK wants it."""
        leave = anyio.Event()
        async with self._session(heard) as client:
            ready.set_result((client, leave))
            await leave.wait()

    @asynccontextmanager
    async def _session(self, heard: Heard) -> AsyncIterator[Client]:
        us = Implementation(name="shoestring", version="1")
        if isinstance(self._target, Program):
            async with Client(spoken_to(self._target, heard), client_info=us, cache=None) as client:
                yield client
            return
        async with bounded_client(self._target.headers, self._seconds) as http:
            transport = streamable_http_client(self._target.url, http_client=http)
            async with Client(transport, client_info=us, cache=None) as client:
                yield client

    def _failed(self, message: str) -> ServerFailedError:
        """End what is no good any more, and say why."""
        heard = self._open.heard if self._open else Heard()
        fault = heard.fault or message
        self._end()
        return ServerFailedError(fault, heard.last_words())

    def _end(self) -> None:
        connection, self._open = self._open, None
        if connection is None:
            return
        with connection.stack, suppress(Exception):  # however it ends: it is over, and what it was for is told already
            connection.portal.start_task_soon(connection.leave.set)
            connection.served.result(_CLOSE_SECONDS)


async def _listed(client: Client) -> list[Tool]:
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _end_waiting(ready: Future[tuple[Client, anyio.Event]], ended: Future[None]) -> None:
    """Whoever waits for a connection hears that it came to nothing."""
    if not ready.done():
        ready.set_exception(CancelledError() if ended.cancelled() else ended.exception() or CancelledError())


def _why(error: BaseException) -> str:
    """Why no connection came to stand, in a few words that are no server's.

    Raises:
        BaseException: the very error, where it is none of the world's.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be started ({error.strerror})"
    if isinstance(error, HTTPError):
        return f"it cannot be reached ({type(error).__name__})"
    if isinstance(error, (MCPError, ValidationError)):
        return "it does not answer as an MCP server does"
    if isinstance(error, _BROKEN):
        return "the connection broke"
    raise error
