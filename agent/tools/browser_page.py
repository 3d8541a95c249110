"""The one page of a run, driven through Playwright. Everything here belongs in the thread that made the page."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from agent.egress.faults import FetchError
from agent.egress.proxy import PinningProxy
from agent.egress.target import read_url
from agent.tools.base import ToolError
from agent.tools.browser_asked import Asked
from agent.tools.browser_seen import READ, Seen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Download, Frame, Locator, Page, Playwright, Request, Response

ACTION_SECONDS = 15.0  # in which where an action leads has to answer
ELEMENT_SECONDS = 5.0
ANSWER_SECONDS = 2.0
LOAD_SECONDS = 5.0  # for pictures and scripts, once the text is there
SETTLE_SECONDS = 0.3  # in which what a script starts at once begins
_LOOK_SECONDS = 0.05
# How Playwright says what became of a navigation: a file, another that a script began, or nothing.
_DOWNLOAD = "Download is starting"
_SCRIPTED = "interrupted by another navigation"
_ABORTED = "net::ERR_ABORTED"
_BLANK = "about:blank"  # where it stands before the first page
_NO_PAGE = "chrome-error:"  # where the browser stands when it says why there is none
_VIEW = {"width": 1024, "height": 768}


class BrowserPage:
    """A page of a Chromium that takes orders at `endpoint` and reaches the network only through the proxy."""

    def __init__(self, endpoint: str, proxy: PinningProxy) -> None:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 heavy, and an extra

        self._proxy = proxy
        self._has_crashed = False
        self._asked = Asked()
        self._asked_url: str | None = None
        self._window_url: str | None = None
        self._on_its_way: Request | None = None
        self._has_answered = False
        self._arrivals = 0
        self._wanted = ""
        self._wanted_has_come = False
        self._until = 0.0
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
            self._context.on("request", self._note_request)
            self._renew()
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

    def stop(self) -> ToolError | None:
        """Give up what does not come in time, and what there is to say of it; None where the page does nothing at all.

        A browser keeps the page that was there, and keeps it waiting, until the one after it answers.
        """
        from playwright.sync_api import Error  # noqa: PLC0415 as above

        was_on_its_way, self._on_its_way = self._on_its_way is not None, None
        try:
            self._orders.send("Page.stopLoading")
            self._page.wait_for_function("true", timeout=ANSWER_SECONDS * 1000)
        except Error:
            return None
        if not was_on_its_way:
            return ToolError("timeout", "The page did not do that in time. Look at it again, or try another way.")
        left = "No page is open." if self._is_blank() else "The page from before it is still open."
        return ToolError("timeout", f"The address does not answer. {left}")

    def files_told(self) -> str:
        """What there is to say of files to be saved that came meanwhile: a line, or nothing."""
        return self._asked.told()

    def open(self, url: str) -> None:
        """Go to an address.

        Raises:
            ToolError: blocked_scheme, blocked_address, network, unsupported_type, ...
        """
        try:
            target = str(read_url(url))
        except FetchError as error:
            raise ToolError(error.error_type, str(error)) from None
        why = self._kept_from(target)
        if why and not self._wanted_has_come and (_SCRIPTED in why or _ABORTED in why) and not self._is_file(why):
            self._renew()  # the page that was there led elsewhere meanwhile: a new one leads nowhere
            why = self._kept_from(target)
        if why and _SCRIPTED not in why:
            self._refuse(why)
        self._settle()

    def _kept_from(self, target: str) -> str | None:
        """Go to an address; in Playwright's words, what kept the page from being there."""
        from playwright.sync_api import Error  # noqa: PLC0415 as above
        from playwright.sync_api import TimeoutError as LateError  # noqa: PLC0415 as above

        self._wanted, self._wanted_has_come = target, False
        try:
            self._page.goto(target, wait_until="domcontentloaded", timeout=self._milliseconds_left())
        except LateError:
            raise
        except Error as error:
            return error.message
        return None

    def back(self) -> None:
        """Go back to the page before this one.

        Raises:
            ToolError: not_found, there is none.
        """
        history: dict[str, Any] = self._orders.send("Page.getNavigationHistory")
        place = int(history["currentIndex"])
        if place < 1 or history["entries"][place - 1]["url"] == _BLANK:
            raise ToolError("not_found", "There is no page before this one.")
        self._page.go_back(wait_until="domcontentloaded", timeout=self._milliseconds_left())
        self._settle()

    def click(self, selector: str) -> None:
        """Press an element. A link that opens a window is followed in this page."""
        self._found(selector, to_type=False).click(timeout=ELEMENT_SECONDS * 1000, no_wait_after=True)
        self._settle()
        self._close_windows()
        if self._window_url is not None and not self._asked.is_file:
            self.open(self._window_url)

    def type(self, selector: str, text: str) -> bool:
        """Put a text in the place of what stands in a field; a line break at its end presses Enter. Whether the field
        is one for a password, which shows nobody what stands in it."""
        field = self._found(selector, to_type=True)
        is_password = (field.get_attribute("type", timeout=ELEMENT_SECONDS * 1000) or "").lower() == "password"
        field.fill(text.removesuffix("\n"), timeout=ELEMENT_SECONDS * 1000)
        if text.endswith("\n"):
            field.press("Enter", timeout=ELEMENT_SECONDS * 1000, no_wait_after=True)
        self._settle()
        return is_password

    def seen(self, selector: str | None = None) -> Seen:
        """The page as it stands; with a CSS selector the text is that element's alone.

        Raises:
            ToolError: no_page; not_found, there is no such element; tool_crashed, the page cannot be read; or as
                `expect_page`, for where it was led just now.
        """
        self.expect_page()
        frame = self._orders.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self._orders.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "shoestring"})
        script = {"expression": f"{READ}({json.dumps(selector)})", "contextId": world["executionContextId"]}
        answer: dict[str, Any] = self._orders.send("Runtime.evaluate", {**script, "returnByValue": True})
        found = answer["result"].get("value")
        if selector is not None and found is None:
            raise ToolError("not_found", "There is no such element. To read one, name it by a CSS selector.")
        try:
            seen = Seen.model_validate(found)
        except ValidationError:
            raise ToolError("tool_crashed", "The page cannot be read.") from None
        if seen.url.startswith(_NO_PAGE):
            self._refuse("")
        return seen

    def glance(self) -> Seen:
        """The page as it stands between two actions, of which this is none.

        Raises:
            ToolError: as `seen`.
        """
        self._until = time.monotonic() + ACTION_SECONDS
        self._page.wait_for_timeout(0)
        return self.seen()

    def expect_page(self) -> None:
        """Nothing, or what is said where the page is none: it was refused, or could not be opened.

        Raises:
            ToolError: no_page; blocked_address, network, ..., by what the page has done since the last action.
        """
        self._arrive()
        self._judge()
        if self._is_blank():
            raise ToolError("no_page", "No page is open. Open one first, by its address.")

    def picture(self) -> bytes:
        """What can be seen of the page, as PNG."""
        self.begin()
        self.expect_page()
        return self._page.screenshot(type="png", animations="disabled")

    def begin(self) -> None:
        """From here on, what happens is the next action's doing."""
        self._page.wait_for_timeout(0)  # what has happened by now is heard of
        self._close_windows()
        self._asked.begin()
        self._window_url = None
        self._until = time.monotonic() + ACTION_SECONDS

    def _milliseconds_left(self) -> float:
        return max(1.0, (self._until - time.monotonic()) * 1000)

    def _is_file(self, why: str) -> bool:
        return self._asked.is_file or _DOWNLOAD in why

    def _is_blank(self) -> bool:
        return self._page.url == _BLANK

    def _renew(self) -> None:
        """A page in the place of the one that was there, and what takes orders while that waits for an answer."""
        page = self._context.new_page()
        page.on("download", self._note_download)
        page.on("crash", lambda _page: setattr(self, "_has_crashed", True))
        page.on("response", self._note_response)
        page.on("requestfailed", self._note_failure)
        page.on("framenavigated", self._note_arrival)
        self._page: Page = page
        self._orders: CDPSession = self._context.new_cdp_session(page)
        self._on_its_way = None
        self._close_windows()

    def _note_request(self, request: Request) -> None:
        from playwright.sync_api import Error  # noqa: PLC0415 as above

        if not request.is_navigation_request():
            return
        self._asked.note(request.url)
        try:
            frame = request.frame
        except Error:  # of a window that is being opened
            frame = None
        if frame == self._page.main_frame:
            self._asked_url, self._on_its_way, self._has_answered = request.url, request, False
        elif (frame is None or frame.parent_frame is None) and request.url.startswith(("http:", "https:")):
            self._window_url = request.url

    def _note_response(self, response: Response) -> None:
        if response.request == self._on_its_way:
            self._has_answered = True

    def _note_failure(self, request: Request) -> None:
        """The browser's own page comes, which says that; or none does, where there is a file or nothing to show."""
        if request == self._on_its_way:
            self._has_answered = True
            if request.failure == _ABORTED:
                self._on_its_way = None

    def _note_arrival(self, frame: Frame) -> None:
        """A page came, unless the page that waits for it has only changed its own address."""
        came = self._on_its_way
        if frame != self._page.main_frame or (came is not None and not self._has_answered):
            return
        while came is not None and came.redirected_from is not None:
            came = came.redirected_from
        self._wanted_has_come |= came is not None and came.url == self._wanted
        self._arrivals += 1
        self._on_its_way = None

    def _note_download(self, download: Download) -> None:
        self._asked.note_file(download.url)

    def _settle(self) -> None:
        """Wait until what was started has come to rest, and judge where the page was led."""
        from playwright.sync_api import TimeoutError as LateError  # noqa: PLC0415 as above

        deadline = time.monotonic() + LOAD_SECONDS
        while True:
            arrivals = self._arrivals
            self._page.wait_for_timeout(SETTLE_SECONDS * 1000)
            self._arrive()
            try:
                self._page.wait_for_load_state("load", timeout=max(1.0, (deadline - time.monotonic()) * 1000))
            except LateError:
                break
            if (self._arrivals == arrivals and self._on_its_way is None) or time.monotonic() > deadline:
                break
        self._judge()

    def _arrive(self) -> None:
        """Wait until where the page was led has answered. Raises Playwright's error where it does not in time."""
        from playwright.sync_api import TimeoutError as LateError  # noqa: PLC0415 as above

        while self._on_its_way is not None:
            if time.monotonic() > self._until:
                raise LateError("the address does not answer")
            self._page.wait_for_timeout(_LOOK_SECONDS * 1000)

    def _judge(self) -> None:
        """Nothing, or the refusal of the place where the page was led, by whoever led it there.

        Raises:
            ToolError: blocked_address, network, ...
        """
        if self._page.url.startswith(_NO_PAGE):
            self._refuse("")

    def _refuse(self, why: str) -> None:
        """Leave a page that could not be opened, and say what kept it from being."""
        asked = self._asked_url or ""
        if not self._is_file(why):
            self._renew()
        raise self._fault(asked, why)

    def _fault(self, asked: str, why: str) -> ToolError:
        if self._is_file(why):
            self._asked.refuse()
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
