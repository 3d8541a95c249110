"""What stands between the marks around foreign text in a result."""

from __future__ import annotations

import re

from agent.state import ToolResult

_FRAMED = re.compile(
    r"Between the two lines with ([0-9a-f]{8}) stands data .*\n--- begin \1 ---\nFrom [^\n]+\n\n(.*)\n--- end \1 ---\Z",
    re.DOTALL,
)


def said(result: ToolResult) -> str:
    """The text that somebody else wrote; it has to be marked as theirs."""
    framed = _FRAMED.match(result.data)
    assert framed is not None, result
    return framed[2]
