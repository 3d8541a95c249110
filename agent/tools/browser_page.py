"""The one page of a run, driven through Playwright. Everything here belongs in the thread that made the page.

What is read of a page is worked out in a JavaScript world of our own beside the page's, bounded there, and believed no
further than its form: it is the page's text all the same.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.egress.faults import FetchError
from agent.egress.proxy import PinningProxy
from agent.egress.target import MAX_URL_CHARS, read_url
from agent.tools.base import ToolError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Playwright

MAX_LINKS = 30
MAX_FIELDS = 20
MAX_TEXT_CHARS = 20_000
NAVIGATION_SECONDS = 15.0
ELEMENT_SECONDS = 5.0
ANSWER_SECONDS = 2.0
LOAD_SECONDS = 5.0  # for pictures and scripts, once the text is there
SETTLE_SECONDS = 0.3  # in which what a script starts at once begins
_MAX_ASKED = 200  # addresses of an action, and of those before it, that are remembered
_DOWNLOAD = "Download is starting"  # how Playwright says what became of a navigation
_VIEW = {"width": 1024, "height": 768}

_READ = f"""(selector => {{
  const clip = (text, most) => String(text || '').replace(/\\s+/g, ' ').trim().slice(0, most);
  const shown = e => e.getClientRects().length > 0;
  const links = [], fields = [], seen = new Set();
  for (const a of document.links) {{
    if (links.length >= {MAX_LINKS}) break;
    if (!/^https?:/.test(a.href) || a.href.length > 500 || seen.has(a.href) || !shown(a)) continue;
    seen.add(a.href);
    links.push({{text: clip(a.innerText || a.getAttribute('aria-label') || a.title, 80), url: a.href}});
  }}
  for (const e of document.querySelectorAll('input, textarea, select, button')) {{
    if (fields.length >= {MAX_FIELDS}) break;
    if (e.type === 'hidden' || !shown(e)) continue;
    const tag = e.tagName.toLowerCase(), name = e.getAttribute('name');
    const selector = e.id ? '#' + CSS.escape(e.id) : name ? `${{tag}}[name="${{CSS.escape(name)}}"]` : tag;
    const label = (e.labels && e.labels.length ? e.labels[0].innerText : '') || e.placeholder || e.innerText
      || (e.type === 'submit' ? e.value : '');
    fields.push({{selector: clip(selector, 100), kind: clip(e.type || tag, 20), label: clip(label, 80)}});
  }}
  const root = selector === null ? document.body : document.querySelector(selector);
  if (selector !== null && !root) return null;
  const text = root ? root.innerText || '' : '';
  return {{title: clip(document.title, 200), text: text.slice(0, {MAX_TEXT_CHARS}), chars: text.length, links, fields}};
}})"""


class Link(BaseModel):
    """Where a page leads."""

    text: str
    url: str


class FormField(BaseModel):
    """What can be typed into or pressed."""

    selector: str
    kind: str
    label: str


class Seen(BaseModel):
    """A page as it stands. `chars` is how long its whole text is."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str = Field(max_length=200)
    text: str = Field(max_length=MAX_TEXT_CHARS)
    chars: int = Field(ge=0)
    links: list[Link] = Field(max_length=MAX_LINKS)
    fields: list[FormField] = Field(max_length=MAX_FIELDS)


class BrowserPage:
    """A page of a Chromium that takes orders at `endpoint` and reaches the network only through the proxy."""

    def __init__(self, endpoint: str, proxy: PinningProxy) -> None:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 heavy, and an extra

        self._proxy = proxy
        self._has_crashed = False
        self._asked_url: str | None = None
        self._asked = deque[str](maxlen=_MAX_ASKED)
        self._asked_before = deque[str](maxlen=_MAX_ASKED)
        self._downloads = deque[str](maxlen=_MAX_ASKED)
        self._playwright: Playwright = sync_playwright().start()
        try:
            self._browser: Browser = self._playwright.chromium.connect_over_cdp(endpoint)
            self._context = self._browser.new_context(
                accept_downloads=False,
                service_workers="block",
                permissions=[],
                proxy={"server": f"socks5://127.0.0.1:{proxy.port}", "bypass": "<-loopback>"},
                viewport=_VIEW,  # type: ignore[arg-type]  # a TypedDict of just this form
            )
            self._page = self._new_page()
        except BaseException:
            self._playwright.stop()
            raise

    def close(self) -> None:
        """Let go of the browser."""
        self._playwright.stop()

    @property
    def is_lost(self) -> bool:
        """Whether the page, or the browser with it, is gone for good."""
        return self._has_crashed or not self._browser.is_connected()

    @property
    def took_download(self) -> bool:
        """Whether the latest action met a file to be saved, which was not."""
        return bool(self._downloads)

    def answers(self) -> bool:
        """Whether the page does anything at all."""
        from playwright.sync_api import Error  # noqa: PLC0415 as above

        try:
            self._page.wait_for_function("true", timeout=ANSWER_SECONDS * 1000)
        except Error:
            return False
        return True

    @property
    def url(self) -> str:
        """Where the page is."""
        return self._page.url

    def open(self, url: str) -> None:
        """Go to an address.

        Raises:
            ToolError: blocked_scheme, blocked_address, network, unsupported_type, ...
        """
        from playwright.sync_api import Error  # noqa: PLC0415 as above
        from playwright.sync_api import TimeoutError as LateError  # noqa: PLC0415 as above

        try:
            target = read_url(url)
        except FetchError as error:
            raise ToolError(error.error_type, str(error)) from None
        self._begin()
        try:
            self._page.goto(str(target), wait_until="domcontentloaded")
        except LateError:
            raise
        except Error as error:
            if "interrupted by another navigation" not in error.message:
                self._refuse(error.message)
        self._settle()

    def back(self) -> None:
        """Go back to the page before this one."""
        self._begin()
        self._page.go_back(wait_until="domcontentloaded")
        self._settle()

    def click(self, selector: str) -> None:
        """Press an element. A link that opens a window is followed in this page."""
        self._begin()
        self._found(selector, to_type=False).click(timeout=ELEMENT_SECONDS * 1000)
        self._settle()
        windows = [page.url for page in self._context.pages if page != self._page]
        self._close_windows()
        if windows and windows[-1].startswith(("http:", "https:")):
            self.open(windows[-1])

    def type(self, selector: str, text: str) -> None:
        """Put a text in the place of what stands in a field; a line break at its end presses Enter."""
        self._begin()
        field = self._found(selector, to_type=True)
        field.fill(text.removesuffix("\n"), timeout=ELEMENT_SECONDS * 1000)
        if text.endswith("\n"):
            field.press("Enter", timeout=ELEMENT_SECONDS * 1000)
        self._settle()

    def seen(self, selector: str | None = None) -> Seen:
        """The page as it stands; with a CSS selector the text is that element's alone.

        Raises:
            ToolError: no_page; not_found, there is no such element; tool_crashed, the page cannot be read.
        """
        self.expect_page()
        session = self._context.new_cdp_session(self._page)
        try:
            frame = session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
            world = session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "shoestring"})
            script = {"expression": f"{_READ}({json.dumps(selector)})", "contextId": world["executionContextId"]}
            answer: dict[str, Any] = session.send("Runtime.evaluate", {**script, "returnByValue": True})
        finally:
            session.detach()
        found = answer["result"].get("value")
        if selector is not None and found is None:
            raise ToolError("not_found", "There is no such element. To read one, name it by a CSS selector.")
        try:
            return Seen.model_validate(found)
        except ValidationError:
            raise ToolError("tool_crashed", "The page cannot be read.") from None

    def expect_page(self) -> None:
        """Nothing, or what is said where the page is none: it was refused, or could not be opened.

        Raises:
            ToolError: no_page.
        """
        if self._page.url == "about:blank":
            raise ToolError("no_page", "No page is open. Open one first, by its address.")

    def picture(self) -> bytes:
        """What can be seen of the page, as PNG."""
        self.judge()
        self.expect_page()
        return self._page.screenshot(type="png", animations="disabled")

    def _new_page(self) -> Page:
        page = self._context.new_page()
        page.set_default_navigation_timeout(NAVIGATION_SECONDS * 1000)
        page.on("download", self._note_download)
        page.on("crash", lambda _page: setattr(self, "_has_crashed", True))
        page.on("request", self._note_request)
        return page

    def _note_request(self, request: Any) -> None:
        if not request.is_navigation_request():
            return
        self._asked.append(_without_fragment(request.url))
        if request.frame == self._page.main_frame:
            self._asked_url = request.url

    def _note_download(self, download: Any) -> None:
        """A file whose address only an earlier action asked for is that one's: it comes late, and is not told."""
        url = _without_fragment(download.url)
        if url in self._asked or url not in self._asked_before:
            self._downloads.append(url)

    def _begin(self) -> None:
        """From here on, what happens is the next action's doing."""
        self._page.wait_for_timeout(0)  # what has happened by now is heard of
        self._asked_before.extend(self._asked)
        self._asked.clear()
        self._downloads.clear()
        self._asked_url = None

    def _is_file(self) -> bool:
        """Whether this action was led to a file to be saved."""
        return any(url in self._asked for url in self._downloads)

    def _settle(self) -> None:
        """Wait until what was started has come to rest, and judge where the page was led."""
        from playwright.sync_api import TimeoutError as LateError  # noqa: PLC0415 as above

        deadline = time.monotonic() + LOAD_SECONDS
        while True:
            self._page.wait_for_timeout(SETTLE_SECONDS * 1000)
            asked = self._asked_url
            try:
                self._page.wait_for_load_state("load", timeout=max(1.0, (deadline - time.monotonic()) * 1000))
            except LateError:
                break
            if self._asked_url == asked or time.monotonic() > deadline:
                break
        self.judge()

    def judge(self) -> None:
        """Nothing, or the refusal of the place where the page was led, by whoever led it there.

        Raises:
            ToolError: blocked_address, network, ...
        """
        if self._page.url.startswith("chrome-error:"):
            self._refuse("")

    def _refuse(self, why: str) -> None:
        """Leave a page that could not be opened, and say what kept it from being."""
        asked = self._asked_url or ""
        if not (self._is_file() or _DOWNLOAD in why):
            self._page.close()
            self._page = self._new_page()
        raise self._fault(asked, why)

    def _fault(self, asked: str, why: str) -> ToolError:
        if self._is_file() or _DOWNLOAD in why:
            return ToolError("unsupported_type", "That is a file to be saved and no page. Nothing was saved.")
        try:
            target = read_url(asked)
        except FetchError as error:
            return ToolError(error.error_type, str(error))
        fault = self._proxy.fault(target)
        if fault is not None:
            return ToolError(fault.error_type, str(fault))
        code = re.search(r"net::(ERR_[A-Z_]+)", why)
        return ToolError("network", f"The page cannot be opened{f' ({code[1]})' if code else ''}.")

    def _close_windows(self) -> None:
        """There is one page, whatever it opens."""
        for page in self._context.pages:
            if page != self._page:
                page.close()

    def _found(self, selector: str, *, to_type: bool) -> Locator:
        """The first element that a selector, or the words that are seen on it, stand for.

        Raises:
            ToolError: not_found.
        """
        from playwright.sync_api import Error  # noqa: PLC0415 as above

        page = self._page
        ways = [page.locator(f"css={selector}")]
        if to_type:
            ways += [page.get_by_label(selector), page.get_by_placeholder(selector)]
        else:
            ways += [page.get_by_role("button", name=selector), page.get_by_role("link", name=selector)]
            ways += [page.get_by_text(selector)]
        for way in ways:
            try:
                if way.count():
                    return way.first
            except Error:  # what was meant as words is no CSS
                continue
        raise ToolError("not_found", "There is no such element. The action links lists links, fields and buttons.")


def _without_fragment(url: str) -> str:
    return url.partition("#")[0][:MAX_URL_CHARS]
