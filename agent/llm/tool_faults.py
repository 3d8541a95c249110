"""Which kind of tool-call fault a reply that could not be used stands for, if any. Pure; counted by whoever asked."""

from __future__ import annotations

from agent.errors import ModelError
from agent.llm.replies import ACTION, TOOL_CALL
from agent.state import ToolFault

_KINDS: dict[str, ToolFault] = {
    "unknown_tool": "wrong_name",
    "bad_arguments": "bad_arguments",
    "missing_arguments": "bad_arguments",
    "malformed_tool_call": "bad_arguments",
    # The server's parser refused what the model wrote, and said so: the call is the model's, and it was not lost.
    "model_tool_parse_failed": "bad_arguments",
    "thinking_only": "thinking_ate_budget",
    "truncated": "truncated",
}
# By what a reply that was to be JSON holds instead.
_DETAILS: dict[str, ToolFault] = {TOOL_CALL: "in_text", ACTION: "bad_arguments"}
# What a server counts where the model said nothing at all: the token that ends a reply.
_END_TOKENS = 1


def fault_kind(
    error: ModelError, *, tools_offered: bool, completion_tokens: int | None, may_act: bool = True
) -> ToolFault | None:
    """The kind of fault, None where the error says nothing about a tool call.

    `tools_offered`: whether tools were sent with the call. `completion_tokens`: what the server counted for it. Only
    a server that was sent tools looks for calls in a reply, and throws away those that it cannot read: then the reply
    is empty though more was written than the token that ends one. Without a count nothing is said to be lost.
    `may_act`: whether an action was asked for; an answer that is cut off is no tool call.
    """
    if error.detail in _DETAILS:
        return _DETAILS[error.detail]
    if error.error_type in ("truncated", "thinking_only") and not may_act:
        return None
    if error.error_type == "truncated" and error.detail == "thinking":
        return "thinking_ate_budget"
    if error.error_type == "empty_reply":
        lost = tools_offered and completion_tokens is not None and completion_tokens > _END_TOKENS
        return "lost_by_server" if lost else None
    return _KINDS.get(error.error_type)
