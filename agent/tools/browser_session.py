"""The browser of one run, from its first page to the run's end, in a thread of its own.

Playwright's objects belong to the thread that made them, so one thread drives the browser. What it does not finish in
time is ended by killing the browser; whatever comes next begins with a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateFutureError
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.egress.fetch import Reach
from agent.egress.proxy import PinningProxy
from agent.tools.base import ToolError
from agent.tools.browser_page import BrowserPage
from agent.tools.browser_process import Chromium

_END_SECONDS = 10.0  # for Playwright to notice that the browser is gone

_ENDED = "The page hangs, and the browser was ended. Open another."
_TOO_MUCH = "The page needs too much memory, and the browser was ended. Open another."

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What a browser is started with: where pages may come from, and which program it is (None: one that is found).

    `trusted_machine` is whether a person said that this machine may be lost: then Chromium's own sandbox is off.
    """

    reach: Reach
    path: Path | None
    trusted_machine: bool


class BrowserSession:
    """Nothing runs before the first page is opened."""

    def __init__(self) -> None:
        self._driver: ThreadPoolExecutor | None = None
        self._chromium: Chromium | None = None
        self._page: BrowserPage | None = None
        self._held = ExitStack()

    @property
    def has_page(self) -> bool:
        """Whether there is a page, as far as is known without looking."""
        return self._page is not None

    def do(self, work: Callable[[BrowserPage], T], seconds: float, setup: Setup | None) -> T:
        """What `work` makes of the page, within so many seconds. With a `setup`, a browser is started where none is.

        Raises:
            ToolError: no_page; no_browser or no_sandbox; timeout, memory or tool_crashed; whatever `work` raises.
            StoreError: there is no room for the browser's profile.
        """
        if self._driver is None:
            self._driver = ThreadPoolExecutor(1, thread_name_prefix="browser")
        pending = self._driver.submit(self._do, work, setup)
        try:
            return pending.result(seconds)
        except LateFutureError:
            raise self._give_up(pending) from None

    def close(self) -> None:
        """End the browser and all that belongs to it. May be called again."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        self._kill()
        with suppress(LateFutureError):
            driver.submit(self._end).result(_END_SECONDS)
        driver.shutdown(wait=False)

    def _kill(self) -> None:
        if self._chromium is not None:
            self._chromium.kill()

    def _give_up(self, pending: Future[T]) -> ToolError:
        """End a browser that hangs, whereupon the thread that waits for it goes on; what there is to say of it."""
        fault = self._lost("timeout", _ENDED)
        self._kill()
        with suppress(ToolError, LateFutureError):
            pending.result(_END_SECONDS)
        return fault

    def _do(self, work: Callable[[BrowserPage], T], setup: Setup | None) -> T:
        from playwright.sync_api import Error  # noqa: PLC0415 heavy, and an extra
        from playwright.sync_api import TimeoutError as LateError  # noqa: PLC0415 as above

        if setup is not None and self._page is not None and not self._is_usable():
            self._end()  # since the last call, by what stood on the page then: this one is for another
        if self._page is None and setup is None:
            raise ToolError("no_page", "No page is open. Open one first, by its address.")
        usable = False
        try:
            result = work(self._page or self._started(setup))
            usable = True
        except ToolError:
            usable = self._is_usable()
            raise
        except LateError:
            late = self._page.stop() if self._is_usable() and self._page is not None else None
            usable = late is not None
            raise late or self._lost("timeout", _ENDED) from None
        except Error as error:
            usable = self._is_usable()
            raise self._fault(error.message, usable=usable) from None
        finally:
            if not usable:
                self._end()
        return result

    def _started(self, setup: Setup | None) -> BrowserPage:
        assert setup is not None  # noqa: S101 asked before; this tells mypy
        proxy = PinningProxy(setup.reach)
        self._held.callback(proxy.close)
        self._chromium = Chromium(setup.path, trusted_machine=setup.trusted_machine)
        self._held.callback(self._chromium.close)
        self._page = BrowserPage(self._chromium.endpoint(), proxy)
        self._held.callback(self._page.close)
        return self._page

    def _fault(self, message: str, *, usable: bool) -> ToolError:
        """What Playwright's words mean for whoever asked."""
        if usable:
            return ToolError("not_usable", f"The browser cannot do that: {message.splitlines()[0][:200]}")
        return self._lost("tool_crashed", "The page brought the browser down. Open another.")

    def _is_usable(self) -> bool:
        """Whether there is a page, and a browser that shows it."""
        gone = self._chromium is None or self._chromium.has_ended
        return self._page is not None and not gone and not self._page.is_lost

    def _lost(self, error_type: str, message: str) -> ToolError:
        """Why the page is gone: this, unless it was for the memory that it took."""
        if self._chromium is not None and self._chromium.took_too_much:
            return ToolError("memory", _TOO_MUCH)
        return ToolError(error_type, message)

    def _end(self) -> None:
        self._chromium = self._page = None
        held, self._held = self._held, ExitStack()
        held.close()
