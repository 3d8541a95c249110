"""The folders of a program: lent to the user that it runs as for as long as it runs, and given back in order.

Given back, no file has a setuid bit, every folder can be opened by the harness, nothing is too deep or has too long a
path for it, and all together is no more than a workspace may hold. Links are never followed, not even where something
in there were still running.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.errors import StoreError
from agent.sandbox.base import End, Finished, SandboxError
from agent.sandbox.pruning import prune
from agent.sandbox.usage import BLOCK, MAX_ENTRIES, Files
from agent.sandbox.users import Borrower
from agent.sandbox.walking import Found, Walk, change_mode, opened

MAX_DEPTH = 40  # of folders; deeper ones are removed
MAX_PATH_BYTES = 2_000  # of a path below the folder, so that it can be named and copied wherever that stands
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@dataclass
class Lent:
    """A folder that a program works in. `over` is the limit that it did not keep when it was given back."""

    over: End | None = None

    def judged(self, finished: Finished) -> Finished:
        """How its program ended, once the folder is given back: not by itself where it left too much."""
        if self.over is None or finished.ended != "exit":
            return finished
        return replace(finished, code=None, ended=self.over)


@contextmanager
def lent(folder: Path, user: Borrower, *, read_only: bool = False, most: int | None = None) -> Iterator[Lent]:
    """The folder and all in it writable for the user, one program at a time; with `read_only` it can be entered.

    The folder itself stays the harness's, so that no program can close it. Given back it holds no more than MAX_ENTRIES
    files and `most` bytes of the disk: the newest files are removed. None is for a folder that is removed anyway.

    Raises:
        SandboxError: no_sandbox, the folder cannot be lent to that user on this machine.
        StoreError: it cannot be looked through when it is given back.
    """
    with ExitStack() as stack:
        handle = stack.enter_context(opened(folder))
        before, state = os.fstat(handle), Lent()
        if not read_only:
            stack.callback(_tidy, handle, user, before, state, most)
        stack.callback(_give_back, handle, user, before)
        if user.is_other:
            try:
                if not read_only:
                    _hand_over(handle, user)
                os.chown(handle, -1, user.gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode) | (0o050 if read_only else 0o070))
            except OSError as error:
                raise SandboxError("no_sandbox", f"a folder cannot be lent to user {user.uid}: {error}") from error
        yield state


def _hand_over(top: int, user: Borrower) -> None:
    walk = Walk(top)
    for found in walk:
        if not found.is_left:
            os.chown(found.name, user.uid, user.gid, dir_fd=found.folder, follow_symlinks=False)
    if walk.trouble is not None:
        raise walk.trouble


def _give_back(handle: int, user: Borrower, before: os.stat_result) -> None:
    if user.is_other:
        os.chown(handle, -1, before.st_gid)
    os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _tidy(top: int, user: Borrower, owner: os.stat_result, state: Lent, most: int | None) -> None:
    """Put all below the folder in order, and remove what is too much."""
    try:
        files = _in_order(top, user, owner)
    except OSError as error:
        raise StoreError(f"a workspace cannot be looked through: {error}") from error
    if most is not None and (files.bytes > most or files.entries > MAX_ENTRIES):
        state.over = "files" if files.entries > MAX_ENTRIES else "disk"
        prune(top, most)


def _in_order(top: int, user: Borrower, owner: os.stat_result) -> Files:
    """Give all below the folder to its owner, as it may stay; what does. Raises OSError."""
    taken = entries = 0
    walk = Walk(top)
    for found in walk:
        if not found.is_left:
            if user.is_other:
                os.chown(found.name, owner.st_uid, owner.st_gid, dir_fd=found.folder, follow_symlinks=False)
            _mend_mode(found)
        if _is_out_of_reach(found):
            found.remove()
        elif not found.is_left:
            taken, entries = taken + found.about.st_blocks * BLOCK, entries + 1
    if walk.trouble is not None:
        raise walk.trouble
    return Files(taken, entries)


def _is_out_of_reach(found: Found) -> bool:
    return found.depth > MAX_DEPTH - found.is_folder or found.path_bytes > MAX_PATH_BYTES


def _mend_mode(found: Found) -> None:
    mode = stat.S_IMODE(found.about.st_mode)
    due = mode & ~_SPECIAL_BITS | (stat.S_IRWXU if found.is_folder else 0)
    if due != mode and not stat.S_ISLNK(found.about.st_mode):
        change_mode(found.folder, found.name, due)
