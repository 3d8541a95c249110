"""A server that answers every call with one of the worst replies of `fixtures/wire/cases.jsonl`, for ever, or of the
file named by WIRE_CASES.

Whatever the strategy, each run ends inside its ten calls and says why, its trace keeps its promises, and nothing is
raised. The run is offered the tools that the case speaks of, so that its calls are made and not only refused.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, create_model

from agent.llm.backends.base import Backend
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.strategies.registry import STRATEGIES
from agent.tools.base import Params, Tool, ToolContext
from agent.tools.registry import TOOLSETS
from evals.plan import ASKS_FOR_EVIDENCE
from evals.verify import verify
from tests.support_named import cases_named_by
from tests.support_runs import finished, new_run
from tests.support_wire import FIXTURES, Seen, Wire, body_in_pieces, http_reply, serving

CASES: list[dict[str, Any]] = cases_named_by("WIRE_CASES", FIXTURES / "cases.jsonl")
MODEL = "worst:1b"
TOOLSET = "wire"
REPLIES = itertools.count()
V1 = "/v1/chat/completions"
TYPES: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
WEATHER = {"name": "get_weather", "params": {"city": {"type": "string", "required": True}}}
# What a server may tell of a model; an old one tells nothing.
CAPABILITIES: dict[str, Any] = {
    "tools": {"capabilities": ["completion", "tools"]},
    "no-tools": {"capabilities": ["completion"]},
    "nothing": {},
}
WAYS = [
    (strategy, told)
    for strategy in STRATEGIES
    for told in (CAPABILITIES if strategy in ("native", "auto") else ["tools"])
]
# The server may be at fault, and the run invalid; but the run never goes on, and is never one that the person stopped.
ENDINGS = {"completed", "budget_exhausted", "loop_detected", "timeout", "error"}


# -- the server -------------------------------------------------------------------------------------------------------


def worst(seen: Seen) -> Iterator[bytes]:
    """What the server says: the path begins with the case's place and with what the server tells of its model."""
    _, place, told, path = seen.path.split("/", 3)
    case = CASES[int(place)]
    known = {
        "api/version": {"version": "0.32.1"},
        "api/tags": {"models": [{"name": MODEL, "model": MODEL, "digest": "bad" * 20, "details": {}}]},
        "api/show": CAPABILITIES[told],
        "v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model"}]},
    }
    if path in known:
        yield http_reply(json.dumps(known[path]))
    elif seen.json.get("_debug_render_only"):
        rendered = json.dumps(seen.json["messages"])
        yield http_reply(json.dumps({"message": {}, "done": False, "_debug_info": {"rendered_template": rendered}}))
    elif "http" in case:
        yield from _as_it_stands(case)
    else:
        yield _wrapped(case["raw"], f"/{path}", seen.json)


def _as_it_stands(case: dict[str, Any]) -> list[bytes]:
    """The case's own bytes, cut as it says, but for the time at which a server wrote them."""
    number = next(REPLIES)
    pieces = [base64.b64decode(piece) for piece in case.get("chunks_b64", ())]
    pieces = pieces or [piece.encode() for piece in case.get("chunks", ())]
    body, *pieces = (_stamped(piece, number) for piece in (case["raw"].encode(), *pieces))
    http = case["http"]
    return body_in_pieces(body, pieces, status=http["status"], content_type=http["content_type"])


def _stamped(body: bytes, number: int) -> bytes:
    """A body with a time of its own: a verifier takes one that comes twice for a copied call."""
    body = body.replace(b"T10:00:00.000000Z", b"T10:00:00.%06dZ" % number)
    return body.replace(b'"created":1767607200', b'"created":%d' % (1767607200 + number))


def _wrapped(text: str, path: str, request: dict[str, Any]) -> bytes:
    """A model's words as an honest server sends them, in one object or one line, with its counts."""
    prompt = request["prompt"] if path == "/api/generate" else json.dumps([request["messages"], request.get("tools")])
    said: dict[str, Any] = {"model": MODEL, "done": True, "done_reason": "stop"}
    said |= {"prompt_eval_count": -(-len(prompt) // 4), "eval_count": max(1, -(-len(text.encode()) // 4))}
    said |= {"response": text} if path == "/api/generate" else {"message": {"role": "assistant", "content": text}}
    kind = "application/x-ndjson" if request["stream"] else "application/json"
    return http_reply(json.dumps(said) + "\n", content_type=kind)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with serving(worst) as wire:
        yield wire


def backend_of(case: dict[str, Any], told: str, wire: Wire) -> Backend:
    url = f"{wire.url}/{CASES.index(case)}/{told}"
    if case.get("http", {}).get("endpoint") == V1:
        return OpenAIBackend(f"{url}/v1", MODEL)
    return OllamaBackend(url, MODEL)


# -- the tools of a case ----------------------------------------------------------------------------------------------


def tool_class(tool: dict[str, Any]) -> type[Tool[Any]]:
    """A tool with a case's name and parameters that always works."""
    fields: dict[str, Any] = {name: _field(name, given) for name, given in tool["params"].items()}

    class Made(Tool[Any]):
        name = tool["name"]
        description = f"Does what {tool['name']} does."
        effect = "read"
        params = create_model("MadeParams", __base__=Params, **fields)

        def run(self, params: Any, context: ToolContext) -> str:
            return f"done with {params.model_dump_json()}"

    return Made


def _field(name: str, given: dict[str, Any]) -> tuple[Any, Any]:
    kinds = [given["type"]] if isinstance(given["type"], str) else given["type"]
    kind = next(TYPES.get(kind, str) for kind in kinds if kind != "null")
    bound = 200 if kind is str else None
    if given["required"]:
        return kind, Field(description=f"The {name} of it.", max_length=bound)
    return kind | None, Field(None, description=f"The {name} of it.", max_length=bound)


# -- the promise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case['kind']}-{case['id']}") for case in CASES])
def test_every_strategy_ends_clearly(
    case: dict[str, Any], wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(TOOLSETS, TOOLSET, tuple(map(tool_class, case["tools"] or [WEATHER])))
    for strategy, told in WAYS:
        run = new_run(
            backend_of(case, told, wire),
            task="What is the weather in Oslo now, and in which file is it noted?",
            strategy_name=strategy,
            tools_named=TOOLSET,
            evidence=strategy in ASKS_FOR_EVIDENCE,
            workspace=tmp_path,
        )
        state = finished(run, tmp_path)
        way = f"{strategy}, told {told}: {state.status} ({state.status_reason})"
        assert state.status in ENDINGS, way
        assert state.status_reason, way
        assert len(state.ledger) <= 10, way
        assert (state.status == "error") == (state.error is not None), way
        assert verify(state) == [], way
