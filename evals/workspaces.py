"""The folder that a run works in: a fresh one with the case's files in it, or a person's own; and its record.

A fresh folder is gone when the run has ended, unless a copy is kept; what asserts look at is its record in the trace.
Nothing in here follows a link: what stands in a folder after a run is as hostile as the model.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from agent.errors import StoreError
from agent.redaction import redacted
from agent.sandbox.leftovers import prefix
from agent.state import WorkspaceFile
from agent.tools.base import ToolContext, ToolError
from agent.tools.folder_walk import MAX_COUNTED, Entry, entries
from agent.tools.workspace import MAX_DEPTH, file_in, is_acted_upon, opened_folder, parts_of, read_bytes
from evals.disk import disk_errors

MAX_FILES = 200  # that a record lists
MAX_TEXT_BYTES = 32 * 1024  # of one file whose text is kept
MAX_TEXTS_BYTES = 256 * 1024  # of all texts together
MAX_READ_BYTES = 16 * 1024 * 1024
MAX_KEPT_BYTES = 64 * 1024 * 1024  # of all files that are kept of one workspace
MAX_NAME = 200
MAX_PART_BYTES = 255  # of a file or folder, as file systems have it
KEPT = "workspaces"  # the folder of those that are kept, beside the traces
# A name that is too long where it is to stand, or that the file system there does not take: no fault of the disk.
_NAME_FAULTS = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})


def checked_name(name: str) -> str:
    """A fixture's path, relative to the workspace.

    Raises:
        ValueError: it would lead out of the workspace, or is no plain path; the message says what it must be.
    """
    if not name or len(name) > MAX_NAME or "\0" in name or "\\" in name or not name.isprintable():
        raise ValueError(f"a file's name must be 1 to {MAX_NAME} printable characters, without a backslash")
    if len(PurePosixPath(plain_path(name)).parts) > MAX_DEPTH:
        raise ValueError(f"a file's name may have {MAX_DEPTH} parts, as many as tools take")
    return name


def plain_path(name: str) -> str:
    """A path at which a file may come to stand below a workspace, whoever writes it.

    Raises:
        ValueError: none ever can; the message says what it must be.
    """
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or str(PurePosixPath(name)) != name or not parts:
        raise ValueError("a file's name must be a plain path below the workspace (notes/today.txt), without '..'")
    if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        raise ValueError(f"each part of a file's name may take {MAX_PART_BYTES} bytes")
    return name


def below_files(names: Collection[str]) -> Iterator[tuple[str, str]]:
    """The paths that cannot be laid out since a folder in them is itself named as a file, each with that file."""
    files = set(names)
    for name in names:
        yield from ((name, folder) for folder in map(str, PurePosixPath(name).parents) if folder in files)


@contextmanager
def fresh_workspace(files: Mapping[str, str]) -> Iterator[Path]:
    """A new folder that holds these texts, by path; removed with all that is in it at the end.

    Raises:
        StoreError: the disk does not take it.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=prefix("workspace"), ignore_cleanup_errors=True)
    except OSError as error:
        raise StoreError(f"no workspace could be made ({error.strerror}); free some disk space") from None
    with folder as name:
        root = Path(name).resolve()
        try:
            for path, text in files.items():
                target = root / checked_name(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text.encode("utf-8"))
        except OSError as error:
            raise StoreError(f"the workspace could not be filled ({error.strerror}); free some disk space") from None
        yield root


@contextmanager
def workspace_for(files: Mapping[str, str], folder: Path | None) -> Iterator[Path]:
    """The person's own folder where they named one, else a fresh one that holds these texts.

    Raises:
        StoreError: the folder is gone, or the disk does not take the fresh one.
    """
    if folder is None:
        with fresh_workspace(files) as fresh:
            yield fresh
        return
    try:
        yield folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise StoreError(f"the workspace {folder} cannot be used ({error})") from None


# -- its record -------------------------------------------------------------------------------------------------------


def listed(root: Path, secrets: tuple[str, ...] = ()) -> list[WorkspaceFile]:
    """The ordinary files below a folder by path, as many as a record holds. One that holds a secret has no text."""
    with _opened(root) as folder, closing(_files_below(folder)) as found:
        return _record(_recorded(entry.folder, entry.parts, secrets) for entry in found)


def listed_at(root: Path, paths: Iterable[str], secrets: tuple[str, ...] = ()) -> list[WorkspaceFile]:
    """The ordinary files that stand at these paths below a folder, as `listed`, and nothing else that is in it."""
    return _record(_at(root, path, secrets) for path in dict.fromkeys(paths))


def _at(root: Path, path: str, secrets: tuple[str, ...]) -> WorkspaceFile | None:
    with suppress(ToolError):  # deleted or moved since
        parts = parts_of(path, root)
        with opened_folder(ToolContext(workspace=root), parts[:-1]) as folder:
            return _recorded(folder, parts, secrets)
    return None


def _recorded(folder: int, parts: tuple[str, ...], secrets: tuple[str, ...]) -> WorkspaceFile | None:
    data = _bytes_of(folder, parts[-1], MAX_READ_BYTES)
    if data is None:
        return None
    text = _text(data) if len(data) <= MAX_TEXT_BYTES else None
    if text is not None and redacted(text, secrets) != text:  # without it the text would not be the one of its hash
        text = None
    return WorkspaceFile(path="/".join(parts), size=len(data), sha256=hashlib.sha256(data).hexdigest(), text=text)


def _record(found: Iterable[WorkspaceFile | None]) -> list[WorkspaceFile]:
    """The files by path, with no more text than a record holds."""
    known = islice((file for file in found if file is not None), MAX_FILES)
    files, room = sorted(known, key=lambda file: file.path), MAX_TEXTS_BYTES
    for place, file in enumerate(files):
        if file.text is None or file.size > room:
            files[place] = file.model_copy(update={"text": None})
        else:
            room -= file.size
    return files


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


# -- what is kept of it -----------------------------------------------------------------------------------------------


def keep_workspace(
    root: Path, trace: Path, secrets: tuple[str, ...] = (), tell: Callable[[str], None] = lambda _said: None
) -> Path | None:
    """Copy the files of a workspace to a folder beside the run's trace, and say where; None where there are none.

    Links and whatever else is no ordinary file stay out: nothing that is opened there later leads anywhere else. So do
    files that hold a secret, those of names that a person's programs obey (.git, Makefile), and those whose paths
    cannot be written there; `tell` hears of these.

    Raises:
        StoreError: the disk does not take them.
    """
    target, room, kept, left_out, unwritable = trace.parent / KEPT / trace.stem, MAX_KEPT_BYTES, 0, 0, 0
    with disk_errors(target), _opened(root) as folder, closing(_files_below(folder)) as found:
        if target.exists():
            shutil.rmtree(target)
        for entry in found:
            data = _bytes_of(entry.folder, entry.found.name, min(room, MAX_READ_BYTES))
            if data is None:
                continue
            if is_acted_upon(entry.parts) or _holds(entry.path, data, secrets):
                left_out += 1
            elif not _written(target / entry.path, data):
                unwritable += 1
            else:
                kept += 1
                room -= len(data)
        if target.exists() and not kept:
            shutil.rmtree(target)
    if left_out:
        tell(f"not kept of its workspace: {left_out} files that hold a secret or that other programs would act upon")
    if unwritable:
        tell(f"not kept of its workspace: {unwritable} files whose paths are too long there, or of another system")
    return target if kept else None


def _written(path: Path, data: bytes) -> bool:
    """Write a file and the folders above it; False where no file can have that path. Raises OSError for the disk's."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        if error.errno not in _NAME_FAULTS:
            raise
        return False
    return True


def _holds(path: str, data: bytes, secrets: tuple[str, ...]) -> bool:
    """Whether a secret stands in a file or in its name."""
    text = f"{path}\n{data.decode('utf-8', 'replace')}"
    return redacted(text, secrets) != text


# -- what both read ---------------------------------------------------------------------------------------------------


def _files_below(folder: int) -> Generator[Entry, None, None]:
    """The ordinary files below an open folder, as far as anybody looks."""
    with closing(entries(folder, (), lambda entry: len(entry.parts) < MAX_DEPTH)) as found:
        yield from (entry for entry in islice(found, MAX_COUNTED) if entry.is_file)


@contextmanager
def _opened(root: Path) -> Iterator[int]:
    with opened_folder(ToolContext(workspace=root), ()) as folder:
        yield folder


def _bytes_of(folder: int, name: str, most: int) -> bytes | None:
    """All of a file of an open folder; None where it is no ordinary file, closed to us, or has more bytes than that."""
    with suppress(OSError):
        handle = file_in(folder, name)
        try:
            return read_bytes(handle, most) if os.fstat(handle).st_size <= most else None
        finally:
            os.close(handle)
    return None
