"""A few tools, a contract, and ways to read a text as a reply."""

from __future__ import annotations

from typing import Any

from agent.errors import ModelError
from agent.llm.backends.base import Envelope
from agent.llm.replies import Reply, read_reply


def tool(name: str, *required: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


WEATHER = tool("get_weather", "city", city={"type": "string"}, days={"type": "integer"})
WRITE = tool("write_file", "path", "content", path={"type": "string"}, content={"type": "string"})
TOOLS = (WEATHER, WRITE)
LABEL = {
    "type": "object",
    "properties": {"label": {"enum": ["ham", "spam"]}},
    "required": ["label"],
    "additionalProperties": False,
}
OSLO = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


def read(text: str, *, finish: str = "stop", tools: Any = TOOLS, **more: Any) -> Reply:
    return read_reply(Envelope(content=text, finish=finish), tools=tools, **more)


def refusal(text: str, *, schema: dict[str, Any] | None = None, finish: str = "stop") -> ModelError:
    try:
        reply = read(text, schema=schema, finish=finish)
    except ModelError as error:
        return error
    raise AssertionError(f"read as {reply}")
