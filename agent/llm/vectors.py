"""Texts as vectors: an embedding model's reply off the wire -> its vectors, or whose fault it is that there are none.

Two wrappings: Ollama's `/api/embed` and `/v1/embeddings`. A trace keeps such a reply without its vectors, which are
large and of which nothing but the ranking they led to matters: in their place stands how long each was
(`{"lengths": [...]}`, -1 for what is no vector). A reply that has another object there keeps it as `{"other": ...}`.
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
_NO_VECTOR = -1


def read_vectors(reply: RawReply, count: int, length: int | None = None) -> list[Vector]:
    """One vector a text, in the order of the texts, all of one length: of `length`, where that is known already.

    Raises:
        BackendError: the server refused, or what came is not `count` vectors of that kind.
        RequestError: our request was wrong.
    """
    body = object_of(reply)
    found = _embeddings(body.get("data")) if _is_v1(reply) else body.get("embeddings")
    vectors = [_vector(value) or [] for value in found] if isinstance(found, list) else []
    due = length or (len(vectors[0]) if vectors else 0)
    is_even = due > 0 and all(len(vector) == due for vector in vectors)
    if len(vectors) != count or not is_even or count * due > MAX_NUMBERS:
        raise BackendError("bad_reply", f"{reply.endpoint} gave no {count} vectors of one length for {count} texts")
    return vectors


def without_vectors(reply: RawReply) -> RawReply:
    """The reply as a trace keeps it, whatever it holds."""

    def kept(value: Any) -> Any:
        if isinstance(value, list):
            lengths = (_vector(item) for item in value)
            return {"lengths": [_NO_VECTOR if vector is None else len(vector) for vector in lengths]}
        return {"other": value} if isinstance(value, dict) else value

    return _changed(reply, kept)


def with_blank_vectors(reply: RawReply) -> RawReply:
    """A kept reply as it may have come off the wire, with vectors that say nothing."""

    def blank(value: Any) -> Any:
        lengths = as_dict(value).get("lengths")
        if not isinstance(lengths, list):
            return as_dict(value).get("other", value)
        counts = [length if isinstance(length, int) else _NO_VECTOR for length in lengths]
        if sum(max(0, count) for count in counts) > MAX_NUMBERS:
            return None  # no reply of that size is read
        return [None if length < 0 else [0.0] * length for length in counts]

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
    after = change(_embeddings(body[name]) if _is_v1(reply) else body[name])
    if _is_v1(reply) and isinstance(after, list):
        after = [{"index": place, "embedding": vector} for place, vector in enumerate(after)]
    return replace(reply, body=json.dumps({**body, name: after}))


def _embeddings(data: Any) -> Any:
    """The vectors of a `/v1` list, by the `index` of each where all have one; what is no such list as it is."""
    if not isinstance(data, list) or not data or not all(isinstance(item, dict) for item in data):
        return data
    places = [as_whole(item.get("index")) for item in data]
    known = [place for place in places if place is not None]
    ordered = sorted(data, key=lambda item: int(item["index"])) if len(set(known)) == len(data) else data
    return [item.get("embedding") for item in ordered]


def _vector(value: Any) -> Vector | None:
    """The numbers of a vector; None where it is no vector."""
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        return None
    try:
        numbers = [float(number) for number in value]
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _is_v1(reply: RawReply) -> bool:
    return reply.endpoint.startswith("/v1/")
