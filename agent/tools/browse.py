"""browse: one page of a real browser, kept from call to call until the run's end.

All that a page asks for goes through a proxy of ours that judges where it leads, as every fetch is judged.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from agent.egress.target import MAX_URL_CHARS
from agent.errors import StoreError
from agent.redaction import redacted
from agent.tools.base import INSTALL_EXTRAS, Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.browser_page import BrowserPage
from agent.tools.browser_seen import MAX_LABEL_CHARS, MAX_TITLE_CHARS, Link, Seen
from agent.tools.browser_session import BrowserSession, Setup
from agent.tools.fetching import printable
from agent.tools.foreign import foreign
from agent.tools.workspace import faults_told, opened_file, place_of, replace_file

Action = Literal["open", "click", "type", "read", "links", "back", "screenshot"]

MAX_PICTURE_BYTES = 8 << 20
MAX_PICTURES = 100
_MAX_URL_SHOWN = 200
_MAX_TYPED_SHOWN = 80
_NEEDED: dict[Action, tuple[str, ...]] = {"open": ("url",), "click": ("selector",), "type": ("selector", "text")}


class BrowseParams(Params):
    """What browse takes."""

    action: Action = Field(
        description="What to do; open comes first, and links shows what can be clicked or filled in."
    )
    url: str | None = Field(None, max_length=MAX_URL_CHARS, description="For open: the whole address, with its scheme.")
    selector: str | None = Field(
        None,
        max_length=200,
        description="For click, type and read: a CSS selector, the words on the element, or the number of a link.",
    )
    text: str | None = Field(
        None, max_length=1000, description="For type: what is to stand in the field; a line break at its end is Enter."
    )


@dataclass(frozen=True)
class _Told:
    """Where a person was told that a click by number leads; None: that could not be told."""

    params: BrowseParams
    url: str | None


class Browse(Tool[BrowseParams]):
    """One browser a run. Nothing is saved of what a page offers to save."""

    name = "browse"
    description = "Uses a web browser with one page that stays open: opens it, reads it, clicks and types in it."
    effect = "network"
    timeout_seconds = 40.0
    max_chars = 4000
    self_timed = True
    keywords = (
        *("browse", "browser", "click", "fill in", "fill out", "screenshot", "log in", "the form", "the button"),
        *("submit", "go to the page", "go back"),
    )
    params = BrowseParams

    def __init__(self, wall_clock_seconds: float | None = None):
        self._seconds = wall_clock_seconds or self.timeout_seconds
        self._session = BrowserSession()
        self._told: _Told | None = None

    def does_more_again(self, params: BrowseParams) -> bool:
        """A second click may lead one page further, and a second step back one back."""
        return params.action in ("click", "type", "back")

    def changes_what_is_read(self, params: BrowseParams) -> bool:
        """What stands on the page, and what a click does, is another matter after these."""
        return params.action in ("open", "click", "type", "back")

    def warning(self, params: BrowseParams, context: ToolContext) -> str | None:  # noqa: ARG002  the page tells
        """Which link a click by number follows; the click then follows no other. What a click by words or by a selector
        leads to only the page knows."""
        self._told = None
        if params.action != "click" or (number := _number_in(params)) is None or not self._session.has_page:
            return None
        try:
            link = self._session.do(lambda page: _link(page.glance(), number), self._seconds, None)
        except (ToolError, StoreError) as error:
            self._told = _Told(params, None)
            return f"nobody can say where link {number} leads: {error}"
        self._told = _Told(params, link.url)
        return f"link {number} is {json.dumps(link.text, ensure_ascii=False)} and leads to {link.url}"

    def run(self, params: BrowseParams, context: ToolContext) -> str | Excerpt:
        """The page after the action, between marks that say it is foreign; or where the screenshot stands.

        Raises:
            ToolError: missing_extra, no_browser, no_sandbox; bad_args, no_page, not_found (no such element, or no page
                before this one), not_usable, or changed (since a person was asked); blocked_scheme, blocked_address
                and whatever else keeps a page from being reached; unsupported_type, it is a file to be saved; timeout,
                memory or tool_crashed, after which a new browser begins; for a screenshot also too_large and what keeps
                a file from being written.
            StoreError: the disk fails.
        """
        _check(params, context)
        trusted = context.isolation.level == "external"
        setup = Setup(context.web.reach, context.web.chromium_path, trusted) if params.action == "open" else None
        if params.action == "screenshot":
            return _saved(self._session.do(BrowserPage.picture, self._seconds, setup), context)
        told, self._told = self._told, None
        expected = told if told is not None and told.params == params else None
        secrets = context.secrets
        url, text = self._session.do(lambda page: _done(page, params, expected, secrets), self._seconds, setup)
        return foreign(printable(text), url[:_MAX_URL_SHOWN], self.max_chars)

    def close(self) -> None:
        """End the browser."""
        self._session.close()


def _check(params: BrowseParams, context: ToolContext) -> None:
    """Refuse what can be refused without a browser."""
    missing = [name for name in _NEEDED.get(params.action, ()) if getattr(params, name) is None]
    if missing:
        raise ToolError("bad_args", f"The action {params.action} needs {' and '.join(missing)}.")
    if params.action == "screenshot" and context.persons_folder:
        raise ToolError("refused", "A picture would be written into the person's own folder: nobody asked them.")
    if importlib.util.find_spec("playwright") is None:
        raise ToolError("missing_extra", f"The browser needs one more package. Install it with: {INSTALL_EXTRAS}")


def _done(page: BrowserPage, params: BrowseParams, told: _Told | None, secrets: tuple[str, ...]) -> tuple[str, str]:
    """Where the page is after the action, and what there is to say of it, without secrets."""
    selector, typed = params.selector or "", ""
    page.begin()
    if params.action != "open":  # which leads to another page, whatever became of this one
        page.expect_page()
    match params.action:
        case "open":
            page.open(params.url or "")
        case "click":
            _click(page, params, told)
        case "type":
            typed = _typed(page, selector, params.text or "")
        case "back":
            page.back()
    seen = _without_secrets(page.seen(selector if params.action == "read" and selector else None), secrets)
    if params.action == "links":
        return seen.url, _doors(seen)
    notes = [note for note in (typed, page.files_told()) if note]
    return seen.url, "\n".join([*notes, seen.title, "", seen.text])


def _without_secrets(seen: Seen, secrets: tuple[str, ...]) -> Seen:
    """The page before anything of it is cut further; some of its texts were cut as they were read."""

    def label(text: str) -> str:
        return redacted(text, secrets, is_cut=len(text) == MAX_LABEL_CHARS)

    def plain(text: str) -> str:
        return redacted(text, secrets)

    links = [link.model_copy(update={"text": label(link.text), "url": plain(link.url)}) for link in seen.links]
    fields = [
        field.model_copy(update={"label": label(field.label), "selector": plain(field.selector)})
        for field in seen.fields
    ]
    return seen.model_copy(
        update={
            "url": plain(seen.url),
            "title": redacted(seen.title, secrets, is_cut=len(seen.title) == MAX_TITLE_CHARS),
            "text": redacted(seen.text, secrets, is_cut=seen.chars > len(seen.text)),
            "links": links,
            "fields": fields,
        }
    )


def _click(page: BrowserPage, params: BrowseParams, told: _Told | None) -> None:
    """Press an element, or follow the link with a number; where a person was told which, no other."""
    number = _number_in(params)
    if number is None:
        page.click(params.selector or "")
        return
    link = _link(page.seen(), number)
    if told is not None and told.url != link.url:
        raise ToolError(
            "changed", f"Link {number} leads elsewhere than when the person was asked. List the links again."
        )
    page.open(link.url)


def _number_in(params: BrowseParams) -> int | None:
    """The number of a link that a selector is; None where it is something else."""
    selector = params.selector or ""
    return int(selector) if selector.isascii() and selector.isdigit() else None


def _link(seen: Seen, number: int) -> Link:
    if not 1 <= number <= len(seen.links):
        count = len(seen.links)
        raise ToolError("not_found", f"The page has {count} links, numbered from 1. The action links lists them.")
    return seen.links[number - 1]


def _typed(page: BrowserPage, selector: str, text: str) -> str:
    """Put a text into a field, and say so."""
    is_password = page.type(selector, text)
    value = text.removesuffix("\n")
    shown = json.dumps(value[:_MAX_TYPED_SHOWN], ensure_ascii=False) + ("..." if value[_MAX_TYPED_SHOWN:] else "")
    then = ", and pressed Enter" if text.endswith("\n") else ""
    return f"(Typed {'a password, which is not shown,' if is_password else shown} into {selector}{then}.)"


def _doors(seen: Seen) -> str:
    """The links with their numbers, and the fields and buttons with their selectors."""
    links = [f"{number}. {link.text} ({link.url})" for number, link in enumerate(seen.links, 1)]
    fields = [f"{field.selector} ({field.kind}) {field.label}".rstrip() for field in seen.fields]
    return "\n".join([seen.title, "", "Links:", *(links or ["none"]), "", "Fields and buttons:", *(fields or ["none"])])


def _saved(picture: bytes, context: ToolContext) -> str:
    """Put the picture into the workspace under a name that is free."""
    if len(picture) > MAX_PICTURE_BYTES:
        raise ToolError("too_large", f"The picture has over {MAX_PICTURE_BYTES:,} bytes.")
    for number in range(1, MAX_PICTURES + 1):
        with place_of(context, f"screenshot-{number}.png", to_write=True) as place:
            try:
                with opened_file(place):
                    continue
            except ToolError as error:
                if error.error_type != "not_found":
                    continue
            with faults_told(place.path):
                replace_file(place, picture, None)
            context.written.append(place.path)
            return f"saved what can be seen of the page as {place.path} ({len(picture):,} bytes)"
    raise ToolError("too_large", f"There are {MAX_PICTURES} screenshots already.")
