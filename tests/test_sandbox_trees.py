"""Trees that a hostile program leaves, too deep or with too long paths for most eyes: all of them is seen, bounded from
call to call, and removed."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sandbox.base import MIB, Command, Finished, Limits
from agent.sandbox.ladder import Asked
from agent.sandbox.leftovers import temporary
from agent.sandbox.lending import MAX_DEPTH, MAX_PATH_BYTES, lent
from agent.sandbox.usage import MAX_ENTRIES, files_below
from agent.sandbox.users import harness_user
from agent.sandbox.walking import Walk, change_mode, opened, remove
from evals.workspaces import fresh_workspace
from tests.support_sandbox import RUNGS, open_folder, sandbox

LONG = "d" * 250
DEEP = 1500  # deeper than Python's own walks and removals go
OUT_OF_SIGHT = f"import os\nfor _ in range(18):\n os.makedirs({LONG!r}, exist_ok=True)\n os.chdir({LONG!r})\n"
SMALL = Limits(seconds=10.0, disk=8 * MIB, file=4 * MIB)
EVERY_RUNG = pytest.mark.parametrize("level", RUNGS)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the workspaces of runs are."""
    with open_folder() as folder:
        yield folder
        remove(folder)
        folder.mkdir()


def python(level: Asked, code: str, workspace: Path, limits: Limits = SMALL) -> Finished:
    return sandbox(level).run(Command(("/usr/bin/python3", "-I", "-c", code), workspace, limits=limits))


def dug(folder: Path, names: list[str], last: str = "file") -> None:
    """Make folders in each other, and a file in the last of them."""
    handle = os.open(folder, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open(last, os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


def handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def seen(folder: Path) -> list[str]:
    """The names that a walk finds, each once."""
    with opened(folder) as top:
        return [found.name for found in Walk(top) if not found.is_left]


# -- the walk ---------------------------------------------------------------------------------------------------------


def test_everything_is_found_however_deep_with_few_handles(tmp_path: Path) -> None:
    dug(tmp_path, ["d"] * DEEP)
    (tmp_path / "beside").mkdir()
    before, most = handles(), 0
    with opened(tmp_path) as top:
        walk = Walk(top)
        depths = []
        for found in walk:
            most = max(most, handles() - before)
            depths.append(found.depth * (-1 if found.is_left else 1))
    assert sorted(depths) == sorted([1, -1, *range(1, DEEP + 2), *(-depth for depth in range(1, DEEP + 1))])
    assert (walk.names, walk.trouble) == (DEEP + 2, None)
    assert most <= 22
    assert handles() == before


def test_what_has_a_longer_path_than_any_call_takes_is_counted(tmp_path: Path) -> None:
    dug(tmp_path, [LONG] * 40)
    files = files_below(tmp_path)
    assert (files.entries, files.is_whole) == (41, True)
    assert files.bytes >= 40 * 4096


def test_a_walk_ends_after_as_many_names_as_it_may_see(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / str(number)).mkdir()
    before = handles()
    with opened(tmp_path) as top:
        walk = Walk(top, most=20)
        assert len(list(walk)) == 20
    assert handles() == before


def test_no_link_is_followed_and_what_took_a_folder_s_place_is_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    dug(outside.parent, ["outside"], "theirs")
    inside = tmp_path / "inside"
    dug(tmp_path, ["inside", "a"])
    (inside / "link").symlink_to(outside)
    assert sorted(seen(inside)) == ["a", "file", "link"]
    with opened(inside) as top:
        walk, names = Walk(top), []
        for found in walk:
            names.append(found.name)
            if found.name == "a" and found.is_folder:
                shutil.rmtree(inside / "a")
                (inside / "a").symlink_to(outside)
    assert "theirs" not in names
    assert walk.trouble is not None


@pytest.mark.parametrize("depth", [5, 30])
def test_a_folder_that_is_moved_away_meanwhile_hides_none_of_those_above(tmp_path: Path, depth: int) -> None:
    inside, moved = tmp_path / "inside", tmp_path / "moved"
    dug(tmp_path, ["inside", *map(str, range(40))])
    for number in range(10):
        (inside / f"x{number}").mkdir()
        (inside / f"x{number}" / "in it").write_text("x", "utf-8")
    names = []
    with opened(inside) as top:
        walk = Walk(top)
        for found in walk:
            names.append(found.name)
            if found.name == str(depth) and not found.is_left:
                os.rename(found.name, moved, src_dir_fd=found.folder)
    assert names.count("in it") == 10
    assert walk.trouble is None  # it is gone, and what is in it is no more below this folder


def test_a_walk_whose_way_back_is_taken_says_so(tmp_path: Path) -> None:
    inside, moved = tmp_path / "inside", tmp_path / "moved"
    dug(tmp_path, ["inside", *map(str, range(40))])
    (inside / "y").mkdir()
    (inside / "y" / "in it").write_text("x", "utf-8")
    names = []
    with opened(inside) as top:
        walk = Walk(top)
        for found in walk:
            names.append(found.name)
            if found.name == "file":  # the walk stands in the last folder; what is above it is not held any more
                (inside / Path(*map(str, range(31)))).rename(moved)
    assert "in it" in names
    assert walk.trouble is not None


# -- removal ----------------------------------------------------------------------------------------------------------


def test_a_tree_is_removed_whatever_it_is(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    dug(tmp_path, ["outside"])
    dug(tmp_path, ["tree", *[LONG] * DEEP])
    dug(tree, ["closed", "b"])
    (tree / "link").symlink_to(outside)
    for folder in (tree / "closed" / "b", tree / "closed", tree):
        folder.chmod(0)
    before = handles()
    remove(tree)
    assert not tree.exists()
    assert (outside / "file").exists()
    assert handles() == before


def test_a_removal_ends_when_its_time_is_up(tmp_path: Path) -> None:
    dug(tmp_path, ["tree", "a"])
    remove(tmp_path / "tree", deadline=time.monotonic() - 1)
    assert (tmp_path / "tree" / "a" / "file").exists()
    remove(tmp_path / "nothing")


def test_a_temporary_folder_goes_with_all_that_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary("scratch") as folder:
        dug(folder, ["d"] * DEEP)
    assert list(tmp_path.iterdir()) == []


def test_a_mode_is_given_to_no_link_s_target(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    with opened(tmp_path) as top:
        change_mode(top, "link", 0o777)
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
        change_mode(top, "file", 0o644)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


# -- what a program leaves --------------------------------------------------------------------------------------------


@EVERY_RUNG
def test_bytes_out_of_sight_are_bounded_from_call_to_call(level: Asked, tmp_path: Path) -> None:
    code = f"{OUT_OF_SIGHT}for n in range(400):\n open(f'{{n}}-{{os.getpid()}}', 'wb').write(b'x' * (1 << 20))"
    for _ in range(3):
        assert python(level, code, tmp_path).ended == "disk"
        assert files_below(tmp_path).bytes <= SMALL.disk


@EVERY_RUNG
def test_files_out_of_sight_are_bounded_from_call_to_call(level: Asked, tmp_path: Path) -> None:
    code = f"{OUT_OF_SIGHT}n = 0\nwhile True:\n os.close(os.open(f'{{n}}-{{os.getpid()}}', os.O_CREAT)); n += 1"
    for _ in range(2):
        assert python(level, code, tmp_path).ended == "files"
        assert files_below(tmp_path).entries <= MAX_ENTRIES


@EVERY_RUNG
def test_a_program_that_is_over_before_anybody_looked_leaves_no_more_either(level: Asked, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", "utf-8")
    for number in range(3):
        done = python(level, f"for n in range(4): open(f'{number}-{{n}}', 'wb').write(b'x' * (3 << 20))", tmp_path)
        assert (done.ended, done.code) == ("disk", None)
        assert files_below(tmp_path).bytes <= SMALL.disk
    assert (tmp_path / "mine").read_text("utf-8") == "mine"
    assert python(level, "open('mine', 'a').write('!')", tmp_path).code == 0


@EVERY_RUNG
def test_no_path_that_stays_is_too_deep_or_too_long(level: Asked, tmp_path: Path) -> None:
    done = python(level, f"{OUT_OF_SIGHT}open('file', 'w').write('x')", tmp_path)
    assert done.code == 0
    paths = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert max(map(len, paths)) == 7 * 251 - 1 <= MAX_PATH_BYTES
    python(level, f"import os\nfor _ in range({DEEP}): os.mkdir('d'); os.chdir('d')\nopen('f', 'w')", tmp_path)
    assert max(len(path.relative_to(tmp_path).parts) for path in tmp_path.rglob("*")) == MAX_DEPTH - 1


@EVERY_RUNG
def test_a_run_s_own_folder_is_gone_afterwards(level: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sandbox(level)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = f"import os\nos.chdir(os.environ.get('WHERE') or os.environ['TMPDIR'])\nfor _ in range({DEEP}):\n"
    code += f" os.mkdir({LONG!r}); os.chdir({LONG!r})\nos.chmod('.', 0)"
    with fresh_workspace({"given.txt": "x"}) as workspace:
        command = Command(("/usr/bin/python3", "-I", "-c", code), workspace)
        made.run(replace(command, environment=(("WHERE", "."),)))
        if level == "landlock":  # elsewhere /tmp is held in memory
            assert made.run(command).ended == "exit"
    assert list(tmp_path.iterdir()) == []


def test_of_too_many_files_the_newest_go_and_each_stays_with_its_folders(tmp_path: Path) -> None:
    surplus = 300
    with lent(tmp_path, harness_user(), most=64 * MIB) as state:
        dug(tmp_path, [*"abcdefgh"], "old")
        old = tmp_path.joinpath(*"abcdefgh")
        for number in range(MAX_ENTRIES + surplus - 9):
            (tmp_path / str(number)).touch()
        os.utime(old / "old", (1, 1))
    assert state.over == "files"
    assert (old / "old").exists()
    assert files_below(tmp_path).entries == MAX_ENTRIES


def test_of_too_many_bytes_the_newest_go(tmp_path: Path) -> None:
    with lent(tmp_path, harness_user(), most=MIB) as state:
        for number in range(5):
            (tmp_path / str(number)).write_bytes(b"x" * (MIB * 2 // 5))
            os.utime(tmp_path / str(number), (number, number))
    assert state.over == "disk"
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


# -- what the kernel tells --------------------------------------------------------------------------------------------

NETWORK = ("tcp", "udp", "unix", "route", "fib_trie", "arp", "dev", "sockstat")


@EVERY_RUNG
def test_no_program_reads_the_machine_s_network(level: Asked, tmp_path: Path) -> None:
    """Refused, or what a network of its own has: nothing."""
    names = [f"/proc/{who}/net/{name}" for who in ("self", "thread-self", "1", os.getpid()) for name in NETWORK]
    code = f"for name in {names!r}:\n try: print(open(name).read())\n except OSError: pass"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = f":{server.getsockname()[1]:04X}"
        assert port in Path("/proc/self/net/tcp").read_text("ascii")
        told = python(level, code, tmp_path).output.decode()
    if level == "landlock":
        assert told == ""
    assert port not in told
    cards = {line.split(":")[0].strip() for line in Path("/proc/self/net/dev").read_text("ascii").splitlines()[2:]}
    assert not any(f"{card}:" in told for card in cards - {"lo"})


@EVERY_RUNG
def test_no_program_reads_the_machine_s_mounts(level: Asked, tmp_path: Path) -> None:
    names = [f"/proc/{who}/{name}" for who in ("self", os.getpid()) for name in ("mountinfo", "mounts", "cgroup")]
    code = f"for name in {names!r}:\n try: print(open(name).read())\n except OSError as error: print('refused')"
    told = python(level, code, tmp_path).output.decode()
    if level == "landlock":
        assert told.split() == ["refused"] * len(names)
    else:
        assert told.split()[-3:] == ["refused"] * 3


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@EVERY_RUNG
def test_what_interpreters_ask_of_the_kernel_is_answered(level: Asked, tmp_path: Path) -> None:
    script = "const os = require('os'); console.log(process.memoryUsage().rss > 0, os.cpus().length > 0)"
    command = Command(("/usr/bin/node", "-e", script), tmp_path, environment=(("OPENSSL_CONF", "/dev/null"),))
    done = sandbox(level).run(replace(command, limits=Limits(address_space=None)))
    assert done.output == b"true true\n"
    assert b"VmRSS" in python(level, "print(open('/proc/self/status').read())", tmp_path).output
    done = sandbox(level).run(Command(("/bin/bash", "-c", "cat <(echo one) <<< two; read -r x < /dev/stdin; echo $x")))
    assert done.output == b"one\n\n"
