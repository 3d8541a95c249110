"""A scripted server whose model may call tools by itself, and the run that it drives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import ScriptedBackend, ScriptedReply
from agent.state import AgentState, Message, ModelInfo
from evals.rebuilt import rebuild

REFUSES_TOOLS = ScriptedReply(status=400, body=json.dumps({"error": "library/small:135m does not support tools"}))
LOST = ScriptedReply("", completion_tokens=12)  # tokens were counted, and nothing came of them

Said = str | ScriptedReply


def calls(*pairs: tuple[str, dict[str, Any]], content: str = "") -> ScriptedReply:
    """A reply with native calls: (name, arguments) each."""
    return ScriptedReply(content, tool_calls=[{"name": name, "arguments": arguments} for name, arguments in pairs])


def math(expression: str, **more: Any) -> ScriptedReply:
    return calls(("calculate_math", {"expression": expression}), **more)


def in_text(name: str, **arguments: Any) -> str:
    """A call as a model writes it whose server does not look for it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class ToolServer(ScriptedBackend):
    """Plays its replies in order, the last of them for ever, keeps what it was asked, and says what its model can."""

    def __init__(self, replies: Sequence[Said], *, tools: bool | None = True) -> None:
        super().__init__(self._reply)
        self._replies, self._tools = replies, tools
        self.requests: list[ChatRequest] = []

    def describe(self) -> ModelInfo:
        return super().describe().model_copy(update={"tools": self._tools})

    def _reply(self, request: ChatRequest, number: int) -> ScriptedReply:
        self.requests.append(request)
        said = self._replies[min(number, len(self._replies) - 1)]
        return ScriptedReply(said) if isinstance(said, str) else said


def prompts(state: AgentState) -> list[tuple[Message, ...]]:
    """The whole prompt of every call of a run."""
    return [rebuilt.prompt for rebuilt in rebuild(state)]


def roles_are_in_order(prompt: Sequence[Message]) -> bool:
    """System first; then user and assistant in turn, and tool messages only behind calls, one for each."""
    if prompt[0].role != "system" or prompt[-1].role not in ("user", "tool"):
        return False
    waiting, due = 0, "user"
    for message in prompt[1:]:
        if waiting:
            if message.role != "tool":
                return False
            waiting -= 1
        elif message.role != due:
            return False
        elif message.role == "assistant" and message.tool_calls:
            waiting = len(message.tool_calls)
        else:
            due = "assistant" if due == "user" else "user"
    return waiting == 0
