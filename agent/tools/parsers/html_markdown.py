"""The main content of an HTML page as Markdown, with nothing in it that could act. To be run isolated."""

from __future__ import annotations

import re
from typing import Any

import trafilatura
from lxml import html

from agent.tools.parsers.html_tree import TooDeepError, page_tree, text_of, title_of

_TAG = re.compile(r"\\?<(?=[A-Za-z/!?])")  # as text, escaped or in code: it is to be text to every reader


def parse(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Title and Markdown of a page, as ParsedPage.

    `request` holds the page's `url`, the `charset` that the server named, and `max_chars`.
    """
    try:
        root = page_tree(data, request["charset"])
    except TooDeepError:
        return {"too_deep": True}
    title, text = title_of(root), "" if root is None else _markdown(root, request["url"])
    return {"title": title, "text": text[: request["max_chars"]], "chars": len(text)}


def _markdown(root: html.HtmlElement, url: str) -> str:
    whole = text_of(root)
    _make_links_harmless(root, url)
    main = trafilatura.extract(root, output_format="markdown", include_links=True, include_comments=False)
    # A page of a line or two has no main content to be found: all of it is.
    return _TAG.sub("&lt;", main or whole)


def _make_links_harmless(root: html.HtmlElement, url: str) -> None:
    """Links lead to the web or are mere text; a picture is what its author says of it, for it would tell who reads."""
    root.make_links_absolute(url, resolve_base_href=False, handle_failures="discard")
    for link in root.xpath("//a"):
        if not str(link.get("href", "")).lower().startswith(("http://", "https://")):
            link.drop_tag()
    for image in root.xpath("//img"):
        said = " ".join(str(image.get("alt", "")).split())
        image.text = f"(image: {said})" if said else ""
        image.drop_tag()
