"""The log of bugs: tracebacks go to a file beside the traces, never to a person's terminal."""

from __future__ import annotations

import logging
from pathlib import Path

from cli.outcome import LOG_NAME


def keep_log(folder: Path) -> None:
    """Send what the runner logs to a file in `folder`; it is opened at its first line, when the folder is there."""
    log = logging.getLogger("shoestring")
    handler = logging.FileHandler(folder / LOG_NAME, encoding="utf-8", errors="backslashreplace", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.propagate = False
