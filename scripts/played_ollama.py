"""A server with Ollama's API on loopback that plays a competent model and keeps what it was sent. No command: the
strategies are recorded against it by `scripts/strategy_table.py`.

It knows one task: the tool that the task needs, and the answer. What is wanted of it, it takes from each request: the
tools, the schema, the stop words; whether the tool was used, from the prompt.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "played:1b"
BYTES_PER_TOKEN = 4
POLL_SECONDS = 0.01  # until it sees that it is to stop


@dataclass(frozen=True)
class Known:
    """What the model knows of its task. `shows` stands in the tool's result and nowhere before it."""

    tool: str
    arguments: dict[str, Any]
    shows: str
    answer: str


@dataclass
class Played:
    """The server's address, and each request for a reply or a rendering: its endpoint and its body."""

    url: str
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@contextmanager
def playing(known: Known, *, tools: bool) -> Iterator[Played]:
    """The server, with a model that can call tools or cannot."""
    played = Played("")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            """Nothing is logged."""

        def do_GET(self) -> None:
            details = {"parameter_size": "1B", "quantization_level": "Q4_K_M"}
            known_paths = {
                "/api/version": {"version": "0.32.1"},
                "/api/tags": {"models": [{"name": MODEL, "model": MODEL, "digest": "0" * 64, "details": details}]},
            }
            self._say(known_paths[self.path])

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/api/show":
                self._say({"capabilities": ["completion", *(["tools"] if tools else [])], "model_info": {}})
                return
            played.seen.append((self.path, body))
            self._say(_reply(known, self.path, body))

        def _say(self, value: object) -> None:
            data = json.dumps(value).encode() + b"\n"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        played.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield played
        finally:
            server.shutdown()
            thread.join()


# -- the model --------------------------------------------------------------------------------------------------------


def _reply(known: Known, path: str, body: dict[str, Any]) -> dict[str, Any]:
    prompt = body["prompt"] if path == "/api/generate" else _rendered(body["messages"])
    if body.get("_debug_render_only"):
        return {"model": MODEL, "_debug_info": {"rendered_template": prompt + "<|im_start|>assistant\n"}}
    text, calls = _said(known, prompt, body)
    counts = {"prompt_eval_count": _tokens(prompt), "eval_count": _tokens(text or json.dumps(calls))}
    reply = {"model": MODEL, "done": True, "done_reason": "stop", **counts}
    if path == "/api/generate":
        return {**reply, "response": text}
    return {**reply, "message": {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}}


def _said(known: Known, prompt: str, body: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The reply's text and its tool calls."""
    is_done = known.shows in prompt
    if body.get("tools") and not is_done:
        return "", [{"id": "call_1", "function": {"name": known.tool, "arguments": known.arguments}}]
    if "format" in body:
        return json.dumps(_filled(body["format"], known, is_done=is_done)), []
    if body["options"].get("stop"):
        return ("I know it now." if is_done else f"I need {known.tool}."), []
    return known.answer, []


def _filled(schema: dict[str, Any], known: Known, *, is_done: bool) -> Any:
    """The value that a schema asks for."""
    call = {"tool": known.tool, "args": known.arguments}
    if schema.get("type") == "array":
        return [{"tool": "finish", "args": {"summary": known.answer}} if is_done else call]
    names = {name for variant in schema.get("anyOf", [schema]) for name in variant["properties"]}
    if "final_answer" in names:
        said = {"action": None, "final_answer": known.answer} if is_done else {"action": call, "final_answer": None}
        return {"progress_check": "on_track", "thought": "So be it.", **said}
    if "tool" in names:
        return {"tool": "none" if is_done else known.tool} | ({"enough": True} if "enough" in names else {})
    return known.arguments


def _rendered(messages: list[dict[str, Any]]) -> str:
    """ChatML."""
    return "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)


def _tokens(text: str) -> int:
    return max(1, -(-len(text.encode()) // BYTES_PER_TOKEN))


if __name__ == "__main__":
    raise SystemExit("scripts.played_ollama is no command; it serves: python -m scripts.strategy_table")
