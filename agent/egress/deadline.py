"""One deadline for all of a fetch, kept by giving every wait no more than what is left of it."""

from __future__ import annotations

import time

from agent.egress.faults import FetchError


class Deadline:
    """Begins when it is made, and is over `seconds` later."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until it is over; more than 0, which a socket would take for "do not wait".

        Raises:
            FetchError: timeout, it is over.
        """
        left = self._ends - time.monotonic()
        if left <= 0:
            raise self.over()
        return left

    def over(self) -> FetchError:
        """What is raised when it is over."""
        return FetchError("timeout", f"The page was not there within {self.seconds:g} seconds.")
