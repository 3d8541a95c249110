"""The file tools: what a model may write of a path, exact results, and nothing that leads out of the workspace."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.errors import StoreError
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.list_directory import MAX_COUNTED
from agent.tools.registry import ToolRegistry, toolset
from agent.tools.workspace import MAX_DEPTH, MAX_FILE_BYTES

SECRET = "the secret outside"


class Files:
    """The tools of one workspace. Beside it lies what no tool may reach."""

    def __init__(self, folder: Path):
        self.root = folder / "workspace"
        self.root.mkdir()
        (folder / "workspace-evil").mkdir()
        for outside in (folder / "outside.txt", folder / "workspace-evil" / "x"):
            outside.write_text(SECRET)
        self.tools = ToolRegistry(toolset("fs"), ToolContext(workspace=self.root))

    def run(self, name: str, **arguments: Any) -> ToolResult:
        return self.tools.execute(ToolCall(name=name, arguments=arguments))

    def read(self, path: str) -> ToolResult:
        return self.run("read_file", path=path)

    def write(self, path: str, content: str = "new", mode: str = "overwrite") -> ToolResult:
        return self.run("write_file", path=path, content=content, mode=mode)

    def ls(self, **arguments: Any) -> ToolResult:
        return self.run("list_directory", **arguments)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def refused(result: ToolResult, error_type: str = "refused") -> bool:
    return (result.success, result.error_type) == (False, error_type)


def test_what_was_written_is_read_back_and_listed(files: Files) -> None:
    assert files.write("notes.txt", "hello\nworld\n").data == "wrote 12 characters to notes.txt (12 in all)"
    assert files.write("notes.txt", "\u00fcber\n", "append").data == "wrote 5 characters to notes.txt (17 in all)"
    assert files.write("./notes.txt", "# ", "prepend").data == "wrote 2 characters to notes.txt (19 in all)"
    assert files.read("notes.txt").data == "# hello\nworld\n\u00fcber\n"
    assert files.write("notes.txt", "").data == "wrote 0 characters to notes.txt (0 in all)"
    assert files.read("notes.txt").data == "(notes.txt is empty)"
    assert files.write("a/b/c.md", "deep").data == "wrote 4 characters to a/b/c.md (4 in all)"
    assert files.ls().data == "a/\nnotes.txt (0 bytes)"
    assert files.ls(recursive=True).data == "a/\na/b/\na/b/c.md (4 bytes)\nnotes.txt (0 bytes)"
    assert files.ls(path="a/b").data == "a/b/c.md (4 bytes)"


def test_a_file_that_is_not_there_yet_is_made_by_every_mode(files: Files) -> None:
    assert files.write("one", "1", "append").success
    assert files.write("two", "2", "prepend").success
    assert files.ls().data == "one (1 bytes)\ntwo (1 bytes)"


@pytest.mark.parametrize("form", ["NAME", "./NAME", ".//NAME", "/workspace/NAME", "ROOT/NAME"])
@pytest.mark.parametrize("name", ["a b.txt", "d/x.txt", "..txt", "notes~", "\u00fc.txt", "price$.txt"])
def test_a_path_may_be_written_in_several_ways(files: Files, form: str, name: str) -> None:
    path = form.replace("NAME", name).replace("ROOT", str(files.root))
    assert files.write(path, "text").data == f"wrote 4 characters to {name} (4 in all)"
    assert (files.root / name).read_text() == "text"
    assert files.read(path).data == "text"


@pytest.mark.parametrize("path", ["", ".", "./", "/workspace", "/workspace/", "ROOT"])
def test_the_workspace_itself_may_be_named_in_several_ways(files: Files, path: str) -> None:
    path = path.replace("ROOT", str(files.root))
    assert files.ls(path=path).data == files.ls(path=None).data == "(the folder is empty)"
    for result in (files.read(path), files.write(path)):
        assert refused(result, "is_directory" if path else "bad_args")


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt",
        "d/../../outside.txt",
        "../workspace-evil/x",
        "ROOT-evil/x",
        "ROOT/../outside.txt",
        "/workspace-evil/x",
        "/workspace/../outside.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "/dev/zero",
        "~/.ssh/id_rsa",
        "$HOME/.env",
        "a\0.txt",
        "a\n.txt",
        "\x1b[2J",
        "\u202etxt.exe",
        "..\\outside.txt",
        "..\uff0f..\uff0fetc\uff0fpasswd",
        ".env",
        ".ENV",
        ".env.local",
        ".git/config",
        "d/.git/hooks/pre-commit",
        "d/" * (MAX_DEPTH + 1) + "x",
    ],
)
def test_a_path_that_leads_out_or_to_a_secret_is_refused(files: Files, path: str, tmp_path: Path) -> None:
    (files.root / "d").mkdir()
    (files.root / ".git").mkdir()
    (files.root / ".env").write_text(SECRET)
    before = sorted(tmp_path.rglob("*"))
    path = path.replace("ROOT", str(files.root))
    for result in (files.read(path), files.write(path), files.ls(path=path)):
        assert refused(result)
        assert (result.error or "").isprintable()
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "outside.txt").read_text() == SECRET


def test_too_long_a_name_is_refused(files: Files) -> None:
    name = "\u00fc" * 190  # 380 bytes
    for result in (files.read(name), files.write(name), files.ls(path=name), files.write(f"{name}/x")):
        assert refused(result)


def test_links_are_never_followed(files: Files, tmp_path: Path) -> None:
    (files.root / "inside.txt").write_text("inside")
    (files.root / "to_file").symlink_to(tmp_path / "outside.txt")
    (files.root / "to_inside").symlink_to("inside.txt")
    (files.root / "to_folder").symlink_to(tmp_path)
    (files.root / "nowhere").symlink_to(tmp_path / "made.txt")
    for path in ("to_file", "to_inside", "to_folder", "to_folder/outside.txt", "nowhere"):
        for result in (files.read(path), files.write(path), files.write(path, mode="append")):
            assert refused(result)
            assert "symbolic link" in (result.error or "")
    for path in ("to_folder", "to_folder/workspace"):
        assert refused(files.ls(path=path))
    assert (tmp_path / "outside.txt").read_text() == SECRET
    assert not (tmp_path / "made.txt").exists()


SWAP = """
import os, sys
secret, secrets = sys.argv[1:]
print("swapping", flush=True)
while True:
    os.symlink(secret, "link"); os.replace("link", "file")
    open("plain", "w").write("harmless"); os.replace("plain", "file")
    os.rename("folder", "real"); os.symlink(secrets, "folder")
    os.unlink("folder"); os.rename("real", "folder")
"""


def test_a_name_that_is_swapped_for_a_link_meanwhile_never_leads_out(files: Files, tmp_path: Path) -> None:
    """The race that a check before the opening loses."""
    (files.root / "folder").mkdir()
    (files.root / "folder" / "x").write_text("harmless")
    (files.root / "file").write_text("harmless")
    command = [sys.executable, "-c", SWAP, str(tmp_path / "outside.txt"), str(tmp_path / "workspace-evil")]
    with subprocess.Popen(command, cwd=files.root, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        read: list[ToolResult] = []
        while len(read) < 1000 or {"refused", None} - {result.error_type for result in read}:
            read += [files.read("file"), files.read("folder/x")]
        written = [files.write("file", " mine", "append") for _ in range(300)]
        swapper.kill()
    assert {result.error_type for result in [*read, *written]} <= {"refused", "not_found", None}
    assert not [result for result in read if SECRET in result.data]
    assert (tmp_path / "outside.txt").read_text() == SECRET


def test_what_is_no_ordinary_file_is_refused_at_once(files: Files) -> None:
    os.mkfifo(files.root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(files.root)  # a socket's path may not be long
        server.bind("socket")
        os.fchdir(here)
        os.close(here)
        for path in ("pipe", "socket"):
            for result in (files.read(path), files.write(path), files.write(path, mode="prepend")):
                assert refused(result)
                assert result.seconds < 5
        assert files.ls().data == "pipe (no ordinary file)\nsocket (no ordinary file)"


def test_a_folder_is_no_file_and_a_file_no_folder(files: Files) -> None:
    files.write("d/x.txt")
    for result in (files.read("d"), files.write("d"), files.read("d/"), files.write("d/new/")):
        assert refused(result, "is_directory")
    for result in (files.read("d/x.txt/y"), files.write("d/x.txt/y"), files.ls(path="d/x.txt")):
        assert refused(result, "not_directory")
    assert files.ls(path="d", recursive=True).data == "d/x.txt (3 bytes)"


def test_a_missing_file_is_told_with_the_nearest_name(files: Files) -> None:
    files.write("d/notes.txt")
    missing = files.read("d/note.txt")
    assert refused(missing, "not_found")
    assert missing.error == "d/note.txt is not there. Did you mean d/notes.txt?"
    assert files.read("d/zzz").error == "d/zzz is not there."
    assert refused(files.ls(path="e"), "not_found")


def test_a_file_with_a_second_name_elsewhere_is_replaced_and_not_written_through(files: Files, tmp_path: Path) -> None:
    (files.root / "twin").hardlink_to(tmp_path / "outside.txt")
    assert files.write("twin", " and mine", "append").success
    assert (tmp_path / "outside.txt").read_text() == SECRET


def test_whoever_looks_finds_the_old_file_or_the_new_one_whole(files: Files) -> None:
    texts = ["a" * 20_000, "b" * 20_000]
    files.write("big", texts[0])
    done = threading.Event()
    seen: set[str] = set()

    def look() -> None:
        while not done.is_set():
            seen.add((files.root / "big").read_text())

    looking = threading.Thread(target=look)
    looking.start()
    for turn in range(60):
        files.write("big", texts[turn % 2])
    done.set()
    looking.join()
    assert seen <= set(texts)
    assert [path.name for path in files.root.iterdir()] == ["big"]


def test_permissions_stay_but_none_is_won(files: Files) -> None:
    files.write("script")
    (files.root / "script").chmod(0o4750)
    files.write("script", "newer")
    assert stat.S_IMODE((files.root / "script").stat().st_mode) == 0o750


def test_a_write_that_cannot_be_made_leaves_nothing_behind(files: Files) -> None:
    (files.root / "big").write_bytes(b"x" * MAX_FILE_BYTES)
    assert refused(files.write("big", "y", "append"), "too_large")
    assert refused(files.run("write_file", path="big", content="y" * 20_001), "bad_args")
    assert (files.root / "big").stat().st_size == MAX_FILE_BYTES
    assert [path.name for path in files.root.iterdir()] == ["big"]
    assert files.write("big", "small").data == "wrote 5 characters to big (5 in all)"


def test_long_files_are_cut_and_said_so(files: Files) -> None:
    files.write("long", "z" * 9000)
    result = files.read("long")
    assert result.truncated
    assert len(result.data) == 8000
    assert result.data.endswith("[cut here: 9,000 characters in all]")
    with (files.root / "huge").open("w") as file:
        file.write("y" * (MAX_FILE_BYTES + 1))
        file.truncate(1 << 40)
    result = files.read("huge")
    assert result.truncated
    assert result.data.endswith("y\n[cut here: 1,099,511,627,776 bytes in all]")
    assert len(result.data) == 8000


def test_bytes_that_are_no_text_are_replaced_and_binary_is_said_so(files: Files) -> None:
    (files.root / "latin").write_bytes(b"caf\xe9")
    (files.root / "image").write_bytes(b"\x89PNG\0\xff" * 10)
    with (files.root / "sparse").open("w") as file:
        file.truncate(1 << 40)
    assert files.read("latin").data == "caf\N{REPLACEMENT CHARACTER}"
    assert files.write("latin", "!", "append").data == "wrote 1 characters to latin (5 in all)"
    assert (files.root / "latin").read_bytes() == b"caf\xe9!"
    assert "image is a binary file" in files.read("image").data
    sparse = files.read("sparse")
    assert sparse.truncated
    assert "sparse is a binary file" in sparse.data


def test_listings_are_bounded_and_follow_no_loop(files: Files) -> None:
    (files.root / "loop").symlink_to(".")
    (files.root / ".git" / "objects").mkdir(parents=True)
    (files.root / "bad\n\x1b[2J\udcff").touch()
    listed = files.ls(recursive=True).data.splitlines()
    assert listed == [".git/ (private)", "bad\ufffd\ufffd[2J\ufffd (0 bytes)", "loop (link, not followed)"]
    for number in range(150):
        (files.root / f"file{number:03}").touch()
    result = files.ls()
    assert result.truncated
    assert len(result.data.splitlines()) == 101
    assert result.data.endswith("file097 (0 bytes)\n[cut here: 153 entries in all]")


def test_a_listing_of_very_many_files_stops_counting(files: Files) -> None:
    for folder in ("a", "b"):
        (files.root / folder).mkdir()
        for number in range(MAX_COUNTED // 2):
            (files.root / folder / str(number)).touch()
    assert files.ls(recursive=True).data.endswith("[cut here: over 10,000 entries in all]")


def test_a_folder_that_is_deeper_than_tools_go_is_not_listed_to_its_end(files: Files) -> None:
    deep = files.root.joinpath(*["d"] * (MAX_DEPTH + 5))
    deep.mkdir(parents=True)
    assert len(files.ls(recursive=True).data.splitlines()) == MAX_DEPTH


def test_folders_are_closed_again(files: Files) -> None:
    files.write("a/b/c/x.txt")
    (files.root / "link").symlink_to("a")
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("a/b/c/x.txt", "a/b/c/none", "a/b/c", "link/x", "../x", "a/b/c/x.txt/y"):
        files.read(path)
        files.write(path)
        files.ls(path=path, recursive=True)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_without_a_workspace_no_file_tool_does_anything() -> None:
    tools = ToolRegistry(toolset("fs"), ToolContext())
    for name, arguments in (
        ("list_directory", {}),
        ("read_file", {"path": "/etc/passwd"}),
        ("write_file", {"path": "x", "content": "y"}),
    ):
        assert refused(tools.execute(ToolCall(name=name, arguments=arguments)), "no_workspace")


def test_a_workspace_that_is_gone_is_no_fault_of_the_model(files: Files) -> None:
    files.root.rmdir()
    with pytest.raises(StoreError, match="the workspace cannot be opened"):
        files.ls()


def test_a_relative_workspace_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="absolute path"):
        ToolContext(workspace=Path("relative"))
