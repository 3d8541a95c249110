"""The bodies that the storm's server sends: replies with their counts, streams, refusals."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from benchmarks import storm_talk as talk

CHUNK_BYTES = 48


@dataclass
class Entry:
    """One request that was read, as this server counts it. Written down before a word is sent back.

    Where it `embeds`, texts were to become vectors: then `prompt` counts them, and there is no completion.
    """

    run: int
    call: int
    num_predict: int
    prompt: int
    completion: int
    behaviour: str
    embeds: bool = False


@dataclass
class Turn:
    """One request being answered."""

    body: dict[str, Any]
    entry: Entry
    rng: random.Random
    content: str = ""
    thinking: str = ""
    cut: bool = False

    @property
    def streamed(self) -> bool:
        """Whether the client wants one object a line."""
        return bool(self.body.get("stream", True)) and not self.entry.embeds


def refusal(behaviour: str, rng: random.Random) -> bytes | None:
    """The reply of a server that turns a request away; None where it does not."""
    if behaviour == "busy":
        return whole(503, '{"error": "server busy, please try again.  maximum pending requests exceeded"}')
    if behaviour == "crash":
        return whole(500, '{"error": "llama runner process has terminated: signal: killed"}')
    if behaviour == "gateway":
        return whole(rng.choice((502, 504)), "<html><body>Bad Gateway</body></html>", "text/html")
    if behaviour == "refused_request":
        return whole(400, '{"error": "json: cannot unmarshal string into Go value"}')
    if behaviour == "tool_call_error":
        return whole(500, '{"error": "error parsing tool call: raw=\'{\'"}')
    if behaviour == "redirect":
        return whole(307, "", "text/plain", extra="Location: /api/chat\r\n")
    return None


def _counts(turn: Turn) -> str:
    """The counts as JSON members, as far as this server gives them."""
    behaviour, entry = turn.entry.behaviour, turn.entry
    prompt, completion = str(entry.prompt), str(entry.completion)
    if behaviour == "odd_counts":
        prompt, completion = talk.odd_count(turn.rng), talk.odd_count(turn.rng)
    elif behaviour == "zero_counts":
        prompt, completion = "0", "0"
    members = []
    if entry.prompt and behaviour not in ("no_counts", "no_prompt_count", "over_cap_no_prompt_count", "no_end"):
        members.append(f'"prompt_eval_count": {prompt}')
    if entry.completion and behaviour not in ("no_counts", "no_completion_count", "no_end"):
        members.append(f'"eval_count": {completion}')
    return ", ".join(members)


def one_object(turn: Turn, end: dict[str, Any]) -> str:
    """The one object of a reply that is no stream."""
    if turn.entry.behaviour == "load":
        return '{"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "load"}'
    message = {"role": "assistant", "content": turn.content}
    if turn.thinking:
        message["thinking"] = turn.thinking
    end = {"done": False} if turn.entry.behaviour == "no_end" else {**end, "done_reason": _reason(turn)}
    members = json.dumps({"model": turn.body["model"], "message": message, **end})
    counts = _counts(turn)
    return f"{members[:-1]}, {counts}}}" if counts else members


def vectors(turn: Turn) -> str:
    """The one object of a reply that holds vectors."""
    found = talk.vectors(turn.rng, len(turn.body["input"]), turn.entry.behaviour)
    members = json.dumps({"model": turn.body["model"], "embeddings": found, "total_duration": 21_500_000})
    counts = _counts(turn)
    return f"{members[:-1]}, {counts}}}" if counts else members


def _reason(turn: Turn) -> str:
    return "length" if turn.cut else "stop"


def stream(turn: Turn) -> bytes:
    """The lines of a streamed reply, chunked."""
    lines, behaviour, said = [], turn.entry.behaviour, 0
    for piece in (turn.content[at : at + CHUNK_BYTES] for at in range(0, len(turn.content), CHUNK_BYTES)):
        line = json.dumps({"message": {"role": "assistant", "content": piece}, "done": False})
        if behaviour == "running_counts":  # true at this point of the reply, and less than it comes to
            said += len(piece)
            so_far = max(1, turn.entry.completion * said // len(turn.content))
            line = f'{line[:-1]}, "prompt_eval_count": {turn.entry.prompt}, "eval_count": {so_far}}}'
        lines.append(line)
    if behaviour == "error_line":
        lines = [*lines[: len(lines) // 2], '{"error": "an error was encountered while running the model"}']
    elif behaviour == "running_counts":
        lines = lines[: max(1, len(lines) // 2)]
    elif behaviour != "no_end":
        last = turn if behaviour == "load" else Turn(turn.body, turn.entry, turn.rng, "", turn.thinking, turn.cut)
        lines.append(one_object(last, {"done": True}))
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(data), data) for data in (f"{line}\n".encode() for line in lines))
    return _head(200, "application/x-ndjson", "Transfer-Encoding: chunked\r\n") + chunks + b"0\r\n\r\n"


def _head(status: int, content_type: str, extra: str) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\n{extra}Connection: close\r\n\r\n".encode()


def whole(status: int, body: str, content_type: str = "application/json", extra: str = "") -> bytes:
    """An HTTP reply in one piece."""
    data = body.encode("utf-8", "replace")
    return _head(status, content_type, f"{extra}Content-Length: {len(data)}\r\n") + data
