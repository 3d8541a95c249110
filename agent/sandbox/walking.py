"""A walk through a folder in which a hostile program has written, or still writes: no other look at one is taken here.

It goes from handle to handle, so that no link is followed and nothing is too deep for it, or has too long a path; and
few descriptors are open at a time. What it could not look into is told, and never taken for nothing.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD = 16  # handles of the topmost folders; one further down is found again as what is above the one below it
_OWNERS = stat.S_IRWXU


@dataclass(frozen=True)
class Found:
    """What stands in a folder under a name. `folder` is that folder's handle, good until the walk goes on.

    `depth` is 1 for what stands in the topmost folder; `path_bytes` is the length of the path from there. A folder is
    found twice: before it is entered, and with `is_left` after all that is in it.
    """

    folder: int
    name: str
    about: os.stat_result
    depth: int
    path_bytes: int
    is_left: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder itself; a link to one is none."""
        return stat.S_ISDIR(self.about.st_mode)

    def remove(self) -> None:
        """Remove it; a folder only where it is left, and nothing is in it any more. Raises OSError."""
        if self.is_left:
            os.rmdir(self.name, dir_fd=self.folder)
        elif not self.is_folder:
            os.unlink(self.name, dir_fd=self.folder)


@dataclass
class _Level:
    """A folder that the walk is in, or below. `handle` is None where it is found again later, `inner` are the folders
    in it that are still to be entered."""

    handle: int | None
    name: str
    about: os.stat_result
    path_bytes: int
    inner: list[str] = field(default_factory=list)


class Walk:
    """All below an open folder, each folder's entries before what is in them. Whoever removes what was just found does
    no harm to it.

    With `opening` folders that are closed to us are opened; nothing may run in there any more. After `most` names it
    ends. `names` counts those that were seen; `trouble` is the first error that hid something, None where nothing was
    hidden. What is gone since it was listed is no trouble.
    """

    def __init__(self, top: int, *, opening: bool = False, most: float = math.inf):
        self.names = 0
        self.trouble: OSError | None = None
        self._top, self._opening, self._most = top, opening, most
        self._levels: list[_Level] = []

    def __iter__(self) -> Iterator[Found]:
        try:
            self._descend(os.dup(self._top), "", 0)
            yield from self._listed()
            while self.names < self._most:
                if (level := self._levels[-1]).inner:
                    if self._entered(level):
                        yield from self._listed()
                elif len(self._levels) == 1:
                    return
                elif (left := self._ascended()) is not None:
                    yield left
        finally:
            for level in self._levels:
                if level.handle is not None:
                    os.close(level.handle)
            self._levels.clear()

    def _listed(self) -> Iterator[Found]:
        """Each entry of the folder that was just entered."""
        level, depth = self._levels[-1], len(self._levels)
        assert level.handle is not None  # noqa: S101 as it was just entered; this tells mypy
        try:
            with os.scandir(level.handle) as entries:
                for entry in entries:
                    if self.names >= self._most:
                        return
                    self.names += 1
                    with suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(about.st_mode):
                            level.inner.append(entry.name)
                        length = _length(level, entry.name)
                        yield Found(level.handle, entry.name, about, depth, length)
        except OSError as error:
            self._note(error)

    def _entered(self, level: _Level) -> bool:
        """Go into the next of a folder's folders, if that can be done."""
        name = level.inner.pop()
        assert level.handle is not None  # noqa: S101 it is the one that the walk is in
        try:
            if self._opening:
                open_to_owner(level.handle, name)
            handle = os.open(name, _OPEN_FOLDER, dir_fd=level.handle)
        except OSError as error:
            self._note(error)
            return False
        self._descend(handle, name, _length(level, name))
        if len(self._levels) - 1 > _HELD:
            os.close(level.handle)
            level.handle = None
        return True

    def _descend(self, handle: int, name: str, path_bytes: int) -> None:
        self._levels.append(_Level(handle, name, os.fstat(handle), path_bytes))

    def _ascended(self) -> Found | None:
        """Leave the folder that the walk is in for the one above; None where that is not above it any more, and the
        walk goes on from the next one whose handle it holds."""
        left = self._levels.pop()
        above = self._levels[-1]
        assert left.handle is not None  # noqa: S101 it is the one that the walk was in
        try:
            if above.handle is None:
                above.handle = _above(left.handle, above.about)
        except OSError as error:
            self._note(error)
            while self._levels[-1].handle is None:
                self._levels.pop()
            return None
        finally:
            os.close(left.handle)
        return Found(above.handle, left.name, left.about, len(self._levels), left.path_bytes, is_left=True)

    def _note(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.trouble = self.trouble or error


def _length(level: _Level, name: str) -> int:
    return level.path_bytes + len(os.fsencode(name)) + 1


def _above(folder: int, expected: os.stat_result) -> int:
    """The handle of the folder above. Raises OSError where it is another than expected: somebody has moved this one."""
    handle = os.open("..", _OPEN_FOLDER, dir_fd=folder)
    if not os.path.samestat(os.fstat(handle), expected):
        os.close(handle)
        raise OSError("a folder was moved")
    return handle


@contextmanager
def opened(folder: Path | str, parent: int | None = None) -> Iterator[int]:
    """The handle of a folder, which is no link. Raises OSError."""
    handle = os.open(folder, _OPEN_FOLDER, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def change_mode(folder: int | None, name: Path | str, mode: int) -> None:
    """Give what has this name, in an open folder, a mode, unless it is a link. Raises OSError."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISLNK(os.fstat(handle).st_mode):
            os.chmod(f"/proc/self/fd/{handle}", mode)  # noqa: PTH101 that very file, whatever has its name by now
    finally:
        os.close(handle)


def open_to_owner(folder: int | None, name: Path | str) -> None:
    """Let its owner look into, and change, the folder of this name in an open folder. Raises OSError."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    if mode & _OWNERS != _OWNERS:
        change_mode(folder, name, mode | _OWNERS)


def remove(folder: Path, deadline: float = math.inf) -> None:
    """Remove a folder with all that is in it, as far as the system lets us and until `time.monotonic` comes there."""
    with suppress(OSError):
        open_to_owner(None, folder)
        with opened(folder) as top:
            for found in Walk(top, opening=True):
                if time.monotonic() > deadline:
                    return
                with suppress(OSError):
                    found.remove()
        folder.rmdir()
