"""Paths in a run's workspace: how a model may write one, and how it is opened so that nothing leads out.

No path is ever checked and then opened: each component is opened by itself, from the handle of the folder before it,
never through a symbolic link, and what it is (folder, file, or something else) is asked of the handle. So it does not
matter what a program swaps meanwhile. `..` never reaches the system.
"""

from __future__ import annotations

import difflib
import errno
import itertools
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from agent.errors import StoreError
from agent.tools.base import ToolContext, ToolError

MAX_PATH_CHARS = 200
MAX_DEPTH = 20
MAX_FILE_BYTES = 1 << 20  # no tool makes a longer file, or holds more of one
SHOWN_ROOT = "/workspace"  # what models call the folder whose real name they are never told

# Folders and files that hold secrets, or that a person's programs would act upon later; * stands for anything. In
# lower case, for whatever the case of a name: some file systems look past it too.
_PRIVATE = (".env", ".env.*", ".envrc", ".git", ".hg", ".ssh", ".netrc", ".vscode")
# In a person's own folder also where programs keep their keys. A folder made for a run holds nobody's.
_PERSONS_PRIVATE = (
    *(".aws", ".kube", ".gnupg", ".docker", ".git-credentials", ".npmrc", ".pypirc"),
    *("id_rsa*", "id_ed25519*", "*.pem", "*.key"),
)
# What a person's programs run or load by themselves, or as soon as the person builds or tests. Nobody's programs look
# into a folder made for a run, so there they are files like others. Folders are named by themselves and not with what
# in them is run: a folder could be filled under another name, and then moved.
_RUN_LATER = (
    *("conftest", "sitecustomize", "usercustomize", "conftest.py", "sitecustomize.py", "usercustomize.py"),
    *("*.pth", "*.pyc", "setup.py", "setup.cfg", "pyproject.toml", "pytest.ini", "tox.ini"),
    *("makefile", "gnumakefile", "package.json", ".cargo", ".github", ".gitlab-ci.yml", ".husky"),
    *(".pre-commit-config.yaml", ".idea", ".devcontainer", ".claude", "mcp.json", ".mcp.json", "*.desktop"),
    *(".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin"),
)
# The one file that no git repository is without: a folder that holds it beside others is one to git whatever the folder
# is called, and there git runs what `config` and `hooks` say. In lower case, for the same reason.
_GIT_HEAD = "head"
# Beyond those, no list of names is ever whole. Nearly every kind of file is run or obeyed by some program, so a person
# is warned of all but these, which are looked at alone; and of these too, where they bear a name that is obeyed.
_LOOKED_AT = ("*.txt", "*.md", "*.rst", "*.csv", "*.tsv", "*.log")
_OBEYED = ("requirements*.txt", "constraints*.txt", "cmakelists.txt", "agents.md", "claude.md", "gemini.md", "skill.md")
# What looks like a separator, or is one elsewhere. Nothing is normalised: a path means what stands in it.
_OTHER_SEPARATORS = re.compile("[\\\\\u2044\u2215\u29f8\uff0f\uff3c]")
# Opening must neither wait (a pipe) nor follow a link; what was opened is judged afterwards.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_NEIGHBOURS = 1000

# The machine's faults. Every other error comes of what the path names, and is the model's.
_DISK_FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
)
_PATH_FAULTS = {
    errno.ENOENT: ("not_found", "is not there"),
    errno.ELOOP: ("refused", "is a symbolic link, and links are not followed"),
    errno.EMLINK: ("refused", "is a symbolic link, and links are not followed"),
    errno.ENOTDIR: ("not_directory", "is not a folder"),
    errno.EISDIR: ("is_directory", "is a folder, not a file"),
    errno.ENXIO: ("refused", "is not an ordinary file"),
    errno.ENAMETOOLONG: ("refused", "has too long a name"),
}


@dataclass(frozen=True)
class Place:
    """Where a file is or is to be: `name` in the folder with the handle `folder`. `path` begins at the workspace."""

    folder: int
    name: str
    path: str


def parts_in(path: str, context: ToolContext) -> tuple[str, ...]:
    """As `parts_of`, in the run's workspace.

    Raises:
        ToolError: no_workspace; refused, also what is private in a person's own folder alone.
    """
    parts = parts_of(path, workspace_of(context))
    for part in parts:
        _refuse_private(part, is_private(part, context))
    return parts


def parts_of(path: str, workspace: Path) -> tuple[str, ...]:
    """The components of a path that a model wrote, below the workspace; none for the workspace itself.

    Raises:
        ToolError: refused, the path leads out or its form is not allowed.
    """
    if not path.isprintable():
        raise ToolError("refused", "The path holds characters that no name may have here, such as line ends.")
    if _OTHER_SEPARATORS.search(path):
        raise ToolError("refused", "Only / stands between the parts of a path here.")
    parts = tuple(part for part in _relative(path, workspace).split("/") if part not in {"", "."})
    if ".." in parts:
        raise ToolError("refused", "A path may not hold .. here: name the file from the workspace down.")
    if len(parts) > MAX_DEPTH:
        raise ToolError("refused", f"The path is deeper than {MAX_DEPTH} folders.")
    for part in parts:
        _refuse_private(part, _is_like(part, _PRIVATE))
    return parts


def _refuse_private(part: str, private: bool) -> None:
    if private:
        raise ToolError("refused", f"{part} is private: tools may neither read nor write it.")


def private_names(context: ToolContext) -> tuple[str, ...]:
    """The names that tools keep away from, in lower case and whatever the case; * stands for anything."""
    return (*_PRIVATE, *_PERSONS_PRIVATE) if context.persons_folder else _PRIVATE


def is_private(name: str, context: ToolContext) -> bool:
    """Whether tools keep away from a file or folder of this name."""
    return _is_like(name, private_names(context))


def is_acted_upon(parts: Sequence[str]) -> bool:
    """Whether a person's programs keep secrets in a file of this path, or run or obey it; for whoever copies out of a
    workspace."""
    named = any(_is_like(part, (*_PRIVATE, *_PERSONS_PRIVATE, *_RUN_LATER)) for part in parts)
    return named or _is_git_head(parts)


def _is_git_head(parts: Sequence[str]) -> bool:
    return parts[-1].casefold() == _GIT_HEAD


def refuse_git_head(parts: Sequence[str], context: ToolContext) -> None:
    """Nothing, unless a file of this path would help to make a folder of the person's a repository.

    Raises:
        ToolError: refused.
    """
    if context.persons_folder and _is_git_head(parts):
        raise ToolError(
            "refused", f"A file {parts[-1]} makes its folder one whose settings git obeys: use another name."
        )


def _refuse_repository(folder: int, path: str) -> None:
    """Nothing, or the refusal of an open folder that git takes for a repository, or would once more stands in it."""
    with faults_told(path), suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat("HEAD", dir_fd=folder, follow_symlinks=False).st_mode):
            raise ToolError(
                "refused", f"{path} holds a file HEAD, as git's own folders do: tools change nothing in it."
            )


def obeyed_warning(path: str, context: ToolContext, *, is_folder: bool = False) -> str | None:
    """For the person who is asked whether this may be put into their own folder: that programs may act upon it later.

    None where it is only looked at. Of a folder nobody knows what is in it that its new place makes a program run.
    """
    if not context.persons_folder:
        return None
    *folders, name = path.split("/")
    hidden = any(part.startswith(".") for part in (*folders, name))
    if not (is_folder or hidden) and _is_like(name, _LOOKED_AT) and not _is_like(name, _OBEYED):
        return None
    return f"{path} is of a kind that other programs may run or obey later" + (" with all in it" if is_folder else "")


def _is_like(name: str, patterns: tuple[str, ...]) -> bool:
    folded = name.casefold()
    return any(fnmatchcase(folded, pattern) for pattern in patterns)


def shown_path(path: str) -> str:
    """A path as a model may see it: a name can hold anything, line ends too."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in path)


def _relative(path: str, workspace: Path) -> str:
    """The path without the workspace's own name before it, real or shown. This only reads the text: whatever comes of
    it is opened below the workspace."""
    for root in (str(workspace), SHOWN_ROOT):
        if path == root or path.startswith(f"{root}/"):
            return path[len(root) :]
    if path.startswith(("/", "~", "$")):
        raise ToolError(
            "refused",
            "Only paths in the workspace can be used, written relative to it: the plain name of a file, or "
            "folder/name. Nothing is filled in for ~ or $.",
        )
    return path


def parts_to_change(path: str, context: ToolContext) -> tuple[str, ...]:
    """As `parts_in`, of what is to be written, moved or deleted; never the workspace itself.

    Raises:
        ToolError: no_workspace; refused, also what a person's programs would act upon.
    """
    parts = parts_in(path, context)
    if not parts:
        raise ToolError("refused", "The path names the workspace itself. Name a file or folder in it.")
    for part in parts if context.persons_folder else ():
        if _is_like(part, _RUN_LATER):
            raise ToolError("refused", f"{part} is run by other programs of this person: tools do not change it.")
    return parts


@contextmanager
def opened_folder(
    context: ToolContext, parts: Sequence[str], *, to_change: bool = False, create: bool = False
) -> Iterator[int]:
    """The handle of a folder of the workspace, in which something is `to_change`, or not; with `create`, folders that
    are missing are made.

    Raises:
        ToolError: no_workspace, not_found, not_directory or refused.
        StoreError: the workspace itself cannot be opened, or the disk fails.
    """
    handle, guarded = _opened_root(context), to_change and context.persons_folder
    try:
        if guarded:
            _refuse_repository(handle, SHOWN_ROOT)
        for depth, name in enumerate(parts, 1):
            path = "/".join(parts[:depth])
            with faults_told(path):
                if create:
                    make_folder(handle, name)
                outer, handle = handle, folder_in(handle, name)
                os.close(outer)
            if guarded:
                _refuse_repository(handle, path)
        yield handle
    finally:
        os.close(handle)


def make_folder(folder: int, name: str) -> bool:
    """Make a folder in an open folder, and say whether it was not there yet. Raises OSError."""
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return False
    inner = folder_in(folder, name)
    try:
        _give_to(os.fstat(folder), inner)
    finally:
        os.close(inner)
    return True


def _give_to(owner: os.stat_result, handle: int) -> None:
    """Let what root makes belong to whose it would be had they made it: isolated code and the person reach it then."""
    if os.geteuid() == 0:
        os.fchown(handle, owner.st_uid, owner.st_gid)


def folder_in(folder: int, name: str) -> int:
    """The handle of a folder in an open folder. Raises OSError, also where it is a link or no folder."""
    handle, mode = _opened(folder, name)
    if not stat.S_ISDIR(mode):
        os.close(handle)
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return handle


def file_in(folder: int, name: str) -> int:
    """The handle of an ordinary file in an open folder, to read. Raises OSError, also where it is anything else."""
    handle, mode = _opened(folder, name)
    if not stat.S_ISREG(mode):
        os.close(handle)
        fault = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
        raise OSError(fault, os.strerror(fault))
    return handle


def _opened(folder: int, name: str) -> tuple[int, int]:
    """The handle of whatever has this name, unless it is a link, and its mode as the handle tells it."""
    handle = os.open(name, _OPEN, dir_fd=folder)
    return handle, os.fstat(handle).st_mode


@contextmanager
def place_of(context: ToolContext, path: str, *, to_write: bool = False) -> Iterator[Place]:
    """Where the file of a path is or, `to_write`, is to be, with its folder open; see `opened_folder`."""
    parts = parts_in(path, context)
    if not parts or path.endswith("/"):
        raise ToolError("is_directory", "The path names a folder, not a file.")
    if to_write:
        parts = parts_to_change(path, context)
        refuse_git_head(parts, context)
    with opened_folder(context, parts[:-1], to_change=to_write, create=to_write) as folder:
        yield Place(folder, parts[-1], "/".join(parts))


@contextmanager
def opened_file(place: Place) -> Iterator[int]:
    """The handle of an ordinary file, to read.

    Raises:
        ToolError: not_found (with the nearest name), is_directory or refused.
        StoreError: the disk fails.
    """
    try:
        with faults_told(place.path):
            handle = file_in(place.folder, place.name)
    except ToolError as error:
        hint = _nearest(place) if error.error_type == "not_found" else ""
        raise ToolError(error.error_type, f"{error}{hint}") from None
    try:
        yield handle
    finally:
        os.close(handle)


def read_bytes(handle: int, most: int) -> bytes:
    """The first `most` bytes of an open file, or all where it has fewer. Raises OSError."""
    data = bytearray()
    while len(data) < most and (chunk := os.read(handle, most - len(data))):
        data += chunk
    return bytes(data)


def replace_file(place: Place, data: bytes, before: os.stat_result | None) -> None:
    """Put a file with these bytes in the place, in one step: whoever looks finds the old file or the new one whole.

    What stood there is replaced and never written through, were it a link or a second name of another file. `before`
    is what it was like, None for a new file: that gets what the process and the folder give. Raises OSError.
    """
    temporary = f".{secrets.token_hex(8)}.tmp"
    handle = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=place.folder
    )
    try:
        try:
            _give_to(before or os.fstat(place.folder), handle)
            if before is not None:
                os.fchmod(handle, stat.S_IMODE(before.st_mode) & 0o777)
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            os.close(handle)
        os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=place.folder)
        raise


@contextmanager
def faults_told(path: str) -> Iterator[None]:
    """An error of the system about `path` as whose fault it is.

    Raises:
        ToolError: the path's.
        StoreError: the disk's.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FAULTS:
            raise StoreError(f"the workspace cannot be used: {error.strerror}") from error
        kind, words = _PATH_FAULTS.get(error.errno or 0, ("refused", f"cannot be used ({error.strerror})"))
        raise ToolError(kind, f"{path} {words}.") from None


def workspace_of(context: ToolContext) -> Path:
    """The run's workspace.

    Raises:
        ToolError: no_workspace.
    """
    if context.workspace is None:
        raise ToolError("no_workspace", "This run has no workspace: there are no files. Do without.")
    return context.workspace


def _opened_root(context: ToolContext) -> int:
    root = workspace_of(context)
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"the workspace cannot be opened: {error}") from error


def _nearest(place: Place) -> str:
    """A hint at a file of the same folder with nearly that name."""
    with suppress(OSError), os.scandir(place.folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, _MAX_NEIGHBOURS) if entry.name.isprintable()]
        near = difflib.get_close_matches(place.name, names, n=1)
        return f" Did you mean {place.path.removesuffix(place.name)}{near[0]}?" if near else ""
    return ""
