"""Tool calls that a model wrote into its text, because its server did not read them or it was never taught to.

Markers first, in the order in which they stand; then a reply, or a fence in it, that is call-shaped JSON: a name
**and** arguments. A name alone is data, JSON inside a sentence is a mention, and what stands inside a broken call is
never taken for a call of its own.
"""

# ruff: noqa: RUF001  # DeepSeek's tokens are spelt with full-width bars

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from agent.llm import python_form, text_forms
from agent.llm.text_forms import Context, Found
from agent.llm.tool_calls import Outcome, Tools, malformed, offered_names

_MARKERS: Mapping[str, tuple[str, Callable[[Context], Found]]] = {
    "tag": (r"<(?:\|tool_call\||tool_call|function_call)>", text_forms.tagged),
    "function": (r"(?=<function=|<invoke name=)", text_forms.lone_function),
    "python_tag": (r"<\|python_tag\|>", text_forms.python_tag),
    "mistral": (r"\[TOOL_CALLS\]", text_forms.mistral),
    "deepseek": ("<｜tool▁call▁begin｜>", text_forms.deepseek),
    "gemma": ("<start_function_call>", text_forms.function_gemma),
    "functools": (r"\bfunctools(?=\s*\[)", text_forms.mistral),
    "tool_code": (r"```tool_code\b", text_forms.python_calls),
}
_INVENTED_RESULT = "<tool_response>"
_MARKER = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, (pattern, _) in _MARKERS.items()) + f"|{_INVENTED_RESULT}"
)
_FENCE = re.compile(r"```(?:json|tool_call|tool_calls)?[ \t]*\n\s*(?=[\[{])")
_FENCES_READ = 8
MOST_CALLS = 64  # each broken call may look through all that follows; so many of them keep the time linear
_ORPHAN = re.compile(r"</(?:parameter|function|tool_call|function_call|invoke)>\Z")
_LONGEST_ORPHAN = len("</function_call>")
_QUOTE = "[\"'“”]"
_CALL_SHAPED = re.compile(
    rf"[\[\s]*\{{\s*{_QUOTE}(?:name|tool|tool_name|function)?{_QUOTE}\s*:\s*{_QUOTE}[^\"'“”]{{1,200}}{_QUOTE}\s*,"
    rf"\s*{_QUOTE}(?:arguments|parameters|args){_QUOTE}\s*:"
)


def calls_in_text(text: str, tools: Tools, repairs: list[str]) -> list[Outcome]:
    """The calls in `text`, in order, each ready or with what is wrong with it; none where it is an answer.

    `text` holds no thinking any more. Repairs are added by name.
    """
    calls = _marked(text, tools, repairs) or _bare(text, tools, repairs)
    if not calls and _ORPHAN.search(text.rstrip()[-_LONGEST_ORPHAN:]):
        return [malformed("only the end of one is there")]
    return calls


def _marked(text: str, tools: Tools, repairs: list[str]) -> list[Outcome]:
    calls: list[Outcome] = []
    place = 0
    while len(calls) < MOST_CALLS and (marker := _MARKER.search(text, place)) is not None:
        if marker.lastgroup is None:
            if calls:
                break  # the model went on with a result, and perhaps an answer, of its own making
            place = marker.end()
            continue
        _, read = _MARKERS[marker.lastgroup]
        found, end = read(Context(text, marker.end(), tools, repairs))
        calls += found
        place = max(end, marker.end())
    return calls


def _bare(text: str, tools: Tools, repairs: list[str]) -> list[Outcome]:
    start = len(text) - len(text.lstrip())
    opening = _FENCE.match(text, start)
    start = opening.end() if opening else start
    first = text[start : start + 1]
    if first in ("{", "["):
        try:
            calls, end = text_forms.json_calls(Context(text, start, tools, repairs), needs_arguments=True)
        except ValueError as error:
            if _CALL_SHAPED.match(text, start):
                return [malformed(str(error))]
        else:
            return [*calls, *_fenced(text, end, tools, repairs)] if opening else calls
    return _pythonic(text, start, tools, repairs) if first == "[" else _fenced(text, start, tools, repairs)


def _pythonic(text: str, start: int, tools: Tools, repairs: list[str]) -> list[Outcome]:
    """A reply that is a list of calls as Python writes them, and nothing else."""
    noted: list[str] = []
    try:
        _, end = python_form.calls_at(text, start, noted)
    except ValueError:
        return []
    if text[end:].strip(" \n`"):
        return []
    return text_forms.python_calls(Context(text, start, tools, repairs))[0]


def _fenced(text: str, start: int, tools: Tools, repairs: list[str]) -> list[Outcome]:
    """Fences behind prose: calls only if all are of tools that were offered, for prose may show others as examples."""
    offered = offered_names(tools)
    found: list[Outcome] = []
    for _, fence in zip(range(_FENCES_READ), _FENCE.finditer(text, start), strict=False):
        noted: list[str] = []
        try:
            calls, _ = text_forms.json_calls(Context(text, fence.end(), tools, noted), needs_arguments=True)
        except ValueError:
            continue
        names = [getattr(call, "name", None) or getattr(call, "tool", None) for call in calls]
        if all(name in offered for name in names):
            repairs += [repair for repair in noted if repair not in repairs]
            found += calls
    return found
