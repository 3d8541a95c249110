"""The log of bugs: tracebacks go to a file beside the traces, never to a person's terminal."""

from __future__ import annotations

import logging
from pathlib import Path

from agent.redaction import redacted
from cli.outcome import LOG_NAME


class _Redacting(logging.Formatter):
    """What a message and its traceback quote may hold anything."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record), self._secrets)


def keep_log(folder: Path, secrets: tuple[str, ...]) -> None:
    """Send what the runner logs to a file in `folder`, without the secrets, and to no other any more. It is opened at
    its first line, when the folder is there."""
    log = logging.getLogger("shoestring")
    for earlier in [made for made in log.handlers if isinstance(made, logging.FileHandler)]:
        log.removeHandler(earlier)
        earlier.close()
    handler = logging.FileHandler(folder / LOG_NAME, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(_Redacting(secrets))
    log.addHandler(handler)
    log.propagate = False
