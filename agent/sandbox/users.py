"""Whom a program runs as.

Where the harness is root, that is a user who belongs to nobody, lent to one program of this machine at a time: two that
shared one would share the limit on processes, and fail at what the other does.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.base import SandboxError
from agent.sandbox.usage import tasks_of

# By systemd's list of ranges. Each run takes the next one that is free.
_FIRST_UID, _UIDS = 60_600, 500
_next_uid = itertools.count(secrets.randbelow(_UIDS))
# A locked file in here says that its user is lent. The lock goes with its holder. Only root can enter the folder, so
# that nobody else can lock one, and every harness on the machine finds it, whatever its home and its TMPDIR are.
_FOLDER = "shoestring-users"
_PLACES = (Path("/run"), Path("/dev/shm"))  # noqa: S108 the second for where the first is read-only


@dataclass(frozen=True)
class Borrower:
    """The user that a program runs as. `is_other`: root gave itself up for it.

    `counts_all`: the kernel's limit on its processes counts others that it runs on this machine too.
    """

    uid: int
    gid: int
    is_other: bool
    counts_all: bool


@contextmanager
def borrowed(*, own_namespace: bool = True) -> Iterator[Borrower]:
    """Whom the next program runs as: where the harness is root another user, who runs nothing else, else its own.

    `own_namespace` is whether an ordinary user's program gets a user namespace.

    Raises:
        SandboxError: no_sandbox, there is no user to be had.
    """
    if os.geteuid() != 0:
        yield Borrower(os.geteuid(), os.getegid(), is_other=False, counts_all=not own_namespace)
        return
    uid, lock = _taken()
    try:
        yield Borrower(uid, uid, is_other=True, counts_all=False)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # a process that is just being started may hold a copy
        os.close(lock)


def harness_user() -> Borrower:
    """The harness's own user, for where nobody else is to be had."""
    return Borrower(os.geteuid(), os.getegid(), is_other=False, counts_all=True)


def is_borrower(uid: int) -> bool:
    """Whether root gives programs this user."""
    return uid in range(_FIRST_UID, _FIRST_UID + _UIDS)


def _taken() -> tuple[int, int]:
    """A user who runs nothing, and the handle of the lock that keeps it so."""
    folder = _lock_folder()
    try:
        for number in itertools.islice(_next_uid, _UIDS):
            uid = _FIRST_UID + number % _UIDS
            lock = _locked(folder, uid)
            if lock is None:
                continue
            if tasks_of(uid) == 0:  # a harness that was killed may have left some that are just ending
                return uid, lock
            os.close(lock)
    finally:
        os.close(folder)
    raise SandboxError("no_sandbox", f"all {_UIDS} users that programs are run as are taken")


def _locked(folder: int, uid: int) -> int | None:
    lock = os.open(str(uid), os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _lock_folder() -> int:
    for place in _PLACES:
        path = place / _FOLDER
        with suppress(OSError):
            with suppress(FileExistsError):
                path.mkdir(0o700)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            about = os.fstat(handle)
            if about.st_uid == os.geteuid() and not about.st_mode & 0o077:
                return handle
            os.close(handle)
    places = " nor ".join(map(str, _PLACES))
    raise SandboxError("no_sandbox", f"neither {places} takes the folder {_FOLDER}, which only root may enter")
