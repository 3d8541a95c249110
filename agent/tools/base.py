"""What a tool is: parameters declared once, a hard wall-clock limit, and a ToolResult whatever happens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from agent.egress.fetch import Reach
from agent.sandbox.ladder import Isolation
from agent.state import LOOP_REFUSALS

# Gives the meaning of each text as a vector, by one call to a model: agent/llm/embedder.py says what it raises.
# The call counts against the run's budget, so that no tool may leave it behind on another thread.
Embed = Callable[[Sequence[str]], list[list[float]]]
# Installs the libraries of the optional toolsets, at the versions of the lock file.
INSTALL_EXTRAS = "make extras"
Effect = Literal["read", "write", "execute", "network"]


class Params(BaseModel):
    """Base of a tool's parameters. Every field needs a `description`, and every text a `max_length`."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ToolError(Exception):
    """A tool could not do what was asked; the message tells the model what to do instead.

    `error_type` is a short fixed word (bad_args, too_large, timeout, refused, not_found, network, ...).

    Raises:
        ValueError: the word is one of the loop's own (agent/state.py, LOOP_REFUSALS); a bug of the tool.
    """

    def __init__(self, error_type: str, message: str):
        if error_type in LOOP_REFUSALS:
            raise ValueError(f"the error type {error_type} is the loop's own; a tool needs another word")
        super().__init__(message)
        self.error_type = error_type


@dataclass(frozen=True)
class WebAccess:
    """Where the tools of the web may go, and which servers and browser of a person's settings they ask.

    `chromium_path` is the browser; None: the one that is found.
    """

    reach: Reach = field(default_factory=Reach)
    weather_url: str = "https://wttr.in"
    searxng_url: str | None = None
    search_api_key: str | None = field(default=None, repr=False)
    chromium_path: Path | None = None


@dataclass(frozen=True)
class ToolContext:
    """What a run lends its tools: nothing here is global, so that runs beside each other cannot meet.

    `corpus` is a folder of text files that web_search reads instead of the network. `now` is the time that clock tells,
    with its zone (None: the machine's). `workspace` is the folder that file tools work in, absolute (None: there is
    none), `persons_folder` whether it is a person's own and not one made for the run, and `written` takes the paths in
    it that tools have written. `isolation` gives the sandbox for programs. `embed` compares texts by their meaning
    (None: by their words). `secrets` are taken out of results, and sent nowhere.

    Raises:
        ValueError: a time without a zone, or a relative workspace; a bug of ours.
    """

    corpus: Path | None = None
    search_provider: str = "auto"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    now: datetime | None = None
    workspace: Path | None = None
    persons_folder: bool = False
    written: list[str] = field(default_factory=list, compare=False)
    isolation: Isolation = field(default_factory=Isolation, compare=False)
    web: WebAccess = field(default_factory=WebAccess)
    embed: Embed | None = None

    def __post_init__(self) -> None:
        if self.now is not None and self.now.utcoffset() is None:
            raise ValueError("a fixed time needs its zone")
        if self.workspace is not None and not self.workspace.is_absolute():
            raise ValueError("the workspace needs an absolute path")


@dataclass(frozen=True)
class Excerpt:
    """The beginning of a result that is too long to be held whole. `whole` is its length in words, for the model."""

    text: str
    whole: str


P = TypeVar("P", bound=Params)


class Tool(ABC, Generic[P]):
    """One tool. `description` stays abstract: an example value in it would be copied by a small model.

    `self_timed` tools keep `timeout_seconds` themselves (a process they kill); the others are timed by the registry.
    `contained` is whether a tool writes nowhere but in the workspace, or executes nothing but in the run's sandbox.
    One that `compares_by_meaning` uses `ToolContext.embed` where the run has it, and is `self_timed`. `free_text` names
    the parameter that is a search in plain language, where there is one. `keywords` are words of a user's message, in
    lower case, that point at this tool.
    """

    name: str
    description: str
    effect: Effect
    contained: ClassVar[bool] = True
    timeout_seconds: float = 15.0
    max_chars: ClassVar[int] = 3000
    self_timed: ClassVar[bool] = False
    compares_by_meaning: ClassVar[bool] = False
    free_text: ClassVar[str | None] = None
    keywords: ClassVar[tuple[str, ...]] = ()
    params: type[P]

    def does_more_again(self, params: P) -> bool:  # noqa: ARG002  a tool that can tell looks at its parameters
        """Whether the very same call, made again at once, does something further (a text appended once more)."""
        return False

    def changes_what_is_read(self, params: P) -> bool:  # noqa: ARG002  a tool that can tell looks at its parameters
        """Whether what was read or done before this call may turn out otherwise after it."""
        return self.effect in ("write", "execute")

    def warning(self, params: P, context: ToolContext) -> str | None:  # noqa: ARG002  a tool that can tell looks
        """What would be lost by this call, or what it leads to later, for the person who is asked about it. The text
        may hold hostile names. Raises nothing."""
        return None

    @abstractmethod
    def run(self, params: P, context: ToolContext) -> str | Excerpt:
        """The result as text for the model. The registry takes the secrets out of it, and then cuts whatever is longer
        than `max_chars`; a tool that cuts a text itself takes them out before (agent/redaction.py).

        Raises:
            ToolError: the model's mistake or the world's; becomes an observation. Anything else is our bug.
        """

    def close(self) -> None:
        """Let go of what was held open from call to call; called once the run has ended, and maybe again."""
