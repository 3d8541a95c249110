"""Whom a program runs as, and its workspace: lent to that user for as long as it runs, and given back in order.

Given back, no file has a setuid bit, every folder can be opened by the harness and none is too deep for it. Nothing
else runs in the folder then; links are never followed.
"""

from __future__ import annotations

import itertools
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.base import SandboxError

# Users that belong to nobody, by the convention of systemd's list of ranges. Each run takes the next one, so that
# those beside each other share neither files nor the limit on processes.
_FIRST_UID, _UIDS = 60_600, 500
_next = itertools.count(secrets.randbelow(_UIDS))
MAX_DEPTH = 40  # of folders; deeper ones are removed
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@dataclass(frozen=True)
class Borrower:
    """The user that a program runs as. `is_other`: root gave itself up for it.

    `counts_all`: the kernel's limit on its processes counts all that it runs on this machine.
    """

    uid: int
    gid: int
    is_other: bool
    counts_all: bool


def borrower(*, own_namespace: bool = True) -> Borrower:
    """Whom the next program runs as: where the harness is root another user, else the harness's own.

    `own_namespace` is whether an ordinary user's program gets a user namespace.
    """
    if os.geteuid() == 0:
        uid = _FIRST_UID + next(_next) % _UIDS
        return Borrower(uid, uid, is_other=True, counts_all=True)
    return Borrower(os.geteuid(), os.getegid(), is_other=False, counts_all=not own_namespace)


@contextmanager
def lent(folder: Path, user: Borrower) -> Iterator[None]:
    """The folder and all in it writable for the user, one program at a time.

    The folder itself stays the harness's, so that no program can close it.

    Raises:
        SandboxError: no_sandbox, the folder cannot be lent to that user on this machine.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        before = os.fstat(handle)
        if user.is_other:
            try:
                _hand_over(handle, user)
                os.chown(handle, -1, user.gid)
                os.fchmod(handle, 0o770)
            except OSError as error:
                raise SandboxError("no_sandbox", f"the workspace cannot be lent to user {user.uid}: {error}") from error
        try:
            yield
        finally:
            os.chown(handle, -1, before.st_gid)
            os.fchmod(handle, stat.S_IMODE(before.st_mode))
            for deep in list(_taken_back(handle, handle, before, user, 1)):
                _remove(folder / deep)
    finally:
        os.close(handle)


def _hand_over(handle: int, user: Borrower) -> None:
    with os.scandir(handle) as entries:
        for entry in entries:
            os.chown(entry.name, user.uid, user.gid, dir_fd=handle, follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                with _folder(handle, entry.name) as inner:
                    _hand_over(inner, user)


def _taken_back(handle: int, top: int, owner: os.stat_result, user: Borrower, depth: int) -> Iterator[str]:
    """Put all below a folder in order; yields the names, in the topmost one, of what is to be removed."""
    with os.scandir(handle) as entries:
        for entry in entries:
            about = entry.stat(follow_symlinks=False)
            if user.is_other:
                os.chown(entry.name, owner.st_uid, owner.st_gid, dir_fd=handle, follow_symlinks=False)
            is_folder = stat.S_ISDIR(about.st_mode)
            mode = stat.S_IMODE(about.st_mode)
            due = mode & ~_SPECIAL_BITS | (0o700 if is_folder else 0)
            if due != mode and not stat.S_ISLNK(about.st_mode):
                os.chmod(entry.name, due, dir_fd=handle)
            if is_folder and depth >= MAX_DEPTH:
                name = f".deep-{secrets.token_hex(8)}"
                os.rename(entry.name, name, src_dir_fd=handle, dst_dir_fd=top)
                yield name
            elif is_folder:
                with _folder(handle, entry.name) as inner:
                    yield from _taken_back(inner, top, owner, user, depth + 1)


@contextmanager
def _folder(parent: int, name: str) -> Iterator[int]:
    handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    """Remove a folder that is deeper than Python can go, some of it perhaps closed to its owner."""
    for command in (("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        subprocess.run([f"/bin/{command[0]}", *command[1:], "--", folder], check=False, stderr=subprocess.DEVNULL)
