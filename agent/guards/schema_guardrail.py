"""Prompt bleed: a text argument that holds what the model was told about the parameter instead of a value for it.

No model is asked. What the user said may be said again: words that stand in the user's message are never bleed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.llm import lenient_json
from agent.state import ToolCall

RUN = 3  # words of a description in a row
# From 25 words on a text (a file, a program) may hold three words of anything by chance: an eighth of it is asked for,
# or a description of six words or more, whole.
LONG_SHARE = 8
TELLING = 6
_LOOKED_AT = 20_000  # characters of a value; what follows is no longer a value that a prompt bled into

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_APOSTROPHE = re.compile("['\u2019]")
# Between the words of a sentence; anything else (brackets, operators) says that this is code or a formula.
_PROSE_GAP = re.compile(r"[\s,.;:!?'\"\u2018-\u201d\u2013\u2014-]*")
_QUOTED = "\"'`\u201c\u201d\u2018\u2019"
_BRACKETED = re.compile(r"<[^<>]{1,200}>|\{{1,2}[^{}\"':]{1,200}\}{1,2}|\[[^\[\]]{1,200}\]|\$\{?\w{1,80}\}?")
_OBJECT = re.compile(r"\{\s*[\"'A-Za-z\u201c]")
_OBJECTS_READ = 8


def _these(words: str) -> frozenset[str]:
    return frozenset(words.split())


_FUNCTION_WORDS = _these(
    "a an the this that these those it its and or but nor not no of to in on at by for from with without as into over "
    "than then so if when where which who what whose how is are was were be been being has have had do does did can "
    "could may might must shall should will would there here all any each every some such only also just you your i "
    "we our they their he she his her him them me my us one out up down about"
)
_TYPE_WORDS = _these("string str text type required optional parameter argument param arg")
_FILLERS = _these("a an the your my some value here goes insert enter put actual user description of is")
_SCHEMA_KEYS = _these(
    "type description title default format pattern minLength maxLength enum const examples anyOf items required "
    "properties additionalProperties decodePattern"
)


@dataclass(frozen=True)
class Bleed:
    """A prompt that bled into an argument. `why` is a line for the model and for the person.

    `replacement` is the call with the user's message in the argument's place; None: the call is refused.
    """

    parameter: str
    why: str
    replacement: ToolCall | None


def prompt_bleed(call: ToolCall, schema: dict[str, Any], user_text: str, heard: str = "") -> Bleed | None:
    """The first text argument that is prompt bleed, None where there is none.

    `schema` is the tool's plain parameter schema, `user_text` what the user said last, `heard` what else the user and
    the tools have said.
    """
    user = _words(f"{user_text}\n{heard}")
    for parameter, node in schema.get("properties", {}).items():
        value = call.arguments.get(parameter)
        if isinstance(value, str) and _text_branches(node):
            repeated = _repeated(value[:_LOOKED_AT], parameter, node, user)
            if repeated is not None:
                why = f"the argument {parameter} of {call.name} repeats {repeated}; give the value itself"
                return Bleed(parameter, why, _replacement(call, schema, parameter, user_text))
    return None


def _replacement(call: ToolCall, schema: dict[str, Any], parameter: str, user_text: str) -> ToolCall | None:
    """The call with the user's message, where the tool has this one text parameter and needs no other."""
    properties = schema["properties"]
    texts = [name for name, node in properties.items() if _text_branches(node)]
    longest = next((node["maxLength"] for node in _text_branches(properties[parameter]) if "maxLength" in node), None)
    said = user_text.strip()[:longest].rstrip()
    if texts != [parameter] or set(schema.get("required", ())) - {parameter} or not said:
        return None
    return call.model_copy(update={"arguments": {**call.arguments, parameter: said}})


def _text_branches(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The branches of a parameter's schema that take a text of the model's own wording; none where it takes none."""
    branches = node.get("anyOf", [node])
    return [b for b in branches if b.get("type") == "string" and "enum" not in b and "const" not in b]


def _repeated(value: str, parameter: str, node: dict[str, Any], user: list[str]) -> str | None:
    """What of the prompt a value repeats, in words; None where it is a value."""
    words = _words(value)
    if words and _holds(user, words):
        return None
    if _repeats_description(value, words, _description(node), user):
        return "its own description"
    if _is_placeholder(value, words, parameter, node, user) or _holds_schema(value, parameter, user):
        return "its own schema"
    return None


# -- the description --------------------------------------------------------------------------------------------------


def _description(node: dict[str, Any]) -> str:
    return str(node.get("description", ""))


def _repeats_description(value: str, words: list[str], description: str, user: list[str]) -> bool:
    described = _words(description)
    if not words or not described:
        return False
    return words == described or _holds_run(value, words, description, user) or _holds_most(words, set(described), user)


def _holds_run(value: str, words: list[str], description: str, user: list[str]) -> bool:
    """Whether the value holds words of the description in a row, and more of them than chance puts there."""
    described = _words(description)
    told = set(_triples(described)) - set(_triples(user))
    whole = len(described) if len(described) >= TELLING else len(words)
    enough = max(RUN, min(len(words) // LONG_SHARE, whole))
    return any(
        len(run) >= enough and _tells(run, len(words))
        for stretch in _stretches(value, description)
        for run in _runs(stretch, told)
    )


def _tells(run: list[str], among: int) -> bool:
    """Whether a run says something: `one of the` stands in any text, `to look for` in many a query."""
    content = sum(word not in _FUNCTION_WORDS for word in run)
    return content >= 2 or (content == 1 and 2 * len(run) >= among)


def _holds_most(words: list[str], described: set[str], user: list[str]) -> bool:
    """Whether most content words of the description are there, and more of them than words of the value's own."""
    due = described - _FUNCTION_WORDS
    given = set(words) - _FUNCTION_WORDS
    held = (due & given) - set(user)
    own = given - due
    return 2 * len(held) > len(due) and (not own or (len(held) >= 2 and len(own) < len(held)))


def _runs(words: list[str], told: set[tuple[str, ...]]) -> Iterator[list[str]]:
    """The stretches of `words` of which every three in a row were told."""
    begin: int | None = None
    for place, triple in enumerate(_triples(words)):
        if triple in told:
            begin = place if begin is None else begin
        elif begin is not None:
            yield words[begin : place + RUN - 1]
            begin = None
    if begin is not None:
        yield words[begin:]


# -- the schema -------------------------------------------------------------------------------------------------------


def _is_placeholder(value: str, words: list[str], parameter: str, node: dict[str, Any], user: list[str]) -> bool:
    """Whether the value is the parameter's name or type and nothing else, as in `string` or `query (text, required)`.

    In brackets (`<words to look for>`) the description's words count as well, and nothing else has to be there.
    """
    named = set(_words(parameter.replace("_", " ")))
    known = named | _TYPE_WORDS | _FILLERS
    given = set(words)
    bare = value.strip().strip(_QUOTED)
    if _BRACKETED.fullmatch(bare):
        known |= set(_words(_description(node)))
        telling = given
    else:
        telling = set() if "{" in bare else given & (named | _TYPE_WORDS)
    return bool(telling) and given <= known and not telling <= set(user)


def _holds_schema(value: str, parameter: str, user: list[str]) -> bool:
    """Whether the value is, but for a few words, the schema of the parameter or of its tool as JSON or Python has it.

    A user who speaks of a schema may well want one written.
    """
    if not {"schema", "schemas"}.isdisjoint(user):
        return False
    place = 0
    for _ in range(_OBJECTS_READ):
        begins = _OBJECT.search(value, place)
        if begins is None:
            return False
        try:
            found, place = lenient_json.value_at(value, begins.start(), [])
        except ValueError:
            return False
        if 2 * (place - begins.start()) >= len(value.strip()) and _is_schema(found, parameter):
            return True
    return False


def _is_schema(found: Any, parameter: str) -> bool:
    if not isinstance(found, dict):
        return False
    inner = found.get("properties", found)
    if isinstance(inner, dict) and isinstance(inner.get(parameter), dict):
        return _is_schema(inner[parameter], parameter)
    return set(found) <= _SCHEMA_KEYS and (found.get("type") == "string" or "anyOf" in found)


# -- words ------------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """The words of a text, casefolded, without punctuation; "file's" is "file"."""
    return [_stem(word) for word in _WORD.findall(text.casefold())]


def _stretches(value: str, description: str) -> Iterator[list[str]]:
    """The value's words in stretches, which end where between two words stands what no prose has: brackets, operators.

    Unless it stands between two words of the description as well.
    """
    told = {gap for _, gap in _with_gaps(description)}
    stretch: list[str] = []
    for word, gap in _with_gaps(value):
        if stretch and not (_PROSE_GAP.fullmatch(gap) or gap in told):
            yield stretch
            stretch = []
        stretch.append(word)
    yield stretch


def _with_gaps(text: str) -> Iterator[tuple[str, str]]:
    """Each word with what stands before it."""
    folded = text.casefold()
    ended = 0
    for word in _WORD.finditer(folded):
        yield _stem(word.group()), folded[ended : word.start()]
        ended = word.end()


def _stem(word: str) -> str:
    return _APOSTROPHE.split(word)[0]


def _triples(words: list[str]) -> list[tuple[str, ...]]:
    return list(zip(words, words[1:], words[2:], strict=False))


def _holds(words: list[str], part: list[str]) -> bool:
    """Whether `part` stands in `words` in a row."""
    return f" {' '.join(part)} " in f" {' '.join(words)} "
