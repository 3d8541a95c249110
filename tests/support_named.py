"""Cases of other people's in place of ours: a file or a folder that a variable of the environment names."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

FILES = ("ATTACK_CASES", "WIRE_CASES")  # each of JSON values, one a line
EXCHANGES = "WIRE_EXCHANGES"  # a folder of NAME.req.json and NAME.resp.txt


def check_named() -> None:
    """Before anything is collected: there is something to test in whatever is named.

    Raises:
        pytest.UsageError: there is not; one line that says why.
    """
    for variable in FILES:
        if named := os.environ.get(variable):
            cases_named_by(variable, Path(named))
    named_exchanges()


def cases_named_by(variable: str, ours: Path) -> list[Any]:
    """The JSON values of the file that the variable names; of ours where it is not set.

    Raises:
        pytest.UsageError: it cannot be read, or holds none.
    """
    path = Path(os.environ.get(variable) or ours)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{variable}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise pytest.UsageError(f"{variable}: {path}:{number}: {error}") from None
    if not found:
        raise pytest.UsageError(f"{variable}: {path} holds no case")
    return found


def named_exchanges() -> list[Path] | None:
    """The requests in the folder of recordings that is named, in their order; None where none is.

    Raises:
        pytest.UsageError: there are none in it.
    """
    if not (named := os.environ.get(EXCHANGES)):
        return None
    if not (found := sorted(Path(named).glob("*.req.json"))):
        raise pytest.UsageError(f"{EXCHANGES}: {named} is no folder that holds *.req.json")
    return found
