"""A model server on loopback that misbehaves on purpose and keeps books of its own.

It speaks enough of Ollama's `/api/chat` and `/api/embed`. A model is named `run-NUMBER-TOKENIZER-KIND-HABIT-CALL`; the
last is the number of the call within its run, so that its books can be laid beside the client's. `/books` gives them,
one JSON object a line; `/count` counts a prompt ahead. It prints its two ports as JSON and ends when its standard input
does. On the second port every connection is accepted and reset at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import socket
import struct
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from benchmarks import storm_talk as talk
from benchmarks.storm_replies import Entry, Turn, one_object, refusal, stream, vectors, whole
from benchmarks.storm_tokens import Tokenizer, count, count_texts, cut, render

_MODEL = re.compile(r"run-(\d+)-(bytes|pieces)-(\w+)-(\w+)-(\d+)(?::latest)?")
# What a server does through a whole run, named in the model's name beside "plain".
HABITS = {
    "impatient": "its client waits for a moment only",
    "cutting": "prompts are silently cut to half the window, as Ollama may do, and texts to a window of their own",
    "uncached": "tokens in its cache are not counted, as old servers did; now and then the cache is lost",
}
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time at all: closing sends a reset
SLOW_SECONDS = 0.35  # longer than an impatient client waits
TEXT_WINDOW = 32  # tokens of each text that a cutting server reads
_UNREAD = frozenset({"busy", "gateway", "refused_request", "redirect", "load"})


@dataclass
class Server:
    """The books, and what each run's cache holds."""

    seed: int
    books: list[Entry] = field(default_factory=list)
    cache: dict[int, bytes] = field(default_factory=dict)
    active: int = 0

    # -- counting -----------------------------------------------------------------------------------------------

    def read(self, body: dict[str, Any], *, embeds: bool) -> Turn:
        """Read a request, generate where a reply is wanted, and write both down."""
        match = _MODEL.fullmatch(str(body.get("model")))
        if match is None:
            raise ValueError(f"no such model: {body.get('model')!r}")
        run, tokenizer, kind, habit = int(match[1]), cast(Tokenizer, match[2]), match[3], match[4]
        call, limit = int(match[5]), 0 if embeds else body["options"]["num_predict"]
        rng = random.Random(f"{self.seed}/{run}/{call}")
        behaviour = talk.behaviour(rng, impatient=habit == "impatient", embeds=embeds)
        turn = Turn(body, Entry(run, call, limit, 0, 0, behaviour, embeds), rng)
        if embeds:
            turn.entry.prompt = self._text_tokens(turn, tokenizer, habit)
        else:
            turn.entry.prompt = self._prompt_tokens(run, tokenizer, habit, body, rng)
        if behaviour in _UNREAD:
            turn.entry.prompt = 0  # turned away
        elif not embeds:
            self._generate(turn, tokenizer, kind)
        self.books.append(turn.entry)
        return turn

    def _prompt_tokens(
        self, run: int, tokenizer: Tokenizer, habit: str, body: dict[str, Any], rng: random.Random
    ) -> int:
        data = render(body["messages"], body.get("tools"))
        if habit == "cutting":
            return min(count(tokenizer, data), int(body["options"]["num_ctx"]) // 2 + 2)
        if habit != "uncached":
            return count(tokenizer, data)
        before, self.cache[run] = self.cache.get(run, b""), data
        kept = _shared(before, data) if rng.random() < 0.7 else 0
        return count(tokenizer, data[kept:])

    @staticmethod
    def _text_tokens(turn: Turn, tokenizer: Tokenizer, habit: str) -> int:
        texts = turn.body["input"]
        if turn.entry.behaviour == "over_bound":  # the most that a client can reckon with, or a little more than that
            return sum(len(text.encode()) + 64 for text in texts) + 256 + turn.rng.choice((0, 1, 7, 400))
        return count_texts(tokenizer, texts, TEXT_WINDOW if habit == "cutting" else None)

    @staticmethod
    def _generate(turn: Turn, tokenizer: Tokenizer, kind: str) -> None:
        rng, entry = turn.rng, turn.entry
        data, limit = talk.text(rng, kind).encode(), entry.num_predict
        if entry.behaviour == "empty":
            data = b""
        elif entry.behaviour == "invalid_bytes":
            data = bytes(rng.choice((0xC3, 0xF0, 0x80, 0x61)) for _ in range(rng.randint(20, 300)))
        elif entry.behaviour in talk.OVER_CAP:
            limit += rng.choice((1, 7, 400))
            data += b"." * limit if tokenizer == "bytes" else b" on" * limit
        elif rng.random() < 0.1:
            thoughts, used = cut(tokenizer, talk.words(rng, 40).encode(), limit)
            turn.thinking, limit = thoughts.decode("utf-8", "replace"), limit - used
            entry.completion += used
        said, used = cut(tokenizer, data, limit)
        entry.completion += used
        turn.content, turn.cut = said.decode("utf-8", "replace"), len(said) < len(data)

    # -- answering ----------------------------------------------------------------------------------------------

    async def answer(self, method: str, path: str, body: bytes) -> AsyncIterator[bytes | None]:
        """The pieces of a reply; None resets the connection."""
        if path in ("/api/chat", "/api/embed"):
            async for piece in self._acted(self.read(json.loads(body), embeds=path == "/api/embed")):
                yield piece
        elif path == "/count":
            asked = json.loads(body)
            tokens = count(asked["tokenizer"], render(asked["messages"], asked.get("tools")))
            yield whole(200, json.dumps({"tokens": tokens}))
        elif path == "/books":
            while self.active > 1:
                await asyncio.sleep(0.02)
            yield whole(200, "\n".join(json.dumps(asdict(entry)) for entry in self.books))
        else:
            yield whole(404, f"404 page not found: {method} {path}", "text/plain")

    async def _acted(self, turn: Turn) -> AsyncIterator[bytes | None]:
        behaviour, rng = turn.entry.behaviour, turn.rng
        if behaviour == "slow":
            await asyncio.sleep(SLOW_SECONDS if "impatient" in turn.body["model"] else rng.uniform(0.001, 0.02))
        if behaviour == "hangup_before":
            if rng.random() < 0.5:
                yield None
            return
        turned_away = refusal(behaviour, rng)
        if turned_away is not None:
            yield turned_away
            return
        reply = self._reply(turn)
        if behaviour == "garbage":
            reply = whole(200, talk.garbage(rng))
        elif behaviour in ("hangup_within", "reset_within"):
            reply = reply[: rng.randint(1, len(reply) - 1)]
        elif behaviour == "hangup_after" and not turn.streamed:
            reply = reply.replace(b"Content-Length: ", b"Content-Length: 1", 1)  # more was promised than there is
        elif behaviour == "hangup_after":
            reply = reply.removesuffix(b"0\r\n\r\n")
        yield reply
        if behaviour == "reset_within" or (behaviour == "hangup_after" and rng.random() < 0.5):
            yield None

    @staticmethod
    def _reply(turn: Turn) -> bytes:
        if turn.entry.embeds:
            return whole(200, vectors(turn))
        return stream(turn) if turn.streamed else whole(200, one_object(turn, {"done": True}))


def _shared(a: bytes, b: bytes) -> int:
    """How many bytes both begin with; a cache is used up to there."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


# -- connections ------------------------------------------------------------------------------------------------------

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _handler(server: Server) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.active += 1
        try:
            await _serve(server, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left; what was read stands in the books
        finally:
            server.active -= 1
            writer.close()

    return handle


async def _serve(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, path, _ = head.split(" ", 2)
    length = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
    body = await reader.readexactly(int(length[1])) if length else b""
    async for piece in server.answer(method, path, body):
        if piece is None:
            await asyncio.sleep(0.001)  # what was sent before should arrive before the reset
            _reset(writer)
            return
        writer.write(piece)
        await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = cast(socket.socket, writer.get_extra_info("socket"))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001  asyncio's signature
    _reset(writer)


async def _main(seed: int) -> None:
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    server = await asyncio.start_server(_handler(Server(seed)), "127.0.0.1", 0, backlog=256)
    slammer = await asyncio.start_server(_slam, "127.0.0.1", 0, backlog=256)
    ports = [listening.sockets[0].getsockname()[1] for listening in (server, slammer)]
    print(json.dumps({"port": ports[0], "reset_port": ports[1]}), flush=True)

    def wait_for_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=wait_for_end, daemon=True).start()
    await done.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    asyncio.run(_main(parser.parse_args().seed))
