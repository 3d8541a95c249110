"""Servers of embedding models for tests: one made of bytes, to which some words mean the same, and llama.cpp itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agent.config import EMBEDDED_MODEL
from tests.support_wire import Answer, Seen, http_reply

MODEL = "nomic-embed-text:latest"
KEY = "embedding-key-5531"
MEANINGS = (("mammal", "whale"), ("port", "harbour"), ("bread", "bakery"))
Body = Callable[[Sequence[str]], dict[str, Any]]

# llama.cpp with the model in the box, which is none for embeddings: its vectors are means over a text's tokens.
_LLAMA = """
import json, os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port, params.ui = sys.argv[1], ["127.0.0.1"], 0, False
params.embedding, params.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
params.n_ctx = params.n_batch = params.n_ubatch = 2048
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.verbosity = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""


def vectors(texts: Sequence[str]) -> list[list[float]]:
    """How often each text speaks of each meaning; the last number keeps a text without any from being nothing."""
    return [[float(sum(text.lower().count(word) for word in words)) for words in MEANINGS] + [0.1] for text in texts]


def tokens(texts: Sequence[str]) -> int:
    """A count as a server would give it: four bytes a token, and two around each text."""
    return sum(len(text.encode()) // 4 + 3 for text in texts)


def ollama_body(texts: Sequence[str]) -> dict[str, Any]:
    """What `/api/embed` answers."""
    return {
        "model": MODEL,
        "embeddings": vectors(texts),
        "total_duration": 21500000,
        "load_duration": 900000,
        "prompt_eval_count": tokens(texts),
    }


def v1_body(texts: Sequence[str]) -> dict[str, Any]:
    """What `/v1/embeddings` answers; its parts come in no order."""
    data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors(texts))]
    usage = {"prompt_tokens": tokens(texts), "total_tokens": tokens(texts)}
    return {"object": "list", "model": MODEL, "data": data[::-1], "usage": usage}


def embedding_model(body: Body = ollama_body, replies: Iterable[bytes] = ()) -> Answer:
    """A server of one embedding model. `replies` come first, in place of vectors."""
    first = iter(replies)

    def answer(seen: Seen) -> list[bytes]:
        if seen.path == "/api/tags":
            return [http_reply(json.dumps({"models": [{"name": MODEL, "digest": "ab" * 32, "details": {}}]}))]
        if seen.path == "/v1/models":
            return [http_reply(json.dumps({"data": [{"id": MODEL}]}))]
        if seen.path == "/api/version":
            return [http_reply(json.dumps({"version": "0.32.1"}))]
        if seen.path == "/api/show":
            return [http_reply(json.dumps({"capabilities": ["embedding"]}))]
        if seen.path not in ("/api/embed", "/v1/embeddings"):
            return [http_reply(json.dumps({"error": "no such path"}), status=404)]
        other = next(first, None)
        return [http_reply(json.dumps(body(seen.json["input"]))) if other is None else other]

    return answer


@contextmanager
def llama() -> Iterator[str]:
    """The address of a llama.cpp that embeds with the model in the box, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LLAMA, str(EMBEDDED_MODEL)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
