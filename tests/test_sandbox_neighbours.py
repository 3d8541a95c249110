"""A sandbox beside others on the machine: no user is lent twice, nobody is blamed for what another took, and whoever
kills the harness, at whichever moment, kills its program."""

from __future__ import annotations

import itertools
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from agent.sandbox import ladder, users
from agent.sandbox.base import MIB, Command, Finished, Level, Limits, Sandbox, SandboxError
from agent.sandbox.bubblewrap import Bubblewrap
from agent.sandbox.ladder import Asked, Isolation
from agent.sandbox.landlock import LAUNCHER
from agent.sandbox.usage import children
from agent.sandbox.users import borrowed
from agent.tools.base import ToolContext, ToolError
from agent.tools.execute_code import ExecuteCode, ExecuteCodeParams
from tests.support_sandbox import RUNGS, gone, open_folder, sandbox, waited_for

ROOT = Path(__file__).resolve().parent.parent
EVERY_RUNG = pytest.mark.parametrize("level", RUNGS)
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends users")
SMALL = Limits(seconds=20.0, memory=100 * MIB, disk=8 * MIB, file=4 * MIB)
WAIT_SECONDS = 20.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the workspaces of runs are."""
    with open_folder() as folder:
        yield folder


@contextmanager
def harness(program: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another harness on this machine, which is killed with signal 9 at the latest at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


# -- users ------------------------------------------------------------------------------------------------------------

# Each takes the first user that is free, as two harnesses may by chance.
HOLDS_A_USER = """
import itertools, sys
from agent.sandbox import users
users._next_uid = itertools.count()
with users.borrowed() as user:
    print(user.uid, flush=True)
    sys.stdin.readline()
"""
RUNS_A_PROGRAM = """
import itertools
from agent.sandbox import users
from agent.sandbox.base import Command
from agent.sandbox.bubblewrap import Bubblewrap
from agent.sandbox.landlock import Landlock
users._next_uid = itertools.count()
{rung}().run(Command(("/bin/sh", "-c", "sleep {marker}")))
"""


@AS_ROOT
def test_no_user_is_lent_twice_on_a_machine(tmp_path: Path) -> None:
    with (
        harness(HOLDS_A_USER) as first,
        harness(HOLDS_A_USER, HOME=str(tmp_path), TMPDIR=str(tmp_path)) as second,
        harness(HOLDS_A_USER, XDG_RUNTIME_DIR=str(tmp_path)) as third,
    ):
        lent = [int(line_of(each)) for each in (first, second, third)]
        assert len(set(lent)) == 3


@AS_ROOT
def test_a_user_can_be_had_again_when_its_harness_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with harness(HOLDS_A_USER) as other:
        uid = int(line_of(other))
        monkeypatch.setattr(users, "_FIRST_UID", uid)
        monkeypatch.setattr(users, "_UIDS", 1)
        with pytest.raises(SandboxError, match="taken"), borrowed():
            pass
        other.kill()
        other.wait()
    with borrowed() as user:
        assert user.uid == uid


@AS_ROOT
@EVERY_RUNG
def test_a_program_beside_that_of_another_harness_runs_as_another_user(
    level: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sandbox(level)
    marker = f"7081.{os.getpid()}{RUNGS.index(level)}"
    with harness(RUNS_A_PROGRAM.format(rung=type(made).__name__, marker=marker)):
        uid = waited_for(lambda: owner_of(f"sleep\0{marker}\0"))
        monkeypatch.setattr(users, "_next_uid", itertools.count(uid - users._FIRST_UID))
        beside = made.run(Command(("/usr/bin/id", "-u")))
        assert int(beside.output) != uid
    assert gone(marker)


def owner_of(command: str) -> int | None:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == command.encode():
                return process.stat().st_uid
        except OSError:
            continue
    return None


@AS_ROOT
def test_a_user_who_still_runs_something_is_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    with borrowed() as user:
        pass
    monkeypatch.setattr(users, "_next_uid", itertools.count(user.uid - users._FIRST_UID))
    with subprocess.Popen(["/bin/sleep", "60"], user=user.uid, group=user.gid, extra_groups=[]) as left:
        try:
            with borrowed() as other:
                assert other.uid != user.uid
        finally:
            left.kill()


@AS_ROOT
def test_a_folder_of_locks_that_others_could_enter_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squatted, own = tmp_path / "squatted", tmp_path / "own"
    for place in (squatted, own):
        place.mkdir()
    (squatted / users._FOLDER).mkdir()
    os.chown(squatted / users._FOLDER, 1000, 1000)
    monkeypatch.setattr(users, "_PLACES", (tmp_path / "nonesuch", squatted, own))
    with borrowed() as user:
        assert [path.name for path in (own / users._FOLDER).iterdir()] == [str(user.uid)]
    monkeypatch.setattr(users, "_PLACES", (squatted,))
    with pytest.raises(SandboxError, match="only root may enter"), borrowed():
        pass


# -- what others take -------------------------------------------------------------------------------------------------


@EVERY_RUNG
def test_nobody_is_blamed_for_memory_that_another_takes(level: Asked) -> None:
    with asleep(level, SMALL) as done, mmap.mmap(-1, 300 * MIB) as taken:
        for at in range(0, len(taken), mmap.PAGESIZE):
            taken[at] = 1
        assert ended_as(done) == "machine_busy"


@EVERY_RUNG
def test_nobody_is_blamed_for_disk_that_another_takes(level: Asked, tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 3 << 30:
        pytest.skip("the disk has no room to take")
    work = tmp_path / "work"
    work.mkdir()
    with asleep(level, SMALL, work) as done, (tmp_path / "large").open("wb") as large:
        os.posix_fallocate(large.fileno(), 0, 1200 * MIB)
        assert ended_as(done) == "machine_busy"


def test_a_launcher_that_somebody_ends_is_not_the_program_s_failure() -> None:
    with asleep("landlock", Limits()) as done:
        (launcher,) = [pid for pid in children(os.getpid()) if str(LAUNCHER).encode() in command_of(pid)]
        os.kill(launcher, signal.SIGTERM)
        assert ended_as(done) == "tool_crashed"


@contextmanager
def asleep(level: Asked, limits: Limits, workspace: Path | None = None) -> Iterator[Future[Finished]]:
    """A program that takes nothing and sleeps, under way."""
    made, marker = sandbox(level), f"7082.{os.getpid()}{threading.get_native_id()}"
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(made.run, Command(("/bin/sleep", marker), workspace, limits=limits))
        waited_for(lambda: owner_of(f"/bin/sleep\0{marker}\0") is not None or None)
        yield done
    assert gone(marker)


def ended_as(done: Future[Finished]) -> str:
    error = done.exception(WAIT_SECONDS)
    return error.error_type if isinstance(error, SandboxError) else done.result().ended


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


class Busy:
    """A rung on a machine that runs short during the first program."""

    name: Level = "bubblewrap"

    def __init__(self) -> None:
        self._inner: Sandbox = Bubblewrap()

    def can_read(self, path: Path) -> bool:
        return self._inner.can_read(path)

    def run(self, command: Command) -> Finished:
        if short:
            short.clear()
            raise SandboxError("machine_busy", "the machine ran short")
        return self._inner.run(command)


short: list[bool] = []


def test_a_self_test_that_others_disturbed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox("bubblewrap")
    monkeypatch.setattr(ladder, "_tested", {})
    monkeypatch.setattr(ladder, "_RUNGS", {"bubblewrap": (Busy,)})
    short.append(True)
    with pytest.raises(SandboxError, match="ran short"):
        Isolation("bubblewrap").sandbox()
    assert Isolation("bubblewrap").sandbox().name == "bubblewrap"


# -- folders that only root may enter ---------------------------------------------------------------------------------


@AS_ROOT
@EVERY_RUNG
def test_where_no_other_user_may_enter_it_is_said_and_not_laid_to_the_program(
    level: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bubblewrap shows a program its folders wherever they stand; under landlock they have their own names."""
    sandbox(level)
    closed = tmp_path / "closed"
    (closed / "work").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "work" / "helper.py").write_text("n = 42\n", "utf-8")
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    context = ToolContext(workspace=closed / "work", isolation=Isolation(level))
    params = ExecuteCodeParams(code="from helper import n; print(n)")
    if level == "bubblewrap":
        assert ExecuteCode().run(params, context) == "42"
        return
    with pytest.raises(ToolError, match="set TMPDIR") as refused:
        ExecuteCode().run(params, context)
    assert refused.value.error_type == "no_sandbox"


# -- a harness that is killed -----------------------------------------------------------------------------------------

RUNS_WHEN_TOLD = """
import sys
from agent.sandbox.base import Command
from agent.sandbox.bubblewrap import Bubblewrap
from agent.sandbox.landlock import Landlock
rung = {rung}()
print("ready", flush=True)
sys.stdin.readline()
rung.run(Command(("/bin/sh", "-c", "sleep {marker} & sleep {marker}")))
"""


@EVERY_RUNG
def test_a_harness_that_is_killed_while_a_program_starts_leaves_nothing(level: Asked, tmp_path: Path) -> None:
    """The launcher is held at its very beginning, when it has not yet asked to die with its parent."""
    rung = type(sandbox(level)).__name__
    for number in range(4):
        marker = f"7083.{os.getpid()}{RUNGS.index(level)}{number}"
        with harness(RUNS_WHEN_TOLD.format(rung=rung, marker=marker), TMPDIR=str(tmp_path)) as killed:
            assert line_of(killed) == b"ready\n"
            assert killed.stdin is not None
            killed.stdin.write(b"\n")
            killed.stdin.flush()
            launcher = waited_for(lambda: next(iter(children(killed.pid)), None))
            os.kill(launcher, signal.SIGSTOP)
            killed.kill()
            killed.wait()
            os.kill(launcher, signal.SIGCONT)
        assert waited_for(partial(ended, launcher))
        assert gone(marker)


def ended(pid: int) -> bool | None:
    """True when a process is gone, or waits only to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"Z" or None
    except OSError:
        return True
