"""The ways in which models write a tool call into their text, each read from just behind its marker.

A reader gives the calls (or the error that stands for a broken one) and where it stopped. None reads what its marker
merely mentions: then there are no calls, and the search goes on right behind the marker.
"""

# ruff: noqa: RUF001  # DeepSeek's tokens are spelt with full-width bars

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from agent.llm import lenient_json, python_form
from agent.llm.tool_calls import Outcome, Tools, from_texts, malformed, offered_names, outcome

ARGUMENT_KEYS = ("arguments", "parameters", "args")
NAME_KEYS = ("name", "tool", "tool_name", "function")
LIST_KEY = "tool_calls"

_BLANK = re.compile(r"\s*")
_FENCE = re.compile(r"```(?:json)?\s*(?=[\[{])")
_BETWEEN = re.compile(r"[\s;,]*")
_FUNCTION = re.compile(r'<(?:function=|invoke name=)"?(?P<name>[^>\s"]{1,200})"?>\s*(?=<parameter|</|\{|\Z)')
_PARAMETER = re.compile(r'\s*<parameter(?:=| name=)"?(?P<key>[^>"]{1,200})"?>')
_PARAMETER_END = re.compile(r"</parameter>(?=\s*(?:<parameter[= ]|</function>|</invoke>))")
_FUNCTION_END = re.compile(r"\s*</(?:function|invoke)>")
_TAG_END = re.compile(r"</(?:tool_call|function_call)>")
_TAG_EDGE = re.compile(r"</?(?:tool_call|function_call)>|<\|tool_call\|>")
_FORGOTTEN = re.compile(r"\s*</tool_call>")
_MISTRAL_NAME = re.compile(r"\s*(?P<name>[\w.-]{1,200})\s*(?:\[CALL_ID\][\w-]*)?\s*(?:\[ARGS\])?\s*(?=\{)")
_DEEPSEEK_NAME = re.compile(
    r"\s*(?:function<｜tool▁sep｜>)?\s*(?P<name>[^\s<{`｜]{1,200})\s*(?:<｜tool▁sep｜>)?\s*(?:```(?:json)?\s*)?"
)
_DEEPSEEK_END = "<｜tool▁call▁end｜>"
_GEMMA_NAME = re.compile(r"\s*call:(?P<name>[\w.-]{1,200})\{")
_ESCAPE = "<escape>"

Found = tuple[list[Outcome], int]


@dataclass
class Context:
    """The text, the place behind a marker in it, what was offered, and the repairs noted so far."""

    text: str
    start: int
    tools: Tools
    repairs: list[str]

    def call(self, name: str, arguments: Any) -> Outcome:
        """The outcome of one call."""
        return outcome(name, arguments, self.tools, self.repairs)

    def broken(self, why: object) -> Found:
        """A call that cannot be read. The rest of its tag is passed over: what stands in there is no call."""
        end = _TAG_END.search(self.text, self.start)
        return [malformed(str(why))], end.end() if end else len(self.text)


def named(value: Any, tools: Tools, *, needs_arguments: bool) -> list[tuple[str, Any]] | None:
    """The (name, arguments) pairs that a JSON value stands for; None where it is anything else."""
    if isinstance(value, list):
        each = [named(item, tools, needs_arguments=needs_arguments) for item in value]
        pairs = [pair for found in each if found for pair in found]
        return pairs if pairs and all(each) else None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        return named(value["function"], tools, needs_arguments=needs_arguments)
    name = next((value[key] for key in NAME_KEYS if isinstance(value.get(key), str)), None)
    arguments = next((key for key in ARGUMENT_KEYS if key in value), None)
    if name is not None and (arguments is not None or not needs_arguments):
        return [(name, value[arguments] if arguments else None)]
    if len(value) == 1:
        if isinstance(value.get(LIST_KEY), list):
            return named(value[LIST_KEY], tools, needs_arguments=needs_arguments)
        key, inner = next(iter(value.items()))
        return [(key, inner)] if key in offered_names(tools) and isinstance(inner, dict) else None
    return None


def json_calls(context: Context, *, needs_arguments: bool = False) -> Found:
    """Calls as JSON values, one behind the other. A value that is no call ends them; as the first it is an error.

    Raises:
        ValueError: the first value cannot be read, or is no call.
    """
    calls: list[Outcome] = []
    place = context.start
    while True:
        needed: list[str] = []
        try:
            value, end = lenient_json.value_at(context.text, place, needed)
            pairs = named(value, context.tools, needs_arguments=needs_arguments)
        except ValueError:
            if not calls:
                raise
            return [*calls, malformed("it is broken off")], len(context.text)
        if pairs is None:
            if not calls:
                raise ValueError("it names no tool")
            return calls, place
        context.repairs += [repair for repair in needed if repair not in context.repairs]
        calls += [context.call(name, arguments) for name, arguments in pairs]
        between = _BETWEEN.match(context.text, end)
        place = between.end() if between else end
        if not context.text.startswith(("{", "["), place):
            return calls, end


def tagged(context: Context) -> Found:
    """`<tool_call>` and its kind: JSON, the XML of Qwen's coder models, or Python."""
    place = _skip(context)
    if _FUNCTION.match(context.text, place):
        context.start = place
        return function(context)
    if (fence := _FENCE.match(context.text, place)) is not None:
        context.start = place = fence.end()
    if context.text.startswith(("{", "["), place):
        try:
            return json_calls(context)
        except ValueError as error:
            return context.broken(error)
    if python_form.begins_at(context.text, place):
        return python_calls(context)
    edge = _TAG_EDGE.search(context.text, place)
    inside = context.text[place : edge.start()] if edge and edge.group().startswith("</") else ""
    if "{" in inside or "(" in inside:
        return python_calls(context)
    return [], context.start  # the tag is only spoken of


def function(context: Context) -> Found:
    """`<function=NAME>` with `<parameter=KEY>` in it, or `<invoke name=...>`; `start` is at its beginning.

    Text in a value that looks like a tag is data: a value ends where another parameter or the function's end follows.
    """
    opening = _FUNCTION.match(context.text, context.start)
    if opening is None:
        return [], context.start + 1
    name, place = opening["name"], opening.end()
    if context.text[place : place + 1] == "{":
        try:
            arguments, place = lenient_json.value_at(context.text, place, context.repairs)
        except ValueError as error:
            return context.broken(error)
        return [context.call(name, arguments)], place
    texts: dict[str, str] = {}
    while (parameter := _PARAMETER.match(context.text, place)) is not None:
        end = _PARAMETER_END.search(context.text, parameter.end())
        if end is None or parameter["key"] in texts:
            return context.broken(f"the parameter {parameter['key'][:40]} has no end, or stands twice")
        texts[parameter["key"]] = context.text[parameter.end() : end.start()].removeprefix("\n").removesuffix("\n")
        place = end.end()
    closing = _FUNCTION_END.match(context.text, place)
    if closing is None:
        return context.broken(f"{name[:40]} has no end")
    return [from_texts(name, texts, context.tools, context.repairs)], closing.end()


def lone_function(context: Context) -> Found:
    """A function outside of any tag; where the tag's end follows, its beginning was forgotten."""
    found, end = function(context)
    closing = _FORGOTTEN.match(context.text, end)
    if found and closing is not None:
        context.repairs.append("missing_open_tag")
        return found, closing.end()
    return found, end


def python_tag(context: Context) -> Found:
    """Llama's `<|python_tag|>`: JSON, or a call as Python writes it (`name.call(key="value")`)."""
    try:
        return json_calls(context)
    except ValueError:
        return python_calls(context)


def mistral(context: Context) -> Found:
    """`[TOOL_CALLS]` with a JSON list, or with NAME[ARGS]{...}."""
    with_name = _MISTRAL_NAME.match(context.text, context.start)
    try:
        if with_name is not None:
            arguments, end = lenient_json.value_at(context.text, with_name.end(), context.repairs)
            return [context.call(with_name["name"], arguments)], end
        if context.text.startswith(("{", "["), _skip(context)):
            return json_calls(context)
    except ValueError as error:
        return context.broken(error)
    return [], context.start


def deepseek(context: Context) -> Found:
    """DeepSeek's form: the name stands outside of the JSON, which may stand in a fence."""
    opening = _DEEPSEEK_NAME.match(context.text, context.start)
    if opening is None:
        return context.broken("it names no tool")
    try:
        arguments, end = lenient_json.value_at(context.text, opening.end(), context.repairs)
    except ValueError as error:
        return context.broken(error)
    closing = context.text.find(_DEEPSEEK_END, end)
    return [context.call(opening["name"], arguments)], closing + len(_DEEPSEEK_END) if closing >= 0 else end


def function_gemma(context: Context) -> Found:
    """FunctionGemma's `call:NAME{key:<escape>text<escape>}`."""
    opening = _GEMMA_NAME.match(context.text, context.start)
    if opening is None:
        return context.broken("it names no tool")
    reader = lenient_json.Reader(context.text, opening.end())
    arguments: dict[str, Any] = {}
    try:
        while not reader.take("}"):
            key = reader.word()
            if not key or not reader.take(":"):
                raise ValueError("no key where one is due")
            arguments[key] = _escaped(reader)
            reader.take(",")
            reader.skip()
    except ValueError as error:
        return context.broken(error)
    return [context.call(opening["name"], arguments)], reader.place


def _escaped(reader: lenient_json.Reader) -> Any:
    if not reader.take(_ESCAPE):
        return reader.value()
    end = reader.text.find(_ESCAPE, reader.place)
    if end < 0:
        raise ValueError("a text without its end")
    text, reader.place = reader.text[reader.place : end], end + len(_ESCAPE)
    return text


def _skip(context: Context) -> int:
    blank = _BLANK.match(context.text, context.start)
    return blank.end() if blank else context.start


def python_calls(context: Context) -> Found:
    """Calls as Python writes them: `name(key="value")`, in a list or one behind the other."""
    noted: list[str] = []
    try:
        pairs, end = python_form.calls_at(context.text, context.start, noted)
    except ValueError as error:
        return context.broken(error)
    context.repairs += [repair for repair in noted if repair not in context.repairs]
    return [context.call(name, arguments) for name, arguments in pairs], end
