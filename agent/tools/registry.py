"""The registry: from one declaration a tool come the prose, the native schema, the bounded schema, and validation."""

from __future__ import annotations

import difflib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from agent.errors import UsageError
from agent.redaction import holds_secret, redacted, texts_of
from agent.state import ToolCall, ToolResult, content_hash
from agent.tools.base import Effect, Embed, Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.browse import Browse
from agent.tools.calculate_math import CalculateMath
from agent.tools.clock import Clock
from agent.tools.declaration import checked_tool, derived_from
from agent.tools.execute_code import ExecuteCode
from agent.tools.fetch_url import FetchUrl
from agent.tools.fetch_url_markdown import FetchUrlMarkdown
from agent.tools.get_weather import GetWeather
from agent.tools.json_schema import Schema, action_form, parameter_words, type_words, typed
from agent.tools.list_directory import ListDirectory
from agent.tools.manage_path import ManagePath
from agent.tools.query_pdf import QueryPdf
from agent.tools.read_file import ReadFile
from agent.tools.read_file_chunk import ReadFileChunk
from agent.tools.search import Search
from agent.tools.search_codebase import SearchCodebase
from agent.tools.web_search import WebSearch
from agent.tools.write_file import WriteFile

AnyTool = Tool[Any]

TOOLSETS: dict[str, tuple[type[AnyTool], ...]] = {
    "core": (WebSearch, CalculateMath, ExecuteCode, Clock),
    "fs": (ListDirectory, ReadFile, ReadFileChunk, WriteFile, ManagePath, Search),
    "web": (FetchUrl, FetchUrlMarkdown, GetWeather),
    "code": (SearchCodebase,),
    "pdf": (QueryPdf,),
    "browser": (Browse,),
}

# What makes the tools of a toolset that is found when it is asked for, by what stands before the colon of its name.
TOOLSET_FAMILIES: dict[str, Callable[[str], Sequence[AnyTool]]] = {}

MAX_ACTIONS = 4
_MAX_FAULTS_TOLD = 3
_MAX_NAME_SHOWN = 40
# The kernel may hand a signal to any thread: a main thread that waits learns of it only when it looks up.
_LOOKS_UP_SECONDS = 0.5
_TOOLSET_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


@dataclass(frozen=True)
class CheckedCall:
    """A call that may be run: `call` has its arguments typed by the schema, `repairs` names those that had to be."""

    tool: AnyTool
    params: Params
    call: ToolCall
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """What a person is asked: may this call be made? `left_out` holds the values of arguments that it does not name,
    `warning` what would be lost by it, or what it leads to later, if anything."""

    call: ToolCall
    left_out: Mapping[str, object] = field(default_factory=dict)
    warning: str | None = None


class ToolRegistry:
    """The tools of one run. The schemas it hands out are shared and must not be changed."""

    def __init__(self, tools: Sequence[AnyTool], context: ToolContext):
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            raise ValueError(f"two tools share a name: {', '.join(tool.name for tool in tools)}")
        self._context = context
        self._derived = {tool.name: derived_from(tool) for tool in tools}

    @property
    def compare_by_meaning(self) -> bool:
        """Whether any of the tools compares texts by their meaning where it can."""
        return any(tool.compares_by_meaning for tool in self._tools.values())

    def lend(self, embed: Embed | None) -> None:
        """Let the tools compare texts by their meaning, in the calls from now on."""
        self._context = replace(self._context, embed=embed)

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names in their order."""
        return tuple(self._tools)

    def prose(self) -> str:
        """The tools in words, for a system message; the same text every time."""
        return "\n".join(derived.prose for derived in self._derived.values())

    def prose_of(self, name: str) -> str:
        """One offered tool in words."""
        return self._derived[name].prose

    def headlines(self) -> str:
        """One line a tool: its name and the first sentence of its description."""
        return "\n".join(f"{name}: {derived.headline}" for name, derived in self._derived.items())

    def native_tools(self) -> list[Schema]:
        """The tools as servers with native tool calling take them."""
        return [derived.native for derived in self._derived.values()]

    def native_tool(self, name: str) -> Schema:
        """One offered tool as servers with native tool calling take it."""
        return self._derived[name].native

    def parameters(self, name: str) -> Schema | None:
        """The plain schema of a tool's arguments; None where no such tool is offered."""
        derived = self._derived.get(name)
        return derived.schema if derived else None

    def effect(self, name: str) -> Effect | None:
        """What a tool does to the world; None where no such tool is offered."""
        tool = self._tools.get(name)
        return tool.effect if tool else None

    def keywords(self, name: str) -> tuple[str, ...]:
        """The words of a user's message that point at a tool; none where no such tool is offered."""
        tool = self._tools.get(name)
        return tool.keywords if tool else ()

    def query_of(self, call: ToolCall) -> str | None:
        """What a call searches for in plain language; None where it does not search."""
        tool = self._tools.get(call.name)
        query = call.arguments.get(tool.free_text) if tool and tool.free_text else None
        return query if isinstance(query, str) else None

    def arguments_schema(self, name: str) -> Schema:
        """The bounded schema of one offered tool's bare arguments, for constrained decoding."""
        return self._derived[name].arguments

    def action_schema(self, extra: Sequence[Schema] = ()) -> Schema:
        """The bounded schema of one call, `{"tool": name, "args": {...}}`, for constrained decoding.

        `extra` are further alternatives of that form (`action_form`), for what is no tool.
        """
        own = [action_form(name, derived.arguments) for name, derived in self._derived.items()]
        return {"anyOf": [*own, *extra]}

    def actions_schema(self, max_items: int = MAX_ACTIONS, extra: Sequence[Schema] = ()) -> Schema:
        """The bounded schema of a list of one to `max_items` calls."""
        return {"type": "array", "items": self.action_schema(extra), "minItems": 1, "maxItems": max_items}

    def hash(self) -> str:
        """The hash of the native schemas: two runs with the same one offered their model the same tools."""
        return content_hash(self.native_tools())

    def validate(self, call: ToolCall) -> CheckedCall:
        """The call with its arguments typed and checked against the declaration. Names are matched exactly.

        Raises:
            ToolError: unknown_tool or bad_args, with what to do instead.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            raise ToolError("unknown_tool", self._unknown(call.name))
        schema = self._derived[call.name].schema
        arguments = typed(call.arguments, schema)
        assert isinstance(arguments, dict)  # noqa: S101 an object schema gives a dict back; this tells mypy
        repairs = tuple(f"coerced:{name}" for name, value in arguments.items() if value is not call.arguments[name])
        try:
            params: Params = tool.params.model_validate(arguments)
        except ValidationError as error:
            raise ToolError("bad_args", _explain(error, call.name, schema)) from None
        return CheckedCall(tool, params, call.model_copy(update={"arguments": arguments}), repairs)

    def question(self, checked: CheckedCall) -> Question:
        """The call as a person is asked about it."""
        whole = checked.params.model_dump(mode="json", by_alias=True)
        named = checked.call.arguments
        left_out = {name: value for name, value in whole.items() if name not in named and value is not None}
        return Question(checked.call, left_out, checked.tool.warning(checked.params, self._context))

    def execute(self, call: ToolCall) -> ToolResult:
        """Validate and run. The model's and the world's faults come back as a failed result; our own bug is raised."""
        try:
            checked = self.validate(call)
        except ToolError as error:
            return ToolResult(success=False, error=str(error), error_type=error.error_type)
        return self.run(checked)

    def run(self, checked: CheckedCall) -> ToolResult:
        """Run a validated call within its tool's time and size.

        Raises:
            UsageError: what the person set up for the tool (a corpus folder) cannot be used.
            BackendError, CancelledRunError: from a call for vectors (agent/llm/embedder.py).
        """
        started = time.monotonic()
        try:
            self._refuse_secrets(checked)
            result = self._call(checked)
        except ToolError as error:
            shown, cut = self._shown(str(error), checked)
            return ToolResult(
                success=False,
                error=shown,
                error_type=error.error_type,
                seconds=time.monotonic() - started,
                truncated=cut,
            )
        shown, cut = self._shown(result, checked)
        return ToolResult(success=True, data=shown, seconds=time.monotonic() - started, truncated=cut)

    def close(self) -> None:
        """Let every tool go of what it held open for this run; one that cannot does not keep the others from it."""
        with ExitStack() as stack:
            for tool in self._tools.values():
                stack.callback(tool.close)

    def _refuse_secrets(self, checked: CheckedCall) -> None:
        """A call that would send a secret of the settings away is not made: in one text, or in lines of a list."""
        if checked.tool.effect != "network" and checked.tool.contained:
            return
        arguments = checked.call.arguments
        sent = ("\n".join(texts_of(arguments)), json.dumps(arguments, ensure_ascii=False))
        if any(holds_secret(text, self._context.secrets) for text in sent):
            raise ToolError("secret_in_request", "The call holds a secret of the settings, and was not made.")

    def _shown(self, result: str | Excerpt, checked: CheckedCall) -> tuple[str, bool]:
        """The result without secrets and within its tool's size, and whether something was left out."""
        secrets = self._context.secrets
        if isinstance(result, Excerpt):
            text = redacted(result.text, secrets, is_cut=True)
            return _cut(text, checked.tool.max_chars, result.whole), True
        text = redacted(result, secrets)
        if len(text) <= checked.tool.max_chars:
            return text, False
        return _cut(text, checked.tool.max_chars, f"{len(text):,} characters"), True

    def _call(self, checked: CheckedCall) -> str | Excerpt:
        tool = checked.tool
        context = self._context if tool.compares_by_meaning else replace(self._context, embed=None)
        if tool.self_timed:
            result: str | Excerpt = tool.run(checked.params, context)
            return result
        return _within(tool, checked.params, context)

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name[:_MAX_NAME_SHOWN], self.names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return f"There is no tool {_shown(name)}.{hint} The tools are: {', '.join(self.names)}."


def register_tool(tool_class: type[AnyTool], toolset_name: str) -> None:
    """Offer a tool of a person's own in a toolset, which is made where there is none of that name.

    Raises:
        UsageError: the class or the toolset's name cannot be used, or another tool has the tool's name.
    """
    if not _TOOLSET_NAME.fullmatch(toolset_name):
        raise UsageError(f"no toolset can be called {_shown(toolset_name)}: use small letters, digits, - and _")
    tool = checked_tool(tool_class)
    known = {other for classes in TOOLSETS.values() for other in classes}
    if any(other.name == tool.name and other is not tool_class for other in known):
        raise UsageError(f"{tool_class.__name__}: there is a tool {tool.name} already: use another name")
    TOOLSETS[toolset_name] = tuple(dict.fromkeys((*TOOLSETS.get(toolset_name, ()), tool_class)))


def toolset(name: str) -> list[AnyTool]:
    """The tools of a toolset, or of several joined by commas, each tool once; made for one run.

    Raises:
        UsageError: no such toolset, or two tools of one name in different ones.
    """
    tools: dict[str, AnyTool] = {}
    for part in dict.fromkeys(part.strip() for part in name.split(",")):
        for tool in _tools_of(part):
            other = tools.setdefault(tool.name, tool)
            if other is not tool and (part not in TOOLSETS or type(other) is not type(tool)):
                raise UsageError(f"toolset {name}: it has two tools called {tool.name}: leave one out")
    return list(tools.values())


def _tools_of(name: str) -> Sequence[AnyTool]:
    family, colon, member = name.partition(":")
    if colon and family in TOOLSET_FAMILIES:
        return TOOLSET_FAMILIES[family](member)
    if name not in TOOLSETS:
        known = ", ".join([*TOOLSETS, *(f"{family}:NAME" for family in TOOLSET_FAMILIES)])
        raise UsageError(f"no toolset {_shown(name)}: use one of {known}, or several with commas")
    return [tool_class() for tool_class in TOOLSETS[name]]


def _within(tool: AnyTool, params: Params, context: ToolContext) -> str | Excerpt:
    """Run the tool on a thread of its own. A late one is left behind: a thread cannot be killed, only not awaited."""
    done: list[str | Excerpt] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            done.append(tool.run(params, context))
        except BaseException as error:  # noqa: BLE001 carried over to the caller's thread and raised there
            raised.append(error)

    thread = threading.Thread(target=work, name=f"tool-{tool.name}", daemon=True)
    thread.start()
    ends = time.monotonic() + tool.timeout_seconds
    while thread.is_alive() and (left := ends - time.monotonic()) > 0:
        thread.join(min(left, _LOOKS_UP_SECONDS))
    if raised:
        raise raised[0]
    if not done:
        raise ToolError(
            "timeout", f"{tool.name} gave nothing within {tool.timeout_seconds:g} seconds. Try another way."
        )
    return done[0]


def _cut(text: str, limit: int, whole: str) -> str:
    """The beginning of the text with a marker that says how long the whole is, both within the limit."""
    marker = f"\n[cut here: {whole} in all]"
    return text[: limit - len(marker)] + marker


def _explain(error: ValidationError, name: str, schema: Schema) -> str:
    """What is wrong with which argument, and what the tool takes. Values are not echoed: they are the model's."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    told = [_fault(fault["type"], fault["loc"], fault["msg"], schema) for fault in faults[:_MAX_FAULTS_TOLD]]
    takes = ", ".join(parameter_words(schema)) or "no arguments"
    return f"{name}: {'; '.join(told)}. It takes: {takes}."


def _fault(kind: str, location: tuple[int | str, ...], message: str, schema: Schema) -> str:
    where = ".".join(str(part) for part in location)
    if kind == "missing":
        return f"argument {where} is missing"
    if kind == "extra_forbidden":
        return f"there is no argument {_shown(where)}"
    due = schema["properties"].get(location[0]) if location else None
    words = f" (it takes {type_words(due)})" if due and kind.endswith("_type") else ""
    return f"argument {_shown(where)}: {message[:1].lower()}{message[1:]}{words}"


def _shown(text: str) -> str:
    """Hostile text, short and printable, for a message."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:_MAX_NAME_SHOWN])
    return f"'{clean}'" + ("..." if len(text) > _MAX_NAME_SHOWN else "")
