"""What the tools of the web share: a page fetched for a run, and its text handed on as what it is, foreign."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.egress.faults import FetchError
from agent.egress.fetch import Page, Reach, Wanted, fetch
from agent.egress.target import MAX_URL_CHARS, Target, read_url
from agent.errors import UsageError
from agent.redaction import redacted
from agent.sandbox.base import SandboxError
from agent.sandbox.parsing import PARSER_LIMITS, parsed
from agent.tools.base import Excerpt, Params, ToolContext, ToolError
from agent.tools.foreign import foreign
from agent.tools.parsers import MAX_TITLE_CHARS
from agent.tools.parsers.charsets import charset_of, decoded

FETCH_SECONDS = 15.0
PAGE_TIMEOUT_SECONDS = FETCH_SECONDS + PARSER_LIMITS.seconds + 5.0
MAX_PARSED_CHARS = 8000  # of a page's text that come out of the sandbox; more than any result takes
_MAX_URL_SHOWN = 200
_HTML = ("text/html", "application/xhtml+xml")
_PAGES = Wanted(accept=("text/*", *_HTML[1:], "application/json", "application/*+json"), deadline_seconds=FETCH_SECONDS)
_SNIFFED_BYTES = 1024
# Bytes that no text begins with, in any encoding but UTF-16, which has a mark of its own.
_NO_TEXT = frozenset({*range(8), *range(14, 27), *range(28, 32)})
_MAGIC = (b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"BZh", b"\xfd7zXZ", b"Rar!")


class PageParams(Params):
    """What a tool takes that reads one page."""

    url: str = Field(
        min_length=1, max_length=MAX_URL_CHARS, description="The whole address of the page, with its scheme."
    )


class ParsedPage(BaseModel):
    """What a parser of pages answers: it comes out of the sandbox, and is believed no further than this form."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str = Field("", max_length=MAX_TITLE_CHARS)
    text: str = Field("", max_length=MAX_PARSED_CHARS)
    chars: int = Field(0, ge=0)
    too_deep: bool = False


@dataclass(frozen=True)
class PageText:
    """The text of a page, or the beginning of it. `chars` is how long the whole is."""

    text: str
    chars: int


def persons_target(setting: str, url: str) -> Target:
    """The server that a person named in a setting.

    Raises:
        UsageError: it is no address.
    """
    try:
        return read_url(url)
    except FetchError as error:
        raise UsageError(f"{setting}: {error}") from None


def reach_of(setting: str, url: str, context: ToolContext) -> Reach:
    """Where a tool may go that asks a server which the person named in a setting: there, wherever it stands.

    Raises:
        UsageError: the setting is no address.
    """
    reach = context.web.reach
    return Reach(reach.intranet.with_target(persons_target(setting, url)), reach.resolver)


def fetched(url: str, wanted: Wanted, reach: Reach) -> Page:
    """A page; what kept it from being fetched is an observation.

    Raises:
        ToolError: the rule or the fault, in FetchError's words.
    """
    try:
        return fetch(url, wanted, reach)
    except FetchError as error:
        raise ToolError(error.error_type, str(error)) from None


def page_text(url: str, context: ToolContext, parser: str, max_chars: int) -> str | Excerpt:
    """The text of a page between marks that say it is foreign. HTML is read by one of our parsers, isolated; plain text
    and JSON stay as they are.

    Raises:
        ToolError: as `fetched`; unsupported_type; of HTML also no_sandbox, too_large, timeout, memory or tool_crashed.
    """
    page = _fetched_page(url, context)
    text = _parsed_html(page, context, parser) if _is_html(page) else _plain_text(page, context)
    return _shown(redacted(page.url, context.secrets), page, text, max_chars)


def _fetched_page(url: str, context: ToolContext) -> Page:
    """A page to be read, which is text of some kind.

    Raises:
        ToolError: as `fetched`; or unsupported_type.
    """
    page = fetched(url, _PAGES, context.web.reach)
    start = page.body[:_SNIFFED_BYTES]
    marked = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if start.startswith(_MAGIC) or (not marked and not _NO_TEXT.isdisjoint(start)):
        raise ToolError("unsupported_type", "The page is no text, whatever its server says.")
    return page


def _is_html(page: Page) -> bool:
    """Whether a page is HTML; where its server does not say, whether it begins like it."""
    return page.content_type in _HTML or (not page.content_type and page.body.lstrip()[:1] == b"<")


def _plain_text(page: Page, context: ToolContext) -> PageText:
    """The text of a page that is not HTML, as it is but for secrets."""
    text = redacted(decoded(page.body, charset_of(page.body, page.charset)), context.secrets, is_cut=page.truncated)
    return PageText(text, len(text))


def _parsed_html(page: Page, context: ToolContext, parser: str) -> PageText:
    """What one of our parsers reads in an HTML page, isolated, without secrets.

    Raises:
        ToolError: no_sandbox, too_large, timeout, memory or tool_crashed.
    """
    request = {"url": page.url, "charset": page.charset, "max_chars": MAX_PARSED_CHARS}
    try:
        answer = parsed(context.isolation.sandbox(), f"agent.tools.parsers.{parser}", request, page.body)
        found = ParsedPage.model_validate(answer)
    except SandboxError as error:
        raise ToolError(error.error_type, f"The page was fetched and not read: {error}.") from None
    except ValidationError:
        raise ToolError("tool_crashed", "The page was fetched and not read: it is broken.") from None
    if found.too_deep:
        raise ToolError("too_large", "The page is nested too deeply to be read.")
    is_cut = page.truncated or found.chars > len(found.text)
    text = redacted(found.text, context.secrets, is_cut=is_cut)
    title = redacted(found.title, context.secrets, is_cut=len(found.title) == MAX_TITLE_CHARS)
    whole = text if title in text[:MAX_TITLE_CHARS] else f"{title}\n\n{text}"
    return PageText(whole, found.chars - len(found.text) + len(text))


def _shown(url: str, page: Page, text: PageText, max_chars: int) -> str | Excerpt:
    """The text, which holds no secret, as foreign data and within the size of a result."""
    if not text.text.strip():
        return "The page holds no text."
    whole = f"{text.chars:,} characters" if text.chars > len(text.text) else None
    if page.truncated:
        whole = f"more than {len(page.body):,} bytes"
    return foreign(printable(text.text), _shortened(url), max_chars, whole)


def _shortened(url: str) -> str:
    return url if len(url) <= _MAX_URL_SHOWN else f"{url[:_MAX_URL_SHOWN]}..."


def printable(text: str) -> str:
    """The text without control and direction characters; lines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text.replace("\r\n", "\n"))
