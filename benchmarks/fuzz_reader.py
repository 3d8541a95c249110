"""Does any reply break the reader? Replies of real forms, mutated by seed, and a megabyte of every marker.

    python -m benchmarks.fuzz_reader --inputs 1000000 --seed 7 --jobs 1

Three promises are held against each input: nothing but the model's or the server's fault is raised, no tool is named
that was not offered nor an argument given that its schema refuses, and it takes no long time. An input is made from
its seed and number alone, so `--first N --inputs 1` makes it again. Exit code 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from agent.errors import BackendError, ModelError
from agent.llm.arguments import read_arguments
from agent.llm.backends.base import Envelope, RawReply
from agent.llm.envelopes import decode, usage_of
from agent.llm.replies import read_reply
from agent.llm.schemas import first_mismatch
from benchmarks.fuzz_texts import MARKERS, mutated

CASES = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "wire" / "cases.jsonl"
MAX_INPUT_SECONDS = 2.0  # of CPU; an input is at most some thousand characters
MAX_MEGABYTE_SECONDS = 1.0
MEGABYTE = 1_000_000
LONGEST_MESSAGE = 2000  # characters that an error may tell a model
CHUNK = 500
SHOWN = 10


class TooSlowError(BaseException):
    """Raised into the reader by the CPU's timer. Not an Exception, so that no reader takes it for its own."""


@dataclass(frozen=True)
class Seed:
    """One recorded reply: its text or its HTTP body, and the tools that were offered with it."""

    text: str
    tools: tuple[dict[str, Any], ...]
    schema: dict[str, Any] | None = None
    body: RawReply | None = None


Reader = Callable[[Seed, str, str | None], bool]


@dataclass
class Seen:
    """What a number of inputs came to."""

    inputs: int = 0
    used: int = 0  # of which something could be used
    seconds: float = 0.0  # of CPU, for reading
    slowest: float = 0.0
    slowest_number: int = -1
    failures: list[str] = field(default_factory=list)

    def add(self, other: Seen) -> None:
        """Take another part's figures into these."""
        self.inputs += other.inputs
        self.used += other.used
        self.seconds += other.seconds
        if other.slowest > self.slowest:
            self.slowest, self.slowest_number = other.slowest, other.slowest_number
        self.failures += other.failures


# -- one input --------------------------------------------------------------------------------------------------------


@cache
def seeds() -> tuple[Seed, ...]:
    """The recorded cases, read once."""
    return tuple(_seed(json.loads(line)) for line in CASES.read_text(encoding="utf-8").splitlines())


def _seed(case: dict[str, Any]) -> Seed:
    tools = tuple(_definition(tool) for tool in case["tools"]) or _ODD_TOOLS
    http = case.get("http")
    if http is None:
        return Seed(case["raw"], tools, case.get("schema"))
    body = RawReply(
        http["endpoint"], http["status"], http["content_type"], case["raw"], bool(http.get("stream")), seconds=0.0
    )
    return Seed(case["raw"], tools, case.get("schema"), body)


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    properties = {name: {"type": given["type"]} for name, given in tool["params"].items()}
    required = [name for name, given in tool["params"].items() if given["required"]]
    return _tool(tool["name"], properties, required)


def _tool(name: str, properties: dict[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


_ODD_TOOLS = (
    _tool("clock", {"timezone": {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "null"}]}}),
    _tool("tag", {"name": {"enum": ["a", "b"]}, "args": {"type": "array", "items": {"type": "integer"}}}, ["name"]),
    _tool("note", {"payload": {"type": "object", "properties": {"n": {"type": "number"}}}}, ["payload"]),
    _tool("get_weather", {"city": {"type": "string"}, "days": {"type": ["integer", "null"]}}, ["city"]),
)


def examine(seed: int, number: int, seen: Seen, readers: Sequence[Reader]) -> None:
    """Make one input, read it in every way, and note what broke."""
    rng = random.Random(f"{seed}:{number}")
    base, other = rng.choice(seeds()), rng.choice(seeds())
    text = mutated(rng, base.text, other.text)
    finish = rng.choice(("stop", "length", "tool_calls", None))
    seen.inputs += 1
    began = time.process_time()
    try:
        with _cpu_limit():
            ways = [read(base, text, finish) for read in readers]  # all of them, whatever the first can use
        seen.used += any(ways)
    except (Exception, TooSlowError) as error:  # noqa: BLE001  # whatever it is, that is what is looked for
        seen.failures.append(f"input {number}: {type(error).__name__}: {error!s:.300}\n    {text!r:.600}")
    seconds = time.process_time() - began
    seen.seconds += seconds
    if seconds > seen.slowest:
        seen.slowest, seen.slowest_number = seconds, number


@contextlib.contextmanager
def _cpu_limit() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise TooSlowError(f"more than {MAX_INPUT_SECONDS:g} s of CPU")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MAX_INPUT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _read_reply(base: Seed, text: str, finish: str | None) -> bool:
    return _check_reply(Envelope(content=text, finish=finish), base.tools, None)


def _read_contract(base: Seed, text: str, finish: str | None) -> bool:
    return _check_reply(Envelope(content=text, finish=finish), (), base.schema or {"type": "object"})


def _read_native(base: Seed, text: str, finish: str | None) -> bool:
    """The text as the arguments of a native call, and its beginning as a name."""
    names = [*(tool["function"]["name"] for tool in base.tools), text[:60]]
    calls = [{"id": None, "index": 0, "name": name, "arguments": text} for name in names]
    return _check_reply(Envelope(native_calls=calls, finish=finish), base.tools, None)


def _read_body(base: Seed, text: str, _finish: str | None) -> bool:
    """The text as the body of an HTTP reply of the seed's kind."""
    if base.body is None:
        return False
    raw = RawReply(base.body.endpoint, base.body.status, base.body.content_type, text, base.body.streamed, seconds=0.0)
    usage_of(raw)
    try:
        envelope = decode(raw)
    except (ModelError, BackendError) as error:
        _check_message(error)
        return False
    return _check_reply(envelope, base.tools, base.schema)


def _read_arguments(base: Seed, text: str, finish: str | None) -> bool:
    used = False
    for tool in base.tools:
        function = tool["function"]
        for name in (function["name"], None):
            try:
                found = read_arguments(text, function["parameters"], tool=name, finish=finish)
            except ModelError as error:
                _check_message(error)
            else:
                _check_arguments(found.arguments, function["parameters"])
                used = True
    return used


READERS: tuple[Reader, ...] = (_read_reply, _read_contract, _read_native, _read_body, _read_arguments)


def _check_reply(envelope: Envelope, tools: tuple[dict[str, Any], ...], schema: dict[str, Any] | None) -> bool:
    """Whether something of it can be used. What may not be raised, or given out, ends in an exception."""
    offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    try:
        reply = read_reply(envelope, tools=tools, schema=schema)
    except ModelError as error:
        _check_message(error)
        return False
    for fault in reply.faults:
        _check_message(fault)
    for call in reply.calls:
        if call.name not in offered:
            raise AssertionError(f"a call of {call.name!r}, which was not offered")
        _check_arguments(call.arguments, offered[call.name])
    if schema is not None and not reply.outcomes and first_mismatch(reply.answer, schema) is not None:
        raise AssertionError("an answer that its schema refuses")
    return True


def _check_arguments(arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    mismatch = first_mismatch(arguments, schema)
    if mismatch is not None:
        raise AssertionError(f"arguments that their schema refuses: {mismatch}")
    json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode("utf-8")


def _check_message(error: Exception) -> None:
    if not 0 < len(str(error)) <= LONGEST_MESSAGE:
        raise AssertionError(f"an error with a message of {len(str(error))} characters")


# -- many inputs ------------------------------------------------------------------------------------------------------


def fuzz(seed: int, first: int, inputs: int, jobs: int) -> Seen:
    """Examine inputs `first` to `first + inputs - 1`."""
    total = Seen()
    chunks = [(seed, begin, min(CHUNK, first + inputs - begin)) for begin in range(first, first + inputs, CHUNK)]
    for part in _parts(chunks, jobs):
        total.add(part)
    return total


def _parts(chunks: Iterable[tuple[int, int, int]], jobs: int) -> Iterator[Seen]:
    if jobs == 1:
        yield from map(_chunk, chunks)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(_chunk, chunks)


def _chunk(chunk: tuple[int, int, int]) -> Seen:
    seed, first, inputs = chunk
    seen = Seen()
    for number in range(first, first + inputs):
        examine(seed, number, seen, READERS)
    return seen


def megabytes() -> list[tuple[float, str]]:
    """CPU seconds of the slowest way to read a megabyte of each marker, behind each opening; the slowest first."""
    ways = (_read_reply, _read_contract, _read_one)
    found = []
    for opening in MARKERS.openings:
        for marker in MARKERS.all:
            text = opening + marker * (MEGABYTE // len(marker)) + MARKERS.closed.get(opening, "")
            found.append((max(_seconds(read, text) for read in ways), opening + marker))
    return sorted(found, reverse=True)


def _read_one(_base: Seed, text: str, finish: str | None) -> bool:
    """Once, for one tool: an extraction call is about no more."""
    try:
        read_arguments(text, _ODD_TOOLS[-1]["function"]["parameters"], tool="get_weather", finish=finish)
    except ModelError:
        return False
    return True


def _seconds(read: Reader, text: str) -> float:
    began = time.process_time()
    read(Seed("", _ODD_TOOLS), text, "stop")
    return time.process_time() - began


def report(seen: Seen, seconds: float, slow: Sequence[tuple[float, str]]) -> tuple[str, bool]:
    """The figures in words, and whether every promise was kept."""
    rate = seen.inputs / max(seen.seconds, 1e-9)
    lines = [
        f"{seen.inputs:,} inputs in {seconds:,.0f} s",
        f"{seen.seconds:,.0f} s of CPU went into reading them in {len(READERS)} ways each, {rate:,.0f} inputs a second",
        f"of {seen.used / max(seen.inputs, 1):.0%} something could be used",
        f"slowest: input {seen.slowest_number}, {seen.slowest * 1000:.0f} ms of CPU",
        *seen.failures[:SHOWN],
        f"{'PASS' if not seen.failures else 'FAIL'}  {len(seen.failures)} inputs broke a promise",
    ]
    fast = True
    if slow:
        worst, marker = slow[0]
        fast = worst < MAX_MEGABYTE_SECONDS
        lines += [
            f"{len(slow)} megabytes of markers; the slowest: {worst:.2f} s of CPU for {marker!r} over and over",
            f"{'PASS' if fast else 'FAIL'}  each under {MAX_MEGABYTE_SECONDS:g} s",
        ]
    return "\n".join(lines), fast and not seen.failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, print the figures, and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_reader", description=__doc__.split("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--no-megabytes", action="store_true", help="leave out the megabyte of each marker")
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    seen = fuzz(given.seed, given.first, given.inputs, given.jobs)
    seconds = time.perf_counter() - began
    text, kept = report(seen, seconds, [] if given.no_megabytes else megabytes())
    print(text)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
