"""What a command that was killed leaves among the temporary files: the next one removes that, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.sandbox.leftovers import MAX_REMOVED, prefix, sweep
from tests.support_cli import MULTIPLY, Desk
from tests.support_sandbox import isolation, open_folder

WAITING = {
    "progress_check": "on_track",
    "thought": "I wait.",
    "action": {"tool": "execute_code", "args": {"code": "import time\ntime.sleep(30)"}},
    "final_answer": None,
}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made."""
    with open_folder() as made:
        monkeypatch.setattr(tempfile, "tempdir", str(made))
        yield made


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def left(place: Path, pid: int) -> Path:
    """A folder with something in it, as that process would have left it."""
    folder = place / f"{prefix('workspace').replace(str(os.getpid()), str(pid), 1)}abc_1"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_text("x")
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")
def test_what_a_killed_command_left_is_gone_after_the_next_one(tmp_path: Path, place: Path) -> None:
    isolation("landlock")
    desk = Desk(tmp_path)
    script = desk.script([{"content": WAITING}], "waiting.json")
    flags = ["--backend", "scripted", "--scripted", script, "--toolset", "core", "--sandbox", "landlock"]
    with subprocess.Popen(
        desk.command("main.py", "Wait.", *flags),
        cwd=tmp_path,
        env=desk.environment(TMPDIR=str(place)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as killed:
        wait_for(lambda: kinds(place) == ["scratch", "workspace"])
        killed.send_signal(signal.SIGKILL)
    assert kinds(place) == ["scratch", "workspace"]
    done = desk.scripted("6 * 7?", replies=MULTIPLY, TMPDIR=str(place))
    assert (done.code, done.err) == (0, "")
    assert list(place.iterdir()) == []


def kinds(place: Path) -> list[str]:
    """What there is, but for the canaries of the self-test, which come and go."""
    return sorted(kind for path in place.iterdir() if (kind := path.name.split("-")[1]) != "probe")


def wait_for(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not there():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def test_what_a_running_process_uses_stays(place: Path, dead: int) -> None:
    own, gone = left(place, os.getpid()), left(place, dead)
    sweep()
    assert (own / "sub" / "file").exists()
    assert not gone.exists()


def test_a_folder_that_is_closed_or_deep_goes_too(place: Path, dead: int) -> None:
    folder = left(place, dead)
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1500):  # deeper than Python's own removal goes, by a path that is longer than any call takes
        os.mkdir("d" * 200, dir_fd=deep)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = deeper
    os.close(deep)
    (folder / "sub").chmod(0)
    sweep()
    assert list(place.iterdir()) == []


def test_no_link_is_followed(place: Path, dead: int, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    folder = left(place, dead)
    (folder / "link").symlink_to(outside)
    link = place / folder.name.replace("abc", "xyz")
    link.symlink_to(outside)
    sweep()
    assert not folder.exists()
    assert link.is_symlink()
    assert (outside / "file").exists()


@pytest.mark.parametrize(
    "name",
    [
        "shoestring-workspace-{pid}",
        "shoestring-workspace-{pid}.1-abc",  # numbered elsewhere
        "shoestring-other-{pid}.{numbering}-abc",
        "x-shoestring-workspace-{pid}.{numbering}-abc",
        "shoestring-workspace-{pid}.{numbering}-a b",
        "shoestring-workspace-99999999999999999999.{numbering}-abc",
    ],
)
def test_another_name_stays(place: Path, dead: int, name: str) -> None:
    numbering = prefix("workspace").split(".")[1].rstrip("-")
    folder = place / name.format(pid=dead, numbering=numbering)
    folder.mkdir()
    sweep()
    assert folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder another user's")
def test_as_root_a_borrowers_folder_goes_and_another_users_stays(place: Path, dead: int) -> None:
    first = left(place, dead)
    other = place / first.name.replace("abc", "xyz")
    other.mkdir()
    os.chown(first, 60_700, 60_700)
    os.chown(other, 1000, 1000)
    sweep()
    assert not first.exists()
    assert other.exists()


def test_no_more_is_done_than_is_soon_done(place: Path, dead: int) -> None:
    name = left(place, dead).name
    for number in range(MAX_REMOVED + 4):
        (place / f"{name}{number}").mkdir()
    sweep()
    assert len(list(place.iterdir())) == 5
    sweep()
    assert list(place.iterdir()) == []
