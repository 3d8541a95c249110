"""A reply that was begun and is to go on: the conversation before it is rendered, and its text is put behind."""

from __future__ import annotations

import re
from dataclasses import replace

from agent.llm.backends.base import ChatRequest

THINK_START = "<think>"
# What templates of thinking models write at the head of a reply: an opening, or a thinking that was switched off.
_TEMPLATES_THINKING = re.compile(rf"{THINK_START}\s*(?:</think>\s*)?\Z")


def before_open(request: ChatRequest) -> ChatRequest:
    """The request to render: all but the open message, and not the schema that its rest must meet."""
    return replace(request, messages=request.messages[:-1], schema=None, stream=False, continues=False)


def with_open(rendered: str, request: ChatRequest) -> str:
    """The prompt that ends in the open message's text. Thinking that the template opened is not opened twice."""
    text = request.messages[-1].content
    if text.startswith(THINK_START):
        rendered = _TEMPLATES_THINKING.sub("", rendered)
    return rendered + text
