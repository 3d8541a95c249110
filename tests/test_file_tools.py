"""The file tools: what a model may write of a path, exact results, and nothing that leads out of the workspace."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.errors import StoreError
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.folder_walk import MAX_COUNTED
from agent.tools.read_file_chunk import MAX_LOOKED_AT
from agent.tools.registry import ToolRegistry, toolset
from agent.tools.workspace import MAX_DEPTH, MAX_FILE_BYTES
from tests.support_files import SECRET, Files, refused

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


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
    path = path.replace("ROOT", str(files.root))
    files.write("here.txt", "here")
    before = sorted(tmp_path.rglob("*"))
    for result in (*files_opened(files, path), files.manage("move", "here.txt", path)):
        assert refused(result)
        assert (result.error or "").isprintable()
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "outside.txt").read_text() == SECRET


def files_opened(files: Files, path: str) -> list[ToolResult]:
    """What each tool says of a path."""
    return [
        *(files.read(path), files.chunk(path), files.write(path), files.ls(path=path), files.search("x", path=path)),
        *(files.manage("mkdir", path), files.manage("delete", path, recursive=True), files.manage("move", path, "y")),
    ]


def test_too_long_a_name_is_refused(files: Files) -> None:
    name = "\u00fc" * 190  # 380 bytes
    for result in (*files_opened(files, name), files.write(f"{name}/x")):
        assert refused(result)


def test_links_are_never_followed(files: Files, tmp_path: Path) -> None:
    (files.root / "inside.txt").write_text("inside")
    (files.root / "to_file").symlink_to(tmp_path / "outside.txt")
    (files.root / "to_inside").symlink_to("inside.txt")
    (files.root / "to_folder").symlink_to(tmp_path)
    (files.root / "nowhere").symlink_to(tmp_path / "made.txt")
    for path in ("to_file", "to_inside", "to_folder", "to_folder/outside.txt", "nowhere"):
        looks = (files.read(path), files.chunk(path), files.search("secret", path=path))
        for result in (*looks, files.write(path), files.write(path, mode="append")):
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


def test_very_many_files_are_not_counted_to_their_end_nor_deleted(files: Files) -> None:
    for folder in ("many/a", "many/b"):
        (files.root / folder).mkdir(parents=True)
        for number in range(MAX_COUNTED // 2):
            (files.root / folder / str(number)).touch()
    assert files.ls(recursive=True).data.endswith("[cut here: over 10,000 entries in all]")
    assert refused(files.manage("delete", "many", recursive=True), "too_large")
    assert len(files.names()) == MAX_COUNTED + 3


def test_a_folder_that_is_deeper_than_tools_go_is_not_listed_to_its_end(files: Files) -> None:
    deep = files.root.joinpath(*["d"] * (MAX_DEPTH + 5))
    deep.mkdir(parents=True)
    assert len(files.ls(recursive=True).data.splitlines()) == MAX_DEPTH


def test_folders_are_closed_again(files: Files) -> None:
    files.write("a/b/c/x.txt")
    (files.root / "link").symlink_to("a")
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("a/b/c/x.txt", "a/b/c/none", "a/b/c", "link/x", "../x", "a/b/c/x.txt/y"):
        files.ls(path=path, recursive=True)
        files_opened(files, path)
        files.manage("move", "y", path)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_what_is_written_belongs_to_whom_the_folder_belongs_to(files: Files) -> None:
    """Isolated code, and the person whose folder it is, must reach what a harness that runs as root has made."""
    if os.geteuid() != 0:
        pytest.skip("only root could make files that are another's")
    os.chown(files.root, 1234, 1234)
    files.write("a/b.txt")
    files.manage("mkdir", "c/d")
    os.chown(files.root / "a" / "b.txt", 4321, 4321)
    files.write("a/b.txt", "newer")
    owners = {path: (files.root / path).stat().st_uid for path in files.names()}
    assert owners == {"a": 1234, "a/b.txt": 4321, "c": 1234, "c/d": 1234}


def test_without_a_workspace_no_file_tool_does_anything() -> None:
    tools = ToolRegistry(toolset("fs"), ToolContext())
    for name, arguments in (
        ("list_directory", {}),
        ("read_file", {"path": "/etc/passwd"}),
        ("read_file_chunk", {"path": "/etc/passwd", "start_line": 1, "end_line": 1}),
        ("write_file", {"path": "x", "content": "y"}),
        ("manage_path", {"action": "mkdir", "path": "x"}),
        ("search", {"query": "x"}),
    ):
        assert refused(tools.execute(ToolCall(name=name, arguments=arguments)), "no_workspace")


def test_a_workspace_that_is_gone_is_no_fault_of_the_model(files: Files) -> None:
    files.root.rmdir()
    with pytest.raises(StoreError, match="the workspace cannot be opened"):
        files.ls()


def test_a_relative_workspace_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="absolute path"):
        ToolContext(workspace=Path("relative"))


# -- some lines of a file ---------------------------------------------------------------------------------------------


def test_some_lines_are_read_with_how_many_there_are(files: Files) -> None:
    files.write("poem", "one\ntwo\r\n\nfour")
    assert files.chunk("poem", 2, 4).data == "[poem: lines 2 to 4 of 4 lines]\ntwo\r\n\nfour"
    assert files.chunk("poem", 1, 1).data == "[poem: lines 1 to 1 of 4 lines]\none"
    files.write("poem", "one\n")
    assert files.chunk("poem", 1, 1).data == "[poem: lines 1 to 1 of 1 lines]\none"


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (1, 101, "At most 100 can be read at a time; here it would be 101."),
        (1, 250, "At most 100 can be read at a time; here it would be 250."),
        (200, 251, "The last line to read can be 250 at most."),
        (300, 301, "The last line to read can be 250 at most."),
        (9, 8, "The first line to read cannot come after the last."),
    ],
)
def test_a_range_that_cannot_be_had_is_told_with_the_number_of_lines(
    files: Files, start: int, end: int, why: str
) -> None:
    files.write("long", "x\n" * 250)
    result = files.chunk("long", start, end)
    assert refused(result, "bad_range")
    assert result.error == f"long has 250 lines. {why}"
    assert files.chunk("long", 151, 250).data.count("\n") == 100


def test_lines_of_what_is_no_text_or_very_long(files: Files) -> None:
    files.write("empty", "")
    assert files.chunk("empty").error == "empty has 0 lines. There is nothing to read."
    (files.root / "image").write_bytes(b"\x89PNG\0")
    assert "image is a binary file" in files.chunk("image").data
    with (files.root / "huge").open("w") as file:
        file.write("y" * 79 + "\n" + "z\n" * MAX_LOOKED_AT)
        file.truncate(1 << 40)
    assert files.chunk("huge", 1, 2).data.endswith("y\nz")
    result = files.chunk("huge", 9_000_000, 9_000_001)
    assert refused(result, "too_large")
    assert result.error == "Only the first 16 MiB of a file can be read here: 8,388,569 lines."


# -- folders made, things moved and deleted ---------------------------------------------------------------------------


def test_folders_are_made_and_things_moved_and_deleted(files: Files) -> None:
    assert files.manage("mkdir", "a/b").data == "made the folder a/b/"
    assert files.manage("mkdir", "a").data == "the folder a/ was there already"
    files.write("a/x.txt", "text")
    assert files.manage("move", "a/x.txt", "c/y.txt").data == "moved a/x.txt to c/y.txt"
    assert files.manage("move", "a", "c/a").data == "moved a to c/a"
    assert files.names() == ["c", "c/a", "c/a/b", "c/y.txt"]
    assert files.read("c/y.txt").data == "text"
    assert files.manage("delete", "c/a/b/").data == "deleted the folder c/a/b/"
    assert files.manage("delete", "c", recursive=True).data == "deleted the folder c/ and 2 entries in it"
    files.write("z")
    assert files.manage("delete", "z").data == "deleted z"
    assert files.names() == []


@pytest.mark.parametrize("path", [".", "./", "/workspace", "ROOT"])
def test_the_workspace_itself_is_never_moved_or_deleted(files: Files, path: str) -> None:
    files.write("x")
    path = path.replace("ROOT", str(files.root))
    for result in (
        files.manage("delete", path, recursive=True),
        files.manage("move", path, "y"),
        files.manage("move", "x", path),
        files.manage("mkdir", path),
    ):
        assert refused(result)
    assert files.names() == ["x"]


def test_both_ends_of_a_move_are_judged(files: Files, tmp_path: Path) -> None:
    files.write("a", "mine")
    (files.root / "out").symlink_to(tmp_path)
    for destination in ("../a", "out/a", ".git/hooks/pre-commit", ".env", "/etc/a", "a", "a/b"):
        assert refused(files.manage("move", "a", destination)), destination
    assert files.read("a").data == "mine"
    for path in ("../outside.txt", "out/outside.txt"):
        assert refused(files.manage("move", path, "b"))
        assert refused(files.manage("delete", path))
    assert (tmp_path / "outside.txt").read_text() == SECRET
    assert files.manage("move", "a", "b").success


def test_nothing_is_moved_over(files: Files, tmp_path: Path) -> None:
    files.write("a", "a")
    files.write("b", "b")
    files.manage("mkdir", "empty")
    files.manage("mkdir", "full/inner")
    (files.root / "link").symlink_to(tmp_path / "outside.txt")
    for path, destination in (("a", "b"), ("a", "empty"), ("full", "empty"), ("full", "b"), ("a", "link")):
        result = files.manage("move", path, destination)
        assert refused(result, "exists")
        assert result.error == f"{destination} is there already, and nothing is overwritten. Use another name."
    assert refused(files.manage("mkdir", "a"), "exists")
    assert refused(files.manage("mkdir", "link"), "exists")
    assert files.names() == ["a", "b", "empty", "full", "full/inner", "link"]
    assert (tmp_path / "outside.txt").read_text() == SECRET


def test_a_folder_goes_with_what_is_in_it_only_where_that_is_said(files: Files, tmp_path: Path) -> None:
    files.write("a/b/c.txt")
    (files.root / "a" / "link").symlink_to(tmp_path)
    result = files.manage("delete", "a")
    assert refused(result, "not_empty")
    assert result.error == "a is not empty. Only with recursive true is all of it deleted."
    assert refused(files.manage("move", "a", "a/b/d"))
    assert refused(files.manage("move", "a", None), "bad_args")
    assert files.names() == ["a", "a/b", "a/b/c.txt", "a/link"]
    assert files.manage("delete", "a", recursive=True).success
    assert (tmp_path / "outside.txt").read_text() == SECRET


def test_a_link_is_deleted_and_not_what_it_leads_to(files: Files, tmp_path: Path) -> None:
    (files.root / "link").symlink_to(tmp_path / "workspace-evil")
    assert files.manage("delete", "link", recursive=True).data == "deleted link"
    assert (tmp_path / "workspace-evil" / "x").read_text() == SECRET


def test_what_is_private_or_deep_is_not_deleted(files: Files) -> None:
    (files.root / "project" / ".git").mkdir(parents=True)
    deep = files.root.joinpath("deep", *["d"] * MAX_DEPTH)
    deep.mkdir(parents=True)
    before = files.names()
    assert "project/.git is private" in (files.manage("delete", "project", recursive=True).error or "")
    assert refused(files.manage("delete", "deep", recursive=True))
    assert files.names() == before


# -- a person's own folder --------------------------------------------------------------------------------------------

RUN_LATER = [
    *("conftest.py", "sub/Conftest.py", "sitecustomize.py", "lib/x.pth", ".bashrc", ".idea/workspace.xml"),
    *("mcp.json", ".mcp.json", ".claude/settings.json", "Makefile", "sub/makefile", "GNUmakefile", "package.json"),
    *("setup.py", "pyproject.toml", ".github/workflows/x.yml", ".gitlab-ci.yml", ".bash_aliases"),
    *(".cargo/config.toml", "__pycache__/x.pyc", ".config/autostart/x.desktop"),
]
PERSONS_KEYS = [
    *(".aws/credentials", ".kube/config", ".gnupg/x", ".docker/config.json", ".git-credentials", ".npmrc", ".pypirc"),
    *("id_rsa", "keys/ID_RSA.bak", "id_ed25519", "server.pem", "tls/server.KEY"),
]


@pytest.mark.parametrize("path", [*RUN_LATER, ".git/hooks/pre-commit", ".vscode/tasks.json", ".envrc"])
def test_in_a_persons_folder_nothing_is_written_that_their_programs_would_run(tmp_path: Path, path: str) -> None:
    files = Files(tmp_path, persons_folder=True)
    files.write("a", "id")
    for result in (files.write(path), files.manage("move", "a", path), files.manage("mkdir", path)):
        assert refused(result)
    assert files.names() == ["a"]
    assert files.write("hooks/pre-commit").success
    assert files.write("conftest.txt").success
    assert files.context.written == ["a", "hooks/pre-commit", "conftest.txt"]


REPOSITORY = {
    "HEAD": "ref: refs/heads/main\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    "objects/x": "x",
    "refs/x": "x",
}


@pytest.mark.parametrize("head", ["HEAD", "head", "Head"])
@pytest.mark.parametrize("folder", ["", "docs/", "a/b.git/"])
def test_in_a_persons_folder_no_file_makes_a_folder_a_repository(tmp_path: Path, folder: str, head: str) -> None:
    files = Files(tmp_path, persons_folder=True)
    assert refused(files.write(f"{folder}{head}"))
    assert files.names() == []  # nor are folders made for it
    for name, text in REPOSITORY.items():
        assert files.write(f"{folder}{name}.txt", text).success  # under this name they are files like others
    for name in REPOSITORY:
        moved = files.manage("move", f"{folder}{name}.txt", f"{folder}{head if name == 'HEAD' else name}")
        assert moved.success == (name != "HEAD"), moved
    assert files.manage("move", f"{folder}objects", f"elsewhere/{head}").success  # a folder of the name is none
    assert files.write(f"elsewhere/{head}/Header.tsx").success
    if shutil.which("git"):
        (files.root / folder / "objects").mkdir()
        asked = ["git", f"--git-dir={files.root / folder}", "rev-parse", "--git-dir"]
        assert subprocess.run(asked, capture_output=True, check=False).returncode != 0
        (files.root / folder / "HEAD.txt").rename(files.root / folder / "HEAD")  # the twin: that was what lacked
        assert subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_in_a_persons_folder_nothing_changes_in_a_repository_whatever_it_is_called(tmp_path: Path) -> None:
    files = Files(tmp_path, persons_folder=True)
    for name, text in REPOSITORY.items():
        (files.root / "shelf" / "box" / name).parent.mkdir(parents=True, exist_ok=True)
        (files.root / "shelf" / "box" / name).write_text(text)
    files.write("a", "x")
    before = files.names()
    for path in ("shelf/box/config", "shelf/box/hooks/post-update", "shelf/box/refs/x", "shelf/box/HEAD"):
        for mode in ("overwrite", "append", "prepend"):
            assert refused(files.write(path, "y", mode))
        assert refused(files.manage("move", "a", path))
        assert refused(files.manage("mkdir", path))
        assert refused(files.manage("delete", path))
    assert refused(files.manage("move", "shelf/box/refs", "refs"))
    assert files.names() == before
    assert files.read("shelf/box/config").data == REPOSITORY["config"]
    assert files.write("shelf/notes.txt", "beside it").success


@pytest.mark.parametrize("name", REPOSITORY)
def test_in_a_folder_of_the_runs_own_a_repository_is_files_like_others(files: Files, name: str) -> None:
    (files.root / "HEAD").write_text("ref: refs/heads/main\n")
    assert files.write(name, "x").success
    assert files.manage("move", name, f"box/{name}").success


WARNED = [
    *(
        "noxfile.py",
        ".gitmodules",
        ".gitattributes",
        "docs/.hidden/notes.txt",
        "Dockerfile",
        "tasks.py",
        "build.gradle",
    ),
    *("sub/Requirements-dev.TXT", "CMakeLists.txt", "CLAUDE.md", "data.json", "compose.yml", "run", "hooks/pre-commit"),
]
LOOKED_AT = ["notes.txt", "docs/README.md", "table.CSV", "v1.2/a.log"]


def warning(files: Files, name: str, **arguments: object) -> str | None:
    return files.tools.question(files.tools.validate(ToolCall(name=name, arguments=arguments))).warning


@pytest.mark.parametrize("path", [*WARNED, *LOOKED_AT])
def test_who_is_asked_about_their_own_folder_is_warned_of_what_programs_obey(tmp_path: Path, path: str) -> None:
    files = Files(tmp_path, persons_folder=True)
    (files.root / "old").write_text("x")
    (files.root / "box").mkdir()
    expected = f"{path} is of a kind that other programs may run or obey later" if path in WARNED else None
    for mode in ("overwrite", "append", "prepend"):
        assert warning(files, "write_file", path=f"./{path}", content="x", mode=mode) == expected
    assert warning(files, "manage_path", action="move", path="old", destination=path) == expected
    in_folder = warning(files, "manage_path", action="move", path="box", destination=path)
    assert in_folder == f"{path} is of a kind that other programs may run or obey later with all in it"
    assert files.write(path, "x").success  # it is asked about, and not refused
    replaced = f"{path} is there already (1 bytes) and would be replaced"
    both = f"{expected}; {replaced}" if expected else replaced
    assert warning(files, "write_file", path=path, content="y") == both


@pytest.mark.parametrize("path", ["noxfile.py", ".gitmodules"])
def test_who_is_asked_about_a_folder_of_the_runs_own_is_not_warned(files: Files, path: str) -> None:
    files.write("old", "x")
    assert warning(files, "write_file", path=path, content="x") is None
    assert warning(files, "manage_path", action="move", path="old", destination=path) is None


@pytest.mark.parametrize("path", ["../x.py", ".git/hooks/x", "Makefile", "/etc/x.py"])
def test_a_question_about_what_is_refused_raises_nothing(tmp_path: Path, path: str) -> None:
    files = Files(tmp_path, persons_folder=True)
    warning(files, "write_file", path=path, content="x")
    assert warning(files, "manage_path", action="move", path=path, destination="a.py") is None


@pytest.mark.parametrize("path", RUN_LATER)
def test_in_a_folder_of_the_runs_own_those_are_files_like_others(files: Files, path: str) -> None:
    assert files.write(path, "x").success
    assert files.read(path).data == "x"
    assert files.manage("delete", path).success


@pytest.mark.parametrize("path", PERSONS_KEYS)
def test_in_a_persons_folder_no_key_is_read_found_or_moved(tmp_path: Path, path: str) -> None:
    files = Files(tmp_path, persons_folder=True)
    (files.root / path).parent.mkdir(parents=True, exist_ok=True)
    (files.root / path).write_text(SECRET)
    first = path.split("/", maxsplit=1)[0]
    for result in (files.read(path), files.write(path), files.manage("move", path, "b"), files.search("s", path=path)):
        assert refused(result)
    assert refused(files.manage("delete", path))
    assert (files.root / path).read_text() == SECRET
    assert files.search("secret").data == "no match"
    assert first in files.ls().data


@pytest.mark.parametrize("path", PERSONS_KEYS)
def test_in_a_folder_of_the_runs_own_nothing_is_anybodys_key(files: Files, path: str) -> None:
    assert files.write(path, "x").success
    assert files.read(path).data == "x"


KILLED = """
import sys
from pathlib import Path
from agent.tools.base import ToolContext
from agent.tools.write_file import WriteFile, WriteFileParams
print("writing", flush=True)
while True:
    for letter in "ab":
        params = WriteFileParams(path="a", content=letter * 20_000)
        WriteFile().run(params, ToolContext(workspace=Path(sys.argv[1])))
"""


def test_a_kill_leaves_the_old_text_or_the_new(files: Files) -> None:
    for _ in range(5):
        command = [sys.executable, "-c", KILLED, str(files.root)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            while not (files.root / "a").exists():
                pass
            writer.kill()
        assert (files.root / "a").read_text() in {"a" * 20_000, "b" * 20_000}
