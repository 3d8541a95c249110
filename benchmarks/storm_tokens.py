"""The storm server's own way of counting: a chat template and two tokenizers. Nothing in it comes from agent/.

`bytes` is the worst tokenizer there is, one token a byte and every marker of the template spelled out. `pieces` is
nearer to a real one: short runs of letters, digits by three, one token a marker. A text to be embedded is read on its
own, between two marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

Tokenizer = Literal["bytes", "pieces"]

_DEFAULT_SYSTEM = "You are a helpful assistant."
_PIECE = re.compile(rb"<\|im_start\|>|<\|im_end\|>|</?tool_\w+>|</?s>| ?[A-Za-z]{1,5}|[0-9]{1,3}| {1,8}|.", re.DOTALL)


def render(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> bytes:
    """The prompt as the model reads it, in ChatML, with tools and tool calls written as Qwen's template does."""
    parts = []
    if not messages or messages[0].get("role") != "system":
        messages = [{"role": "system", "content": _DEFAULT_SYSTEM}, *messages]
    for place, message in enumerate(messages):
        body = str(message.get("content", ""))
        if place == 0 and tools:
            body += "\n\n# Tools\n\n" + "\n".join(json.dumps(tool, indent=2, ensure_ascii=False) for tool in tools)
        body += "".join(_rendered_call(call) for call in message.get("tool_calls") or ())
        role = message.get("role", "user")
        if role == "tool":
            role, body = "user", f"<tool_response>\n{body}\n</tool_response>"
        parts.append(f"<|im_start|>{role}\n{body}<|im_end|>\n")
    parts.append("<|im_start|>assistant\n")
    return "".join(parts).encode("utf-8", "replace")


def _rendered_call(call: dict[str, Any]) -> str:
    function = call.get("function", {})
    text = json.dumps({"name": function.get("name"), "arguments": function.get("arguments")}, ensure_ascii=False)
    return f"\n<tool_call>\n{text}\n</tool_call>"


def count_texts(tokenizer: Tokenizer, texts: Sequence[str], window: int | None = None) -> int:
    """How many tokens are read where texts become vectors; of each no more than `window`."""
    counts = [count(tokenizer, f"<s>{text}</s>".encode("utf-8", "replace")) for text in texts]
    return sum(counts if window is None else (min(tokens, window) for tokens in counts))


def count(tokenizer: Tokenizer, data: bytes) -> int:
    """How many tokens `data` is."""
    return len(data) if tokenizer == "bytes" else sum(1 for _ in _PIECE.finditer(data))


def cut(tokenizer: Tokenizer, data: bytes, limit: int) -> tuple[bytes, int]:
    """The first `limit` tokens of `data` (or all of it), and how many they are."""
    if tokenizer == "bytes":
        kept = data[:limit]
        return kept, len(kept)
    tokens, end = 0, 0
    for match in _PIECE.finditer(data):
        if tokens == limit:
            break
        tokens, end = tokens + 1, match.end()
    return data[:end], tokens
