"""What every test is given: a log that ends with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


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
