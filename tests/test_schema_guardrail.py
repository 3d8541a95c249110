"""Prompt bleed is told from values: what a model was told about a parameter, against what a person may well mean."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agent.guards.schema_guardrail import Bleed, prompt_bleed
from agent.state import ToolCall
from agent.tools.calculate_math import CalculateMathParams
from agent.tools.clock import ClockParams
from agent.tools.execute_code import ExecuteCodeParams
from agent.tools.json_schema import plain_schema
from agent.tools.web_search import WebSearchParams
from agent.tools.write_file import WriteFileParams


def _texts(required: tuple[str, ...] = (), **described: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": text, "maxLength": 400} for name, text in described.items()}
    return {"type": "object", "properties": properties, "required": list(required or described)}


SCHEMAS = {
    "search": plain_schema(WebSearchParams),
    "math": plain_schema(CalculateMathParams),
    "code": plain_schema(ExecuteCodeParams),
    "now": plain_schema(ClockParams),
    "file": plain_schema(WriteFileParams),
    "write": _texts(path="Path of the file inside the workspace.", content="The whole text that the file shall hold."),
    "weather": _texts(city="Name of the city to get the weather for."),
    "clock": _texts(timezone="An IANA name of a time zone; UTC where it is left out."),
    "short": _texts(city="City."),
    "two": _texts(city="City name"),
}

BLED = [
    # -- the description, whole or in part
    ("search", "query", "The words to look for.", "Who wrote Dracula?"),
    ("search", "query", "the words to look for", "Who wrote Dracula?"),
    ("search", "query", "THE WORDS -- TO LOOK FOR", "Who wrote Dracula?"),
    ("search", "query", "'The words to look for.'", "Who wrote Dracula?"),
    ("search", "query", "The words to look for: author of Dracula", "Who wrote Dracula?"),
    ("search", "query", "words to look for", "Who wrote Dracula?"),
    ("search", "query", "words to look", "Who wrote Dracula?"),
    ("search", "query", "Dracula author (the words to look for)", "Who wrote Dracula?"),
    ("search", "query", "look for the words", "Who wrote Dracula?"),
    ("search", "query", "to look for", "Who wrote Dracula?"),
    ("search", "query", "to look for Dracula", "Who wrote Dracula?"),
    ("math", "expression", "Arithmetic only: numbers", "What is 7 times 9?"),
    ("math", "expression", "numbers, parentheses, + - * / // % and ^ for powers", "What is 7 times 9?"),
    ("math", "expression", "the constants pi and e", "What is 7 times 9?"),
    ("math", "expression", "sqrt, sin, cos, tan (radians)", "What is 7 times 9?"),
    ("code", "code", "The whole program as plain source.", "Print the primes below 50."),
    ("code", "code", "It has the standard library and no input.", "Print the primes below 50."),
    ("code", "code", "# The whole program as plain source\nprint(1)", "Print the primes below 50."),
    ("code", "code", "as plain source", "Print the primes below 50."),
    ("weather", "city", "Name of the city", "How warm is it in Oslo?"),
    ("weather", "city", "city name, weather", "How warm is it in Oslo?"),
    ("weather", "city", "the city to get the weather for is Oslo", "How warm is it in Oslo?"),
    ("write", "path", "path/of/the/file/inside/the/workspace", "Save a haiku."),
    ("write", "path", "inside the workspace", "Save a haiku."),
    ("write", "content", "The whole text", "Save a haiku."),
    ("write", "content", "text that the file shall hold", "Save a haiku."),
    ("clock", "timezone", "IANA name of a time zone", "What time is it?"),
    ("clock", "timezone", "UTC where it is left out", "What time is it?"),
    ("short", "city", "City", "How warm is it in Oslo?"),
    ("two", "city", "the name of the city", "How warm is it in Oslo?"),
    ("now", "timezone", "The name of a zone in the IANA database", "What time is it?"),
    ("now", "timezone", "offset from UTC in hours and minutes", "What time is it?"),
    ("now", "timezone", "Leave it out", "What time is it?"),
    ("file", "path", "relative to the workspace", "Save a haiku."),
    ("file", "path", "The file, relative to the workspace", "Save a haiku."),
    ("file", "content", "The text exactly as it is to stand there, line ends included.", "Save a haiku."),
    # -- the schema
    ("search", "query", "query", "Who wrote Dracula?"),
    ("search", "query", "string", "Who wrote Dracula?"),
    ("search", "query", "<string>", "Who wrote Dracula?"),
    ("search", "query", "<query>", "Who wrote Dracula?"),
    ("search", "query", "{query}", "Who wrote Dracula?"),
    ("search", "query", "{{ query }}", "Who wrote Dracula?"),
    ("search", "query", "${query}", "Who wrote Dracula?"),
    ("search", "query", "[your query here]", "Who wrote Dracula?"),
    ("search", "query", "<insert value here>", "Who wrote Dracula?"),
    ("search", "query", "<words to look for>", "Who wrote Dracula?"),
    ("search", "query", "query (text, required)", "Who wrote Dracula?"),
    ("search", "query", "query: str", "Who wrote Dracula?"),
    ("search", "query", "your query", "Who wrote Dracula?"),
    ("search", "query", "text, required", "Who wrote Dracula?"),
    ("search", "query", '{"type": "string"}', "Who wrote Dracula?"),
    ("search", "query", "{'type': 'string', 'maxLength': 400}", "Who wrote Dracula?"),
    ("search", "query", '{"type": "string", "description": "Search terms"}', "Who wrote Dracula?"),
    ("search", "query", '{"query": {"type": "string", "minLength": 1}}', "Who wrote Dracula?"),
    ("search", "query", 'query: {"type": "string", "maxLength": 400}', "Who wrote Dracula?"),
    (
        "search",
        "query",
        '{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}',
        "Who wrote Dracula?",
    ),
    ("write", "content", '{"type": "string", "maxLength": 400}', "Save a haiku."),
    ("write", "content", "<content>", "Save a haiku."),
]

VALUES = [
    # -- plain values
    ("search", "query", "Dracula author", "Who wrote Dracula?"),
    ("search", "query", "who wrote Dracula", "Who wrote Dracula?"),
    ("search", "query", "Who wrote Dracula?", "Who wrote Dracula?"),
    ("math", "expression", "749 * 192", "What is 749 x 192?"),
    ("math", "expression", "sin(cos(tan(1)))", "Take the tangent of 1, its cosine, and the sine of that."),
    ("math", "expression", "floor(ceil(round(min(max(3, 2), 1))))", "Work it out."),
    ("math", "expression", "pi * e", "Multiply the circle number by Euler's."),
    ("math", "expression", "sqrt(pow(3, 2) + pow(4, 2))", "How long is the diagonal of 3 by 4?"),
    ("math", "expression", "factorial(5) / comb(5, 2)", "5! over 5 choose 2"),
    ("code", "code", "print(sum(range(10)))", "Add up 0 to 9."),
    ("code", "code", "import math\nfor n in range(3):\n    print(math.sqrt(n))\n", "Roots of 0, 1, 2."),
    ("code", "code", "text = 'the standard input'\nprint(len(text))", "Count letters."),
    ("clock", "timezone", "Europe/Oslo", "What time is it in Oslo?"),
    ("clock", "timezone", "UTC", "What time is it?"),
    ("now", "timezone", "Europe/Oslo", "What time is it in Oslo?"),
    ("now", "timezone", "UTC", "What time is it?"),
    ("now", "timezone", "+05:30", "What time is it half past five hours ahead?"),
    ("file", "path", "workspace/file.txt", "Save a haiku."),
    ("file", "path", "folders.md", "Save a haiku."),
    ("file", "content", "The end of the line is as it is.\nThere it is to stay.\n", "Save a haiku."),
    ("weather", "city", "Oslo", "How warm is it in Oslo?"),
    ("short", "city", "Mexico City", "How warm is it in the capital of Mexico?"),
    ("short", "city", "New York City", "How warm is it in NYC?"),
    ("two", "city", "Kansas City", "Weather where the Chiefs play?"),
    ("write", "path", "notes/file.txt", "Save a haiku."),
    ("write", "path", "workspace.yaml", "Save a haiku."),
    ("write", "content", "An old silent pond.\nA frog jumps into the pond.\nSplash! Silence again.", "Save a haiku."),
    ("search", "query", "", "Who wrote Dracula?"),
    ("search", "query", "???", "Who wrote Dracula?"),
    ("search", "query", "吸血鬼 作者", "Who wrote Dracula?"),
    # -- function words in a row, which stand in any text
    ("weather", "city", "The Hague, the seat of the government", "How warm is it where the Dutch parliament is?"),
    ("search", "query", "what to look for when buying a used bicycle", "Advice on second-hand bicycles?"),
    ("search", "query", "how to look for a flat in Oslo as a student", "Advice on finding a room?"),
    ("write", "content", "To be, or not to be: that is the question of the hour.", "Save a quote."),
    # -- a long text holds three words of anything
    (
        "write",
        "content",
        (
            "We walked along the river for most of the day. In the evening she read the whole text that her brother "
            "had sent, twice, and then put it into the fire. Nobody spoke of it again until the next spring."
        ),
        "Save a short story.",
    ),
    (
        "code",
        "code",
        (
            "# Only the standard library is used here, so that it runs anywhere.\nimport statistics\n\n"
            "heights = [1, 2, 3]\nmean = statistics.mean(heights)\nspread = statistics.pstdev(heights)\n"
            "print('mean of all heights', mean)\nprint('spread of all heights around that mean', spread)\n"
        ),
        "Mean and spread of 1, 2, 3.",
    ),
    # -- what the user said may be said again
    ("search", "query", "the words to look for", "Search for: the words to look for"),
    ("search", "query", "words to look up in Latin", "Find me words to look up in Latin."),
    ("search", "query", "query", "Look up the word query."),
    ("search", "query", "string", "What is a string in programming?"),
    ("search", "query", "query string", "Explain what a query string is."),
    ("search", "query", "text type", "Is text a type?"),
    ("search", "query", "query string parsing in browsers", "How do browsers read the part after the question mark?"),
    ("search", "query", "look up python string type", "Python types?"),
    ("write", "content", "text", "Write the word text into a.txt."),
    ("write", "content", "inside the workspace", "Write 'inside the workspace' into a.txt."),
    ("code", "code", "print('plain source')", "Print 'plain source'."),
    # -- JSON and brackets that are meant
    ("write", "content", '{"type": "object", "properties": {"age": {"type": "integer"}}}', "Save a form for an age."),
    ("write", "content", '{"type": "string"}', "Write a JSON schema for a text."),
    ("write", "content", '{"name": "Ada", "type": "string quartet"}', "Save Ada's ensemble."),
    ("write", "content", '{"title": "Dracula", "description": "A novel"}', "Save the book's data."),
    ("write", "content", "<html><body>Hello</body></html>", "Write a page."),
    ("write", "content", "[1, 2, 3]", "Save the numbers 1 to 3."),
    ("search", "query", "<a>", "What does <a> do in HTML?"),
    ("search", "query", "{", "What does { mean?"),
    ("search", "query", "'type': 'string' error in OpenAPI", "Why does my API file fail?"),
]


def _bleed(schema: str, parameter: str, value: str, user_text: str) -> Bleed | None:
    return prompt_bleed(ToolCall(name="tool", arguments={parameter: value}), SCHEMAS[schema], user_text)


@pytest.mark.parametrize(("schema", "parameter", "value", "user_text"), BLED)
def test_what_the_prompt_said_is_bleed(schema: str, parameter: str, value: str, user_text: str) -> None:
    found = _bleed(schema, parameter, value, user_text)
    assert found is not None
    assert found.parameter == parameter
    assert parameter in found.why


@pytest.mark.parametrize(("schema", "parameter", "value", "user_text"), VALUES)
def test_a_value_is_none(schema: str, parameter: str, value: str, user_text: str) -> None:
    assert _bleed(schema, parameter, value, user_text) is None


@pytest.mark.parametrize("schema", [name for name in SCHEMAS if name not in ("write", "file")])
def test_a_description_is_bleed_in_every_tool_of_one_text_and_the_users_message_takes_its_place(schema: str) -> None:
    (parameter, node), *_ = SCHEMAS[schema]["properties"].items()
    found = _bleed(schema, parameter, node["description"], " Who wrote Dracula? ")
    assert found is not None
    assert found.replacement == ToolCall(name="tool", arguments={parameter: "Who wrote Dracula?"})


def test_the_replacement_keeps_the_other_arguments_and_fits_the_parameter() -> None:
    schema = _texts(query="The words to look for.")
    schema["properties"]["limit"] = {"type": "integer", "description": "How many."}
    call = ToolCall(name="search", arguments={"query": "The words to look for.", "limit": 3}, id="c1")
    found = prompt_bleed(call, schema, "x" * 399 + " y")
    assert found is not None
    assert found.replacement == ToolCall(name="search", arguments={"query": "x" * 399, "limit": 3}, id="c1")
    assert call.arguments["query"] == "The words to look for."


@pytest.mark.parametrize(
    "changes",
    [
        {"other": {"type": "string", "description": "Another text.", "maxLength": 9}},
        {"limit": {"type": "integer", "description": "How many."}},
    ],
)
def test_a_tool_that_takes_more_than_one_text_is_refused(changes: dict[str, Any]) -> None:
    schema = _texts(query="The words to look for.")
    schema["properties"] |= changes
    schema["required"] = list(schema["properties"])
    found = prompt_bleed(ToolCall(name="f", arguments={"query": "The words to look for."}), schema, "Who?")
    assert found is not None
    assert found.replacement is None


def test_without_a_message_there_is_nothing_to_put_in_its_place() -> None:
    found = _bleed("search", "query", "The words to look for.", "  ")
    assert found is not None
    assert found.replacement is None


def test_an_optional_text_is_a_text_and_a_choice_is_none() -> None:
    optional = {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}], "description": "Where to look for it."}
    choice = {"type": "string", "enum": ["to look for it"], "description": "Where to look for it."}
    schema = {"type": "object", "properties": {"where": optional, "choice": choice}, "required": []}
    found = prompt_bleed(ToolCall(name="f", arguments={"where": "where to look for it"}), schema, "In Oslo")
    assert found is not None
    assert found.replacement == ToolCall(name="f", arguments={"where": "In Os"})
    assert prompt_bleed(ToolCall(name="f", arguments={"choice": "to look for it"}), schema, "In Oslo") is None


@pytest.mark.parametrize("value", [None, 7, ["The words to look for."], {"type": "string"}])
def test_what_is_no_text_is_left_to_validation(value: Any) -> None:
    assert prompt_bleed(ToolCall(name="f", arguments={"query": value}), SCHEMAS["search"], "Who?") is None


@pytest.mark.parametrize("piece", ["{", '{"a":', "the words to ", "<", "[", "'", "to look ", '{"type": "string"}', "$"])
def test_a_long_value_takes_no_long_time(piece: str) -> None:
    value = piece * (1_000_000 // len(piece))
    started = time.process_time()
    _bleed("search", "query", value, value)
    assert time.process_time() - started < 5
