"""The text of an HTML page. To be run isolated."""

from __future__ import annotations

from typing import Any

from agent.tools.parsers.html_tree import TooDeepError, page_tree, text_of, title_of


def parse(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Title and text of a page, as ParsedPage. `request` holds the `charset` that the server named, and `max_chars`."""
    try:
        root = page_tree(data, request["charset"])
    except TooDeepError:
        return {"too_deep": True}
    text = "" if root is None else text_of(root)
    return {"title": title_of(root), "text": text[: request["max_chars"]], "chars": len(text)}
