"""How much of each prompt a llama.cpp server took from its cache, against what it could have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.llm.backends.base import ChatRequest
from agent.llm.backends.embedded import EmbeddedBackend
from agent.llm.backends.replay import prompts_of
from agent.state import AgentState, Message


@dataclass(frozen=True)
class CacheLine:
    """One call, in tokens. `head` is the longest beginning that its prompt shares with an earlier one of the run."""

    phase: str
    prompt: int
    head: int
    cached: int

    @property
    def share(self) -> float:
        """Of what could come from the cache, how much did."""
        return self.cached / self.head

    def __str__(self) -> str:
        return f"{self.phase:8} prompt {self.prompt:5}  head {self.head:5}  cached {self.cached:5}  {self.share:.1%}"


def cache_lines(state: AgentState, backend: EmbeddedBackend) -> list[CacheLine]:
    """A line for each call but the first of each conversation, which is known by its system message."""
    lines: list[CacheLine] = []
    earlier: list[tuple[Message, str]] = []
    for call, prompt in zip(state.calls, prompts_of(state.calls), strict=True):
        text = _rendered(prompt, is_open=call.continues)
        counted, cached = call.usage.prompt_tokens, call.usage.cached_tokens
        assert counted == _tokens(text, state, backend), "the prompt is not what it is taken for"
        lengths = [_common_length(text, before) for system, before in earlier if system == prompt[0]]
        if lengths:
            assert cached is not None
            head = _tokens(text[: max(lengths)], state, backend)
            lines.append(CacheLine(call.phase, counted, head, cached))
        earlier.append((prompt[0], text))
    return lines


def _common_length(one: str, other: str) -> int:
    """How many characters two texts have in common, from their first."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _rendered(messages: Sequence[Message], *, is_open: bool) -> str:
    """The prompt as the model reads it: ChatML."""
    turns = [f"<|im_start|>{message.role}\n{message.content}" for message in messages]
    return "<|im_end|>\n".join(turns if is_open else [*turns, "<|im_start|>assistant\n"])


def _tokens(text: str, state: AgentState, backend: EmbeddedBackend) -> int:
    """The tokens of a text that begins with a marker, counted as the end of a reply that was begun."""
    counts = []
    for begun in (text, ""):
        messages = (Message(role="user", content="-"), Message(role="assistant", content=begun))
        request = ChatRequest(messages, 1, 0.0, 7, state.sampling.num_ctx, 30.0, continues=True)
        counts.append(backend.count_prompt_tokens(request) or 0)
    return counts[0] - counts[1]
