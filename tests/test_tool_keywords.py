"""The words that point at each shipped tool: plain requests find it, and talk that needs no tool finds none."""

from __future__ import annotations

import pytest

from agent.strategies.keyword_router import KeywordRouter
from agent.tools.base import ToolContext
from agent.tools.registry import ToolRegistry, toolset

ROUTER = KeywordRouter(ToolRegistry(toolset("core,fs,code"), ToolContext()))


@pytest.mark.parametrize(
    ("message", "tool"),
    [
        ("What is the capital of Peru?", "web_search"),
        ("Who wrote the novel Dune?", "web_search"),
        ("Search the web for red kites", "web_search"),
        ("Calculate 12 plus 30", "calculate_math"),
        ("What is the square root of 81?", "calculate_math"),
        ("How much is 7 multiplied by 8?", "calculate_math"),
        ("Run this Python code: print(2)", "execute_code"),
        ("Write a program that prints the primes", "execute_code"),
        ("What time is it in Tokyo?", "clock"),
        ("What's today's date?", "clock"),
        ("Which files are in the workspace?", "list_directory"),
        ("List the files of the folder docs", "list_directory"),
        ("Read notes.txt and tell me the total", "read_file"),
        ("What does the file report.md say?", "read_file"),
        ("Write hello to notes.txt", "write_file"),
        ("Append a line to log.txt", "write_file"),
        ("Create a file called b.txt with the word yes", "write_file"),
        ("Read lines 10 to 20 of main.py", "read_file_chunk"),
        ("Show me lines 5 to 9 of setup.cfg", "read_file_chunk"),
        ("Make a folder called drafts", "manage_path"),
        ("Delete old.txt", "manage_path"),
        ("Rename a.txt to b.txt", "manage_path"),
        ("Which files mention the word invoice?", "search"),
        ("Search the files for TODO", "search"),
        ("Where in the code is the budget reserved?", "search_codebase"),
        ("Find where the budget is reserved and explain it", "search_codebase"),
        ("Search the codebase for parse_rules", "search_codebase"),
    ],
)
def test_a_plain_request_finds_its_tool(message: str, tool: str) -> None:
    assert ROUTER.route(message) == tool


@pytest.mark.parametrize(
    "message",
    [
        "Hello, how are you?",
        "Thank you, that was helpful.",
        "Tell me a joke",
        "Review this: capacity = 1024 * 16;",
        "I have already done it three times",
        "Explain recursion to a child",
        "Translate good morning into French",
    ],
)
def test_talk_that_needs_no_tool_finds_none(message: str) -> None:
    assert ROUTER.route(message) is None
