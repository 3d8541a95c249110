"""The protocol over pipes, a message a line: to a program of the person's, and from whoever started us.

The SDK has transports of its own for this. They hold a line of any length in memory and pass over lines that are no
messages; the client's gives the program more of the environment than we want, and the server's cannot be interrupted
while it reads. So here are two with bounds, of the same form. Imported on first use: it needs the SDK.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId, jsonrpc_message_adapter
from pydantic import TypeAdapter

from agent.sandbox.leftovers import prefix
from agent.tools.mcp.descendants import held_below, kill

MAX_LINE_BYTES = 4 << 20  # a picture in base64 is long, and is named to the model rather than shown
# What a server may write from the beginning of one exchange to that of the next: requests and notifications of its own
# cost us memory each, whether or not anybody waits for them.
MAX_MESSAGES = 1_000
MAX_BYTES = 16 << 20
ENDED = "it ended"
MAX_COMPLAINT = 500  # characters of what a server wrote to stderr last
_READ_BYTES = 65_536
_EXIT_SECONDS = 1.0  # to leave by itself once its input has ended, and again once it has been asked to
_POLL_SECONDS = 0.01
_REQUEST_ID: TypeAdapter[RequestId] = TypeAdapter(RequestId)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
ToSession = MemoryObjectSendStream[SessionMessage | Exception]
FromSession = MemoryObjectReceiveStream[SessionMessage]
Outgoing = MemoryObjectSendStream[SessionMessage]


@dataclass(frozen=True)
class Program:
    """What is started: `environment` is all that it gets of one. Without `cwd` it has an empty folder of its own."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    cwd: Path | None = None


@dataclass
class Heard:
    """What is known of a program beside its messages: why it can be spoken to no more, how much it has written since
    the exchange began, and its last words on stderr."""

    fault: str | None = None
    messages: int = 0
    size: int = 0
    complaint: bytearray = field(default_factory=bytearray, repr=False)

    def new_exchange(self) -> None:
        """Count what it writes from the beginning again."""
        self.messages = self.size = 0

    def last_words(self) -> str:
        """The end of what it wrote to stderr, from the beginning of a line or at least of a word; the text is the
        server's and hostile."""
        text = self.complaint.decode("utf-8", "replace").strip()
        tail = text[-MAX_COMPLAINT:]
        if tail == text:
            return text
        return tail.partition("\n" if "\n" in tail else " ")[2].strip()


@asynccontextmanager
async def spoken_to(program: Program, heard: Heard) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The program's messages and a way to send it some. At the end it is given a second to leave, and then killed.

    Raises:
        OSError: it cannot be started.
    """
    with ExitStack() as stack:
        cwd = program.cwd or Path(stack.enter_context(_spare_folder()))
        process = stack.enter_context(_started(program, cwd))
        to_session, from_program = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_program, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with to_session, from_program, to_program, from_session, anyio.create_task_group() as tasks:
            _start_pumps(tasks, process, heard, to_session, from_session)
            try:
                yield from_program, to_program
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await _end(process)


def _spare_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=prefix("mcp"), ignore_cleanup_errors=True)


@asynccontextmanager
async def spoken_over(reading: int, writing: int) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The messages of whoever is at the other end of two pipes of ours, and a way to send some. The pipes stay open.

    A line that is no message is answered with an error, and the next one is read.
    """
    to_session, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    async with to_session, from_client, to_client, from_session, anyio.create_task_group() as tasks:
        tasks.start_soon(_pump_from_client, reading, to_session, to_client.clone())
        tasks.start_soon(_pump_requests, writing, from_session, Heard())
        yield from_client, to_client
        tasks.cancel_scope.cancel()


def _started(program: Program, cwd: Path) -> subprocess.Popen[bytes]:
    """The process, in a group and a session of its own, its pipes never waited for."""
    process = subprocess.Popen(
        program.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=dict(program.environment),
        cwd=cwd,
        start_new_session=True,
    )
    for pipe in (process.stdin, process.stdout, process.stderr):
        os.set_blocking(_number(pipe), False)
    return process


def _number(pipe: IO[bytes] | None) -> int:
    assert pipe is not None  # noqa: S101  all three were asked for; this tells mypy
    return pipe.fileno()


def _start_pumps(
    tasks: TaskGroup, process: subprocess.Popen[bytes], heard: Heard, to_session: ToSession, from_session: FromSession
) -> None:
    tasks.start_soon(_pump_messages, _number(process.stdout), to_session, heard)
    tasks.start_soon(_pump_complaints, _number(process.stderr), heard)
    tasks.start_soon(_pump_requests, _number(process.stdin), from_session, heard)


async def _pump_messages(pipe: int, to_session: ToSession, heard: Heard) -> None:
    """Each line of a server as a message. Whatever is none, and more than one exchange may bring, ends it: the session
    sees the end and fails what is under way."""
    async with to_session, aclosing(_lines(pipe, heard)) as lines:
        async for line in lines:
            try:
                message = _message(line)
            except ValueError as error:
                heard.fault = f"it wrote a line {error}"
                return
            heard.messages += 1
            if _is_flood(heard):
                return
            await to_session.send(message)
        heard.fault = ENDED


async def _pump_from_client(pipe: int, to_session: ToSession, to_client: Outgoing) -> None:
    """Each line of a client as a message, or as an error that it is told of, until it closes its end."""
    async with to_session, to_client, aclosing(_lines(pipe, Heard())) as lines:
        async for line in lines:
            try:
                message = _message(line)
            except ValueError as error:
                with suppress(anyio.BrokenResourceError):  # it reads no more
                    await to_client.send(SessionMessage(_refusal(line, f"a line {error}")))
            else:
                await to_session.send(message)


async def _lines(pipe: int, heard: Heard) -> AsyncGenerator[bytes, None]:
    """Each line that is not blank. One that is too long is given as soon as it is, without its rest."""
    line, is_given = bytearray(), False
    while chunk := await _read(pipe):
        heard.size += len(chunk)
        pieces = chunk.split(b"\n")
        for place, piece in enumerate(pieces):
            ends = place < len(pieces) - 1
            line += piece
            if not is_given and (len(line) > MAX_LINE_BYTES or (ends and line.strip())):
                yield bytes(line)
                is_given = True
            if ends or is_given:
                line.clear()
            is_given = is_given and not ends


def _is_flood(heard: Heard) -> bool:
    if heard.messages <= MAX_MESSAGES and heard.size <= MAX_BYTES:
        return False
    heard.fault = f"it wrote more than {MAX_MESSAGES:,} messages or {MAX_BYTES:,} bytes in one exchange"
    return True


def _message(line: bytes) -> SessionMessage:
    """The message in a line.

    Raises:
        ValueError: there is none; the text goes on after "a line".
    """
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        raise ValueError("that is no message of the protocol") from None


def _refusal(line: bytes, why: str) -> JSONRPCError:
    """The answer to a line that cannot be read: to its request, where it is one, so that nobody waits for another."""
    number, code = None, PARSE_ERROR
    with suppress(ValueError, RecursionError):
        said = json.loads(line)  # which takes more than the protocol does: half a surrogate pair in a text
        code = INVALID_REQUEST
        if isinstance(said, dict) and "method" in said:
            number = _REQUEST_ID.validate_json(json.dumps(said.get("id")))
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=why))


async def _pump_requests(pipe: int, from_session: FromSession, heard: Heard) -> None:
    """What is sent to the other end. A server that reads no more is found out by the call's time."""
    async with from_session:
        async for sent in from_session:
            data = memoryview(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            while data:
                with suppress(PermissionError):  # an ordinary file cannot be waited for, and need not be
                    await anyio.wait_writable(pipe)
                try:
                    data = data[os.write(pipe, data) :]
                except OSError:
                    heard.fault = heard.fault or "it closed its input"
                    return


async def _pump_complaints(pipe: int, heard: Heard) -> None:
    while chunk := await _read(pipe):
        heard.complaint += chunk
        del heard.complaint[: -4 * MAX_COMPLAINT]


async def _read(pipe: int) -> bytes:
    """The next bytes; none at the end."""
    with suppress(PermissionError):  # as above
        await anyio.wait_readable(pipe)
    try:
        return os.read(pipe, _READ_BYTES)
    except OSError:
        return b""


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input and let it go; ask it to; kill what is left of its group and of the processes below it."""
    below = held_below(process.pid)
    if process.stdin:
        process.stdin.close()
    if not await _has_left(process):
        below += held_below(process.pid)
        _signal_group(process, signal.SIGTERM)
        await _has_left(process)
    _signal_group(process, signal.SIGKILL)
    kill(below)
    process.wait()


async def _has_left(process: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _EXIT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        await anyio.sleep(_POLL_SECONDS)
    return process.returncode is not None


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # nobody left (macOS says it the second way)
        os.killpg(process.pid, number)
