"""Bytes that are handed to a process as an open file without a name."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from agent.errors import StoreError


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """The handle of an unnamed file with these bytes, read from its beginning. Nobody can change it on Linux.

    Raises:
        StoreError: there is no room for it.
    """
    try:
        handle = _filled(data)
    except OSError as error:
        raise StoreError(f"the input of a program cannot be kept: {error}") from error
    try:
        yield handle
    finally:
        os.close(handle)


def _filled(data: bytes) -> int:
    if sys.platform == "linux":
        handle = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.lseek(handle, 0, os.SEEK_SET)
        if sys.platform == "linux":
            seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        os.close(handle)
        raise
    return handle
