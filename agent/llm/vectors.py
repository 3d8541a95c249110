"""Texts as vectors: an embedding model's reply off the wire -> its vectors, or whose fault it is that there are none.

Two wrappings: Ollama's `/api/embed` and `/v1/embeddings`. A trace keeps such a reply without its vectors, which are
large and of which nothing but the ranking they led to matters; what it keeps in their place is their number and their
length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.errors import BackendError
from agent.llm.backends.base import RawReply
from agent.llm.envelopes import object_of
from agent.llm.wire_values import as_dict, as_whole

Vector = list[float]
MAX_NUMBERS = 2**22  # of all vectors of a reply; the longest vectors in use have some thousand
_KEPT = {"vectors", "length"}


def read_vectors(reply: RawReply, count: int) -> list[Vector]:
    """One vector a text, in the order of the texts, all of one length.

    Raises:
        BackendError: the server refused, or what came is not `count` vectors.
        RequestError: our request was wrong.
    """
    found = _in_order(object_of(reply), reply)
    vectors = [_vector(value) for value in found] if found is not None else []
    length = len(vectors[0]) if vectors else 0
    is_even = length > 0 and all(len(vector) == length for vector in vectors)
    if len(vectors) != count or not is_even or count * length > MAX_NUMBERS:
        raise BackendError("bad_reply", f"{reply.endpoint} gave no {count} vectors of one length for {count} texts")
    return vectors


def without_vectors(reply: RawReply) -> RawReply:
    """The reply as a trace keeps it. One that holds no vectors is kept as it came."""

    def counted(value: Any) -> Any:
        return {"vectors": len(value), "length": len(value[0])} if _are_vectors(value) else value

    return _changed(reply, counted)


def with_blank_vectors(reply: RawReply) -> RawReply:
    """A kept reply as it may have come off the wire, with vectors that say nothing."""

    def blank(value: Any) -> Any:
        kept = as_dict(value)
        count, length = as_whole(kept.get("vectors")), as_whole(kept.get("length"))
        if kept.keys() != _KEPT or not count or not length or count * length > MAX_NUMBERS:
            return value
        return [[0.0] * length for _ in range(count)]

    return _changed(reply, blank)


def _changed(reply: RawReply, change: Callable[[Any], Any]) -> RawReply:
    """The reply with the place of its vectors changed. In `/v1` each stands in an object of its own."""
    try:
        body = json.loads(reply.body)
    except (ValueError, RecursionError):
        return reply
    name = "data" if _is_v1(reply) else "embeddings"
    if reply.status >= 300 or not isinstance(body, dict) or name not in body:
        return reply
    before = _embeddings(body[name]) if _is_v1(reply) else body[name]
    after = change(before)
    if after is before:
        return reply
    if _is_v1(reply) and isinstance(after, list):
        after = [{"index": place, "embedding": vector} for place, vector in enumerate(after)]
    return replace(reply, body=json.dumps({**body, name: after}))


def _in_order(body: dict[str, Any], reply: RawReply) -> list[Any] | None:
    found = _embeddings(body.get("data")) if _is_v1(reply) else body.get("embeddings")
    return found if isinstance(found, list) else None


def _embeddings(data: Any) -> Any:
    """The vectors of a `/v1` list, by the `index` of each where all have one; what is no such list as it is."""
    if not isinstance(data, list) or not data or not all(isinstance(item, dict) for item in data):
        return data
    places = [as_whole(item.get("index")) for item in data]
    known = [place for place in places if place is not None]
    ordered = sorted(data, key=lambda item: int(item["index"])) if len(set(known)) == len(data) else data
    return [item.get("embedding") for item in ordered]


def _are_vectors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, list) and item for item in value)


def _vector(value: Any) -> Vector:
    """The numbers of a vector; none where it is no vector."""
    numbers = value if isinstance(value, list) else []
    plain = [float(n) for n in numbers if isinstance(n, int | float) and not isinstance(n, bool) and abs(n) < math.inf]
    return plain if len(plain) == len(numbers) else []


def _is_v1(reply: RawReply) -> bool:
    return reply.endpoint.startswith("/v1/")
