"""The folders of a program: lent to the user that it runs as for as long as it runs, and given back in order.

Given back, no file has a setuid bit, every folder can be opened by the harness and none is too deep for it. Links are
never followed, not even where something in there were still running.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agent.sandbox.base import SandboxError
from agent.sandbox.users import Borrower

MAX_DEPTH = 40  # of folders; deeper ones are removed
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def lent(folder: Path, user: Borrower, *, read_only: bool = False) -> Iterator[None]:
    """The folder and all in it writable for the user, one program at a time; with `read_only` it can be entered.

    The folder itself stays the harness's, so that no program can close it.

    Raises:
        SandboxError: no_sandbox, the folder cannot be lent to that user on this machine.
    """
    with ExitStack() as stack:
        handle = stack.enter_context(_opened(folder))
        before = os.fstat(handle)
        if user.is_other:
            stack.callback(_give_back, handle, before)
            try:
                if not read_only:
                    _hand_over(handle, user)
                os.chown(handle, -1, user.gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode) | (0o050 if read_only else 0o070))
            except OSError as error:
                raise SandboxError("no_sandbox", f"a folder cannot be lent to user {user.uid}: {error}") from error
        if not read_only:
            stack.callback(_tidy, folder, handle, before, user)
        yield


def _hand_over(handle: int, user: Borrower) -> None:
    with os.scandir(handle) as entries:
        for entry in entries:
            os.chown(entry.name, user.uid, user.gid, dir_fd=handle, follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                with _opened(entry.name, handle) as inner:
                    _hand_over(inner, user)


def _give_back(handle: int, before: os.stat_result) -> None:
    os.chown(handle, -1, before.st_gid)
    os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _tidy(folder: Path, handle: int, owner: os.stat_result, user: Borrower) -> None:
    for deep in list(_tidied(handle, handle, owner, user, 1)):
        _remove(folder / deep)


def _tidied(handle: int, top: int, owner: os.stat_result, user: Borrower, depth: int) -> Iterator[str]:
    """Put all below a folder in order; yields the names, in the topmost one, of what is to be removed."""
    with os.scandir(handle) as entries:
        for entry in entries:
            if user.is_other:
                os.chown(entry.name, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)
            mode = entry.stat(follow_symlinks=False).st_mode
            _mend_mode(handle, entry.name, mode)
            if not stat.S_ISDIR(mode):
                continue
            if depth >= MAX_DEPTH:
                name = f".deep-{secrets.token_hex(8)}"
                os.rename(entry.name, name, src_dir_fd=handle, dst_dir_fd=top)
                yield name
            else:
                with _opened(entry.name, handle) as inner:
                    yield from _tidied(inner, top, owner, user, depth + 1)


def _mend_mode(parent: int, name: str, mode: int) -> None:
    due = stat.S_IMODE(mode) & ~_SPECIAL_BITS | (0o700 if stat.S_ISDIR(mode) else 0)
    if due == stat.S_IMODE(mode) or stat.S_ISLNK(mode):
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if not stat.S_ISLNK(os.fstat(handle).st_mode):
            os.chmod(f"/proc/self/fd/{handle}", due)  # noqa: PTH101 that very file, whatever has its name by now
    finally:
        os.close(handle)


@contextmanager
def _opened(folder: Path | str, parent: int | None = None) -> Iterator[int]:
    handle = os.open(folder, _OPEN_FOLDER, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    """Remove a folder that is deeper than Python can go, some of it perhaps closed to its owner."""
    for command in (("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        subprocess.run([f"/bin/{command[0]}", *command[1:], "--", folder], check=False, stderr=subprocess.DEVNULL)
