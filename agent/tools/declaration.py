"""A tool's declaration: what the registry makes of it, and whether a class of a person's own holds one."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, get_args

from pydantic.errors import PydanticUserError

from agent.errors import UsageError
from agent.tools.base import Effect, Params, Tool
from agent.tools.json_schema import Schema, bounded_schema, native_schema, parameter_words, plain_schema

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")  # what servers with native tool calling take
# Words that stand in the place of a tool's name: what ends a run, and what a rule of the policy may be for.
_TAKEN_NAMES = frozenset({"finish", "none", *get_args(Effect)})


@dataclass(frozen=True)
class Derived:
    """What one tool's declaration gives: all of it from `schema`, and nothing kept elsewhere."""

    schema: Schema
    native: Schema
    arguments: Schema
    prose: str
    headline: str


def derived_from(tool: Tool[Any]) -> Derived:
    """What a tool's declaration gives.

    Raises:
        TypeError: the declaration leaves something unbounded or undescribed.
    """
    params: type[Params] = tool.params
    derived = _derive(tool.name, tool.description, params)
    if tool.free_text is not None and tool.free_text not in derived.schema["properties"]:
        raise TypeError(f"{tool.name}: free_text names no parameter of it")
    if tool.compares_by_meaning and not tool.self_timed:
        raise TypeError(f"{tool.name}: compares_by_meaning needs self_timed: a call to a model is not left behind")
    return derived


@functools.lru_cache(maxsize=256)
def _derive(name: str, description: str, params: type[Params]) -> Derived:
    schema = plain_schema(params)
    lines = [f"- {name}: {description}"]
    nodes = schema["properties"].values()
    lines += [f"    {words}: {node['description']}" for words, node in zip(parameter_words(schema), nodes, strict=True)]
    function = {"name": name, "description": description, "parameters": native_schema(schema)}
    headline = description.partition(". ")[0].rstrip(".") + "."
    native = {"type": "function", "function": function}
    return Derived(schema, native, bounded_schema(schema), "\n".join(lines), headline)


def checked_tool(tool_class: type[Tool[Any]]) -> Tool[Any]:
    """A tool of a class that a person wrote.

    Raises:
        UsageError: what is missing in the class, or unbounded.
    """
    try:
        _check_words(tool_class)
        tool = tool_class()
        derived_from(tool)
    except (TypeError, RecursionError, PydanticUserError) as error:
        told = " ".join(str(error).split())[:300]
        raise UsageError(f"{getattr(tool_class, '__name__', tool_class)}: {told}") from error
    return tool


def _check_words(tool_class: object) -> None:
    if not (isinstance(tool_class, type) and issubclass(tool_class, Tool)):
        raise TypeError("a tool is a class made from agent.tools.base.Tool")
    declared = {word: getattr(tool_class, word, None) for word in ("name", "description", "effect", "params")}
    if missing := [word for word, value in declared.items() if not value]:
        raise TypeError(f"the class does not say its {', '.join(missing)}")
    if not _NAME.fullmatch(str(declared["name"])) or declared["name"] in _TAKEN_NAMES:
        raise TypeError(f"a tool cannot be called {str(declared['name'])[:64]!a}: use letters, digits and _")
    if declared["effect"] not in get_args(Effect):
        raise TypeError(f"effect must be one of {', '.join(get_args(Effect))}")
    params = declared["params"]
    if not (isinstance(params, type) and issubclass(params, Params)):
        raise TypeError("params must be a class made from agent.tools.base.Params")
