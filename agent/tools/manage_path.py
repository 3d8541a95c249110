"""manage_path: folders of the workspace made, files and folders moved or deleted."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from pydantic import Field

from agent.errors import StoreError
from agent.tools.base import Params, Tool, ToolContext, ToolError
from agent.tools.folder_walk import MAX_COUNTED, entries
from agent.tools.workspace import (
    MAX_DEPTH,
    MAX_PATH_CHARS,
    Place,
    faults_told,
    folder_in,
    is_private,
    make_folder,
    obeyed_warning,
    opened_folder,
    parts_to_change,
    refuse_git_head,
)


class ManagePathParams(Params):
    """What manage_path takes."""

    action: Literal["mkdir", "delete", "move"] = Field(
        description="Whether a folder is made, or a file or folder is deleted or moved."
    )
    path: str = Field(
        min_length=1, max_length=MAX_PATH_CHARS, description="The file or folder, relative to the workspace."
    )
    destination: str | None = Field(
        None, max_length=MAX_PATH_CHARS, description="Only to move: the new path with the new name at its end."
    )
    recursive: bool = Field(False, description="Only to delete: whether a folder goes with all that is in it.")


class ManagePath(Tool[ManagePathParams]):
    """Both ends of a move are judged alike, and nothing that is there is ever moved over."""

    name = "manage_path"
    description = "Makes a folder, deletes a file or folder, or moves one to another path."
    effect = "write"
    keywords = (
        *("make a folder", "create a folder", "make the folder", "create the folder", "make a directory", "mkdir"),
        *("create a directory", "delete", "remove the file", "remove the folder", "move", "rename"),
    )
    params = ManagePathParams

    def warning(self, params: ManagePathParams, context: ToolContext) -> str | None:
        """That programs may run or obey later what is moved."""
        if params.action != "move" or not params.destination:
            return None
        with suppress(ToolError, StoreError), _place_to_change(context, params.path) as old:
            target = "/".join(parts_to_change(params.destination, context))
            return obeyed_warning(target, context, is_folder=_is_folder(old))
        return None

    def run(self, params: ManagePathParams, context: ToolContext) -> str:
        """What was done.

        Raises:
            ToolError: bad_args, exists, not_empty, not_found, not_directory, too_large, refused or no_workspace.
            StoreError: the disk fails.
        """
        match params.action:
            case "mkdir":
                return _make(params.path, context)
            case "delete":
                return _delete(params.path, context, recursive=params.recursive)
        if not params.destination:
            raise ToolError("bad_args", "move needs a destination: the new path with the new name at its end.")
        return _move(params.path, params.destination, context)


@contextmanager
def _place_to_change(context: ToolContext, path: str, *, create: bool = False) -> Iterator[Place]:
    parts = parts_to_change(path, context)
    opened = opened_folder(context, parts[:-1], to_change=True, create=create)
    with opened as folder, faults_told("/".join(parts)):
        yield Place(folder, parts[-1], "/".join(parts))


# -- make -------------------------------------------------------------------------------------------------------------


def _make(path: str, context: ToolContext) -> str:
    with _place_to_change(context, path, create=True) as place:
        if make_folder(place.folder, place.name):
            return f"made the folder {place.path}/"
        if not _is_folder(place):
            raise _exists(place)
        return f"the folder {place.path}/ was there already"


# -- delete -----------------------------------------------------------------------------------------------------------


def _delete(path: str, context: ToolContext, *, recursive: bool) -> str:
    with _place_to_change(context, path) as place:
        if not _is_folder(place):
            os.unlink(place.name, dir_fd=place.folder)
            return f"deleted {place.path}"
        if not recursive:
            _delete_empty(place)
            return f"deleted the folder {place.path}/"
        count = _count_what_goes(place, context)
        # Opens each folder from the handle of the one before it and follows no link, as all tools do here.
        shutil.rmtree(place.name, dir_fd=place.folder)
        return f"deleted the folder {place.path}/ and {count} entries in it"


def _delete_empty(place: Place) -> None:
    try:
        os.rmdir(place.name, dir_fd=place.folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        message = f"{place.path} is not empty. Only with recursive true is all of it deleted."
        raise ToolError("not_empty", message) from None


def _count_what_goes(place: Place, context: ToolContext) -> int:
    """How many entries are in a folder, all of which may go.

    Raises:
        ToolError: refused, one is private or too deep; too_large, there are very many.
    """
    parts, count = tuple(place.path.split("/")), 0
    folder = folder_in(place.folder, place.name)
    try:
        for entry in entries(folder, parts, lambda _entry: True):
            count += 1
            if is_private(entry.found.name, context):
                raise ToolError("refused", f"{entry.shown} is private: it is not deleted, nor any folder around it.")
            if len(entry.parts) > MAX_DEPTH:
                raise ToolError("refused", f"There are folders deeper than {MAX_DEPTH}: they are not deleted here.")
            if count > MAX_COUNTED:
                raise ToolError("too_large", f"{place.path} holds over {MAX_COUNTED:,} entries. Delete parts of it.")
    finally:
        os.close(folder)
    return count


# -- move -------------------------------------------------------------------------------------------------------------


def _move(path: str, destination: str, context: ToolContext) -> str:
    parts, target = parts_to_change(path, context), parts_to_change(destination, context)
    if target[: len(parts)] == parts:
        raise ToolError("refused", "The destination is the path itself, or inside it.")
    with _place_to_change(context, path) as old:
        is_folder = _is_folder(old)
        if not is_folder:
            refuse_git_head(target, context)
        with _place_to_change(context, destination, create=True) as new:
            _take_name(new, is_folder=is_folder)
            try:
                os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)
            except OSError:
                _give_name_back(new, is_folder=is_folder)
                raise
    context.written.append(new.path)
    return f"moved {old.path} to {new.path}"


def _take_name(place: Place, *, is_folder: bool) -> None:
    """Put an empty file or folder in the place. A rename goes over that in one step, and would over all else."""
    try:
        if is_folder:
            os.mkdir(place.name, dir_fd=place.folder)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(place.name, flags, dir_fd=place.folder))
    except FileExistsError:
        raise _exists(place) from None


def _give_name_back(place: Place, *, is_folder: bool) -> None:
    with suppress(OSError):
        (os.rmdir if is_folder else os.unlink)(place.name, dir_fd=place.folder)


def _is_folder(place: Place) -> bool:
    """Whether a folder itself stands in the place. Raises OSError where nothing does."""
    return stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode)


def _exists(place: Place) -> ToolError:
    return ToolError("exists", f"{place.path} is there already, and nothing is overwritten. Use another name.")
