"""A page as a tree, without what is no text of it: shared by the parsers of pages. To be run isolated."""

from __future__ import annotations

import re
from typing import Any

from lxml import etree, html

from agent.tools.parsers import MAX_TITLE_CHARS
from agent.tools.parsers.charsets import charset_of, decoded

# What has no text for a reader, or a way to act.
_DROPPED = (
    *("script", "style", "noscript", "template", "iframe", "frame", "frameset", "object", "embed", "applet", "svg"),
    *(
        "math",
        "canvas",
        "audio",
        "video",
        "select",
        "option",
        "datalist",
        "input",
        "textarea",
        "button",
        "base",
        "link",
    ),
)
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr"),
        *("html", "li", "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead"),
        *("tr", "ul", "title"),
    }
)
_CELLS = frozenset({"td", "th"})
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_SNIFFED_BYTES = 2048


class TooDeepError(Exception):
    """The page's elements stand in each other more deeply than any parser should follow."""


def page_tree(data: bytes, charset: str | None) -> html.HtmlElement | None:
    """The page, or None where there is nothing in it.

    Raises:
        TooDeepError: it is nested more than 250 deep.
    """
    meta = _META_CHARSET.search(data[:_SNIFFED_BYTES])
    text = decoded(data, charset_of(data, charset or (meta[1].decode("ascii") if meta else None)))
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True)
    try:
        root = html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except etree.ParserError:  # says that the document is empty
        root = None
    if any(fault.type_name == "ERR_RESOURCE_LIMIT" for fault in parser.error_log):
        raise TooDeepError
    if root is not None:
        etree.strip_elements(root, *_DROPPED, with_tail=False)
    return root


def title_of(root: html.HtmlElement | None) -> str:
    """The page's title on one line; empty where it has none."""
    title = None if root is None else root.findtext(".//title")
    return " ".join(str(title or "").split())[:MAX_TITLE_CHARS]


def text_of(root: html.HtmlElement) -> str:
    """The text of a tree, each block on lines of its own, with white space folded; in `pre`, lines stay lines."""
    pieces: list[str] = []
    body, pre = root.find("body"), 0
    for event, element in etree.iterwalk(root if body is None else body, events=("start", "end")):
        if element.tag == "pre":
            pre += 1 if event == "start" else -1
        text = element.text if event == "start" else element.tail
        pieces += [_break(element.tag), (text or "") if pre else _folded(text)]
    lines = (" ".join(line.split()) for line in "".join(pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def _break(tag: Any) -> str:
    if tag in _BLOCKS:
        return "\n"
    return " " if tag in _CELLS else ""


def _folded(text: str | None) -> str:
    """Text without its line breaks, which mean nothing in a page; a blank stays where one was."""
    return re.sub(r"\s+", " ", text) if text else ""
