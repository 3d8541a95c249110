"""Which tool a user's message points at by its words alone: what a strategy falls back on when a model gives nonsense.

Pure and small. It reads what each tool says of itself (`Tool.keywords`), and never a tool's results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.tools.registry import ToolRegistry

MAX_CHARS = 4000  # of a message that are looked at; whoever pastes more says before it what to do with it
_WORD = re.compile(r"\w+")


class KeywordRouter:
    """Routes messages among the tools of one run."""

    def __init__(self, tools: ToolRegistry) -> None:
        # A name like read_file is a word of nobody's prose and decides; one like clock is a keyword among others.
        self._names = {name: _phrases([name] if "_" in name else []) for name in tools.names}
        self._keywords = {name: _phrases([name.replace("_", " "), *tools.keywords(name)]) for name in tools.names}

    def route(self, text: str) -> str | None:
        """The one offered tool that a message calls by its name, or else has most keywords of; None if there is none.

        Whole words count, in any case, and each keyword once. Of two tools with as many, the one with the longer
        keyword is meant ("read lines" says more than "read"); else it is a tie, and a tie is no answer.
        """
        said = _words(text[:MAX_CHARS])
        best = _with_most(said, self._names) or _with_most(said, self._keywords)
        return best[0] if len(best) == 1 else None


def _words(text: str) -> str:
    """The words of a text without case, a blank around each, so that one text stands in another in whole words only."""
    return " ".join(["", *_WORD.findall(text.casefold()), ""])


def _phrases(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(words for words in map(_words, texts) if words.strip())


def _with_most(said: str, phrases: dict[str, frozenset[str]]) -> list[str]:
    """The tools with the most phrases in what was said, of these those with the longest; none where no tool has any."""
    found = {name: [phrase.count(" ") for phrase in those if phrase in said] for name, those in phrases.items()}
    weights = {name: (len(lengths), max(lengths)) for name, lengths in found.items() if lengths}
    most = max(weights.values(), default=None)
    return [name for name, weight in weights.items() if weight == most]
