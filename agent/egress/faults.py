"""What can keep a page from being fetched."""

from __future__ import annotations

from typing import Literal

FetchErrorType = Literal[
    "bad_url",  # no address of the web
    "blocked_url",  # one that two readers may read differently: user names, backslashes, control characters
    "blocked_scheme",
    "blocked_port",
    "blocked_address",
    "blocked_redirect",
    "too_many_redirects",
    "refused_encoding",
    "unsupported_type",
    "http_status",
    "network",
    "timeout",
]


class FetchError(Exception):
    """A page that was not fetched. `error_type` names the rule or the fault; the message is for a model to read.

    `status` is the server's answer where that was the fault.
    """

    def __init__(self, error_type: FetchErrorType, message: str, *, status: int | None = None):
        super().__init__(message)
        self.error_type: str = error_type
        self.status = status
