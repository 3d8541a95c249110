"""A server with Ollama's API, on a real socket, that answers as a competent model would.

It knows the plan of each case and nothing of any strategy: what is wanted it takes from the request (the tools, the
schema, the stop words, the system message), and how far the work has come from what the prompt says.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tests.support_plans import Action, Plans, Turn
from tests.support_wire import Seen, Wire, chunk, chunked_head, http_reply, serving

MODEL = "competent:1b"
VERSION = "0.32.1"
BYTES_PER_TOKEN = 4
NO_TOOL = "none"
REPLIES = itertools.count()


@dataclass(frozen=True)
class Said:
    """What the model writes: text, or calls in the server's own form."""

    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


def competent(plans: Plans, *, tools: bool = True) -> AbstractContextManager[Wire]:
    """The server, with a model that can call tools or cannot."""
    return serving(_Ollama(plans, tools=tools).answer)


# -- the model --------------------------------------------------------------------------------------------------------


def think(plans: Plans, prompt: str, request: dict[str, Any]) -> Said:
    """What is said to a prompt, from the shape of the request.

    Raises:
        LookupError: the prompt is about no case, or something is asked that no plan gives.
    """
    turn, seen = plans.place(prompt)
    left = turn.left(seen)
    options = request.get("options", {})
    if request.get("tools"):
        return _native(turn, left)
    if (schema := request.get("format")) is not None:
        return Said(json.dumps(_filled(schema, turn, left)))
    if "</think>" in options.get("stop", ()):
        return Said(f"Next I use {left[0][0].tool}." if left else "All is done, so I can give the answer.")
    if left and "<tool_call>" in prompt.partition(turn.text)[0]:
        call = {"name": left[0][0].tool, "arguments": left[0][0].args}
        return Said(f"<tool_call>\n{json.dumps(call)}\n</tool_call>")
    return Said(_answer(turn, left))


def _native(turn: Turn, left: tuple[tuple[Action, ...], ...]) -> Said:
    if not left:
        return Said(_answer(turn, left))
    functions = ({"index": at, "name": act.tool, "arguments": act.args} for at, act in enumerate(left[0]))
    return Said(calls=[{"id": f"call_{at:08d}", "function": function} for at, function in enumerate(functions)])


def _answer(turn: Turn, left: tuple[tuple[Action, ...], ...]) -> str:
    """The answer; but a model that has not seen what it rests on does not know it."""
    missing = [action for group in left for action in group if action.shows is not None]
    if missing:
        return f"I have not seen the result of {missing[0].tool}."
    if turn.answer is None:
        raise LookupError(f"the model was not to be asked for an answer to: {turn.text}")
    return turn.answer


def _filled(schema: dict[str, Any], turn: Turn, left: tuple[tuple[Action, ...], ...]) -> Any:
    """The value that a schema asks for."""
    if schema.get("type") == "array":
        return _actions(schema, turn, left)
    variants = schema.get("anyOf", [schema])
    names = {name for variant in variants for name in variant["properties"]}
    if "final_answer" in names:
        can_act = any(variant["properties"]["action"] != {"type": "null"} for variant in variants)
        return _react(turn, left if can_act else ())
    choices = schema["properties"].get("tool", {}).get("enum")
    if choices:
        return _choice(schema, choices, left)
    if not left:
        raise LookupError(f"arguments are asked for, and no call is due: {sorted(names)}")
    return left[0][0].args


def _react(turn: Turn, left: tuple[tuple[Action, ...], ...]) -> dict[str, Any]:
    action = {"tool": left[0][0].tool, "args": left[0][0].args} if left else None
    thought = f"I use {left[0][0].tool}." if left else "I have all I need."
    answer = None if left else _answer(turn, left)
    return {"progress_check": "on_track", "thought": thought, "action": action, "final_answer": answer}


def _choice(schema: dict[str, Any], choices: list[str], left: tuple[tuple[Action, ...], ...]) -> dict[str, Any]:
    chosen = {"tool": left[0][0].tool if left and left[0][0].tool in choices else NO_TOOL}
    return chosen | ({"enough": sum(map(len, left)) <= 1} if "enough" in schema["properties"] else {})


def _actions(schema: dict[str, Any], turn: Turn, left: tuple[tuple[Action, ...], ...]) -> list[dict[str, Any]]:
    """An array of calls. The end of the work goes along where nothing has to be read for it any more."""
    only_finish = len(schema["items"].get("anyOf", [schema["items"]])) == 1
    group = left[0] if left and not only_finish else ()
    actions = [{"tool": action.tool, "args": action.args} for action in group]
    is_last = len(left) <= 1 and all(action.tool == "write_file" for action in group)
    if not is_last and not only_finish:
        return actions
    return [*actions, {"tool": "finish", "args": {"summary": _answer(turn, () if group else left)}}]


# -- the server -------------------------------------------------------------------------------------------------------


class _Ollama:
    """Ollama's API around the model. Its template is ChatML."""

    def __init__(self, plans: Plans, *, tools: bool) -> None:
        self._plans = plans
        self._capabilities = ["completion", *(["tools"] if tools else [])]

    def answer(self, seen: Seen) -> Iterator[bytes]:
        known = {"/api/version": {"version": VERSION}, "/api/tags": {"models": [self._tag()]}}
        if seen.method == "GET" and seen.path in known:
            yield http_reply(json.dumps(known[seen.path]))
        elif seen.path == "/api/show":
            yield http_reply(json.dumps(self._show()))
        elif seen.path in ("/api/chat", "/api/generate"):
            yield from self._generating(seen.path, seen.json)
        else:
            yield http_reply("404 page not found", status=404, content_type="text/plain")

    def _tag(self) -> dict[str, Any]:
        details = {"family": "llama", "parameter_size": "1B", "quantization_level": "Q4_K_M"}
        return {"name": MODEL, "model": MODEL, "digest": "c0ffee" * 10, "size": 800_000_000, "details": details}

    def _show(self) -> dict[str, Any]:
        info = {"general.architecture": "llama", "llama.context_length": 32768}
        return {"capabilities": self._capabilities, "model_info": info, "template": "{{ .Prompt }}"}

    def _generating(self, path: str, request: dict[str, Any]) -> Iterator[bytes]:
        if request.get("tools") and "tools" not in self._capabilities:
            yield _refused(400, f"registry.ollama.ai/library/{MODEL} does not support tools")
            return
        prompt = request["prompt"] if path == "/api/generate" else _rendered(request)
        if request.get("_debug_render_only"):
            yield http_reply(json.dumps(_line("", done=False) | {"_debug_info": {"rendered_template": prompt}}))
            return
        try:
            said = think(self._plans, prompt, request)
        except LookupError as error:
            yield _refused(500, f"the competent model is at a loss: {error}")
            return
        yield from _written(path, prompt, request, said)


def _rendered(request: dict[str, Any]) -> str:
    """The conversation in ChatML; a last message of the model's own is left open."""
    tools = f"Tools: {json.dumps(request['tools'])}\n" if request.get("tools") else ""
    texts = [
        f"<|im_start|>{message['role']}\n{message['content']}"
        + (json.dumps(message["tool_calls"]) if "tool_calls" in message else "")
        for message in request["messages"]
    ]
    ending = "" if request["messages"][-1]["role"] == "assistant" else "<|im_end|>\n<|im_start|>assistant\n"
    return tools + "<|im_end|>\n".join(texts) + ending


def _written(path: str, prompt: str, request: dict[str, Any], said: Said) -> Iterator[bytes]:
    """The reply within `num_predict`, whole or as a stream, with its counts."""
    cap = request["options"]["num_predict"] * BYTES_PER_TOKEN
    text, is_cut = said.text.encode()[:cap].decode(errors="ignore"), len(said.text.encode()) > cap
    written = len(text.encode()) + sum(len(json.dumps(call)) for call in said.calls)
    counts = {
        "done_reason": "length" if is_cut else "stop",
        "prompt_eval_count": -(-len(prompt.encode()) // BYTES_PER_TOKEN),
        "eval_count": max(1, -(-written // BYTES_PER_TOKEN)),
    }
    if not request["stream"]:
        yield http_reply(json.dumps(_said(path, text, said.calls, done=True) | counts))
        return
    yield chunked_head()
    for piece in (text[at : at + 40] for at in range(0, len(text), 40)):
        yield chunk(json.dumps(_said(path, piece, [], done=False)).encode() + b"\n")
    if said.calls:
        yield chunk(json.dumps(_said(path, "", said.calls, done=False)).encode() + b"\n")
    yield chunk(json.dumps(_said(path, "", [], done=True) | counts).encode() + b"\n")
    yield chunk(b"")


def _said(path: str, text: str, calls: list[dict[str, Any]], *, done: bool) -> dict[str, Any]:
    if path == "/api/generate":
        return {"model": MODEL, "created_at": _now(), "response": text, "done": done}
    line = _line(text, done=done)
    if calls:
        line["message"]["tool_calls"] = calls
    return line


def _line(text: str, *, done: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"model": MODEL, "created_at": _now(), "message": message, "done": done}


def _now() -> str:
    """A time that no other line has."""
    return f"2026-03-14T09:26:53.{next(REPLIES):06d}Z"


def _refused(status: int, error: str) -> bytes:
    return http_reply(json.dumps({"error": error}), status=status)
