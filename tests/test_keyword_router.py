"""The keyword router: one tool, or none; whole words, in any case, whatever the length."""

from __future__ import annotations

import time

import pytest

from agent.strategies.keyword_router import MAX_CHARS, KeywordRouter
from agent.tools.base import Params, Tool, ToolContext
from agent.tools.registry import TOOLSETS, ToolRegistry, toolset


class NoParams(Params):
    pass


def tool(named: str, *words: str) -> Tool[NoParams]:
    class Named(Tool[NoParams]):
        name = named
        description = "Does nothing."
        effect = "read"
        keywords = words
        params = NoParams

        def run(self, params: NoParams, context: ToolContext) -> str:
            return "nothing"

    return Named()


def router(*tools: Tool[NoParams]) -> KeywordRouter:
    return KeywordRouter(ToolRegistry(tools, ToolContext()))


ABACUS = tool("abacus", "plus", "square root")
READ_PAGE = tool("read_page", "page", "read")
SIGNS = tool("signs", "+", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is 2 PLUS 3?", "abacus"),
        ("the Square\n root, please", "abacus"),
        ("a square with a root", None),
        ("surplus and plusses", None),  # no whole word
        ("the abacus", "abacus"),
        ("turn the page plus one", None),  # a tie
        ("read the page plus one", "read_page"),  # two words against one
        ("plus, plus and plus the page", None),  # each word counts once
        ("use read_page: 2 plus the square root", "read_page"),  # its name decides
        ("read_page2 is not a name", None),
        ("2 + 2", None),  # signs are no words
        ("", None),
    ],
)
def test_one_tool_or_none(text: str, expected: str | None) -> None:
    assert router(ABACUS, READ_PAGE, SIGNS).route(text) == expected


def test_two_tools_called_by_name_are_a_tie_whatever_else_is_said() -> None:
    both = router(READ_PAGE, tool("turn_page"))
    assert both.route("turn_page, then turn it") == "turn_page"
    assert both.route("turn_page, then read_page: read, read") is None


def test_without_tools_there_is_nothing_to_route_to() -> None:
    assert router().route("2 plus 3") is None


def test_the_order_of_the_tools_changes_nothing() -> None:
    for text in ("2 plus 3", "the page", "plus the page"):
        assert router(ABACUS, READ_PAGE).route(text) == router(READ_PAGE, ABACUS).route(text)


@pytest.mark.parametrize("piece", ["plus ", "plusplus", "\u0130", "square ", "_" * 7])
def test_a_long_message_is_read_at_its_beginning_only_and_at_once(piece: str) -> None:
    started = time.perf_counter()
    answer = router(ABACUS, READ_PAGE).route(piece * 200_000)
    assert time.perf_counter() - started < 1
    assert answer == ("abacus" if piece == "plus " else None)
    assert router(ABACUS).route("x" + " x" * MAX_CHARS + " plus") is None


def test_every_shipped_tool_is_found_by_its_name() -> None:
    tools = ToolRegistry(toolset(",".join(TOOLSETS)), ToolContext())
    for name in tools.names:
        assert KeywordRouter(tools).route(f"please use {name} now") == name
