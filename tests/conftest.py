"""What every test is given: a log that ends with it, and a place for a figure in the last lines of the run. Cases that
somebody names are looked for first."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support_figures import FIGURE
from tests.support_named import check_named


def pytest_configure() -> None:
    """Refuse cases that cannot be had before anything is collected."""
    check_named()


@pytest.fixture(autouse=True)
def _no_log_outlives_its_test() -> Iterator[None]:
    """A command run inside this process sends the log to a folder that is soon gone."""
    log = logging.getLogger("shoestring")
    before, propagates = list(log.handlers), log.propagate
    yield
    for handler in [handler for handler in log.handlers if handler not in before]:
        log.removeHandler(handler)
        handler.close()
    log.propagate = propagates


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have measured (`record_property(FIGURE, text)`), on whichever process they ran."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == FIGURE and getattr(report, "when", "") == "call":
                    terminalreporter.write_line(str(text))
