"""The sandbox: limits, ends, what is given and given back, on each rung that this machine has."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sandbox import landlock_launcher, seccomp
from agent.sandbox.base import MIB, SHOWN_ROOT, SHOWN_SOURCE, Command, Finished, Limits, SandboxError
from agent.sandbox.ladder import Asked
from agent.sandbox.lending import MAX_DEPTH
from agent.sandbox.parsing import parsed
from agent.sandbox.readable import project_files
from agent.sandbox.seccomp import Rules, seccomp_filter
from agent.sandbox.syscalls import ARCHITECTURES
from agent.sandbox.usage import MAX_ENTRIES
from tests.support_sandbox import RUNGS, gone, open_folder, sandbox

ROOT = Path(__file__).resolve().parent.parent
BRIEF = Limits(seconds=1.0)
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="programs are isolated on Linux only")
GROWS = "import mmap, os\n{}\nfor n in range(10**9):\n if n < 60: {}\n if os.fork(): os._exit(0)"
SHARED = GROWS.format("held = mmap.mmap(-1, 240 << 20)", "held.write(b'x' * (4 << 20))")
PRIVATE = GROWS.format("held = []", "held.append(b'x' * (4 << 20))")
SMALL = Limits(seconds=10.0, memory=100 * MIB, disk=8 * MIB, file=4 * MIB)
EVERY_RUNG = pytest.mark.parametrize("level", RUNGS)

pytestmark = ON_LINUX


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the workspaces of runs are."""
    with open_folder() as folder:
        yield folder


def shell(level: Asked, code: str, workspace: Path | None = None, **given: object) -> Finished:
    command = Command(("/bin/sh", "-c", code), workspace)
    return sandbox(level).run(replace(command, **given))  # type: ignore[arg-type]  # the fields of a Command


def python(level: Asked, code: str, workspace: Path | None = None, **given: object) -> Finished:
    command = Command(("/usr/bin/python3", "-I", "-c", code), workspace)
    return sandbox(level).run(replace(command, **given))  # type: ignore[arg-type]  # the fields of a Command


# -- what is given ----------------------------------------------------------------------------------------------------


@EVERY_RUNG
def test_input_output_source_and_code_arrive(level: Asked) -> None:
    done = shell(level, f"cat; cat {SHOWN_SOURCE}; echo err >&2; exit 7", stdin=b"in\xff\n", source=b"echo x\n")
    if level == "landlock":  # there the source has another name, which only the command line is told
        done = sandbox(level).run(
            Command(("/bin/sh", SHOWN_SOURCE), source=b"cat; echo err >&2; exit 7", stdin=b"in\n")
        )
        assert (done.code, done.output, done.ended) == (7, b"in\nerr\n", "exit")
        return
    assert (done.code, done.output, done.ended) == (7, b"in\xff\necho x\nerr\n", "exit")


@EVERY_RUNG
def test_the_workspace_is_shared_and_its_real_name_is_not_told(level: Asked, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given", "utf-8")
    done = shell(level, "pwd; cat given.txt; echo made > made.txt", tmp_path)
    assert done.output == f"{SHOWN_ROOT}\ngiven".encode()
    assert (tmp_path / "made.txt").read_text("utf-8") == "made\n"
    assert (tmp_path / "made.txt").stat().st_uid == os.geteuid()


@EVERY_RUNG
def test_a_workspace_that_is_only_read_cannot_be_changed(level: Asked, tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given", "utf-8")
    done = shell(level, "cat given.txt; echo x > new; rm given.txt; echo x >> given.txt", tmp_path, read_only=True)
    assert done.output.startswith(b"given")
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == {"given.txt": "given"}


@EVERY_RUNG
def test_a_file_of_the_machine_is_read_only_where_it_was_named(level: Asked, tmp_path: Path) -> None:
    secret = tmp_path / "folder" / "secret"
    secret.parent.mkdir()
    secret.write_text("s3cret", "utf-8")
    assert b"s3cret" not in shell(level, f"cat {secret}").output
    if sandbox(level).can_read(secret):
        assert shell(level, f"cat {secret}; echo x >> {secret}", readable=(secret,)).output.startswith(b"s3cret")
    assert secret.read_text("utf-8") == "s3cret"


@EVERY_RUNG
def test_nothing_of_the_harness_s_environment_is_seen(level: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOESTRING_CANARY", "canary")
    done = shell(level, "env; cat /proc/*/environ; cat /proc/1/cmdline", environment=(("MINE", "1"),))
    assert b"canary" not in done.output
    names = {line.partition(b"=")[0] for line in done.output.split(b"\n") if b"=" in line and b"\0" not in line}
    assert {b"MINE", b"PATH", b"HOME", b"TMPDIR", b"LANG"} <= names


# -- limits and ends --------------------------------------------------------------------------------------------------


@EVERY_RUNG
def test_time(level: Asked) -> None:
    marker = "7077.01"
    code = (
        f"trap '' TERM HUP INT; sleep {marker} & (sleep {marker} &) & setsid sleep {marker} & echo on; sleep {marker}"
    )
    done = shell(level, code, limits=BRIEF)
    assert (done.ended, done.code) == ("timeout", None)
    assert b"on\n" in done.output
    assert 1.0 <= done.seconds < 4.0
    assert gone(marker)


@EVERY_RUNG
def test_what_a_program_leaves_running_ends_with_it(level: Asked) -> None:
    marker = "7077.02"
    done = shell(level, f"nohup sleep {marker} >/dev/null 2>&1 & echo done")
    assert (done.ended, done.code, done.output) == ("exit", 0, b"done\n")
    assert done.seconds < 2.0  # it holds no output, so that nobody waits
    assert gone(marker)


@EVERY_RUNG
def test_what_still_holds_the_output_is_given_a_moment(level: Asked) -> None:
    marker = "7077.03"
    done = shell(level, f"(sleep 0.2; echo late) & sleep {marker} & echo early")
    assert (done.ended, done.code, done.output) == ("exit", 0, b"early\nlate\n")
    assert done.seconds < 10.0
    assert gone(marker)


@EVERY_RUNG
@pytest.mark.parametrize("code", ["yes", "yes >&2", "for i in 1 2 3 4; do yes & done; wait"])
def test_output(level: Asked, code: str) -> None:
    done = shell(level, code, limits=Limits(output=100_000))
    assert (done.ended, done.code, len(done.output)) == ("output", None, 100_000)


@EVERY_RUNG
def test_output_up_to_the_limit_is_whole(level: Asked) -> None:
    done = shell(level, "head -c 100000 /dev/zero", limits=Limits(output=100_000))
    assert (done.ended, done.code, len(done.output)) == ("exit", 0, 100_000)


@EVERY_RUNG
def test_memory_of_one_and_of_many(level: Asked) -> None:
    small = Limits(memory=128 * MIB, address_space=96 * MIB)
    alone = python(level, "x = bytearray(200 << 20)", limits=small)
    assert (alone.ended, alone.code) == ("exit", 1)
    assert b"MemoryError" in alone.output
    many = (
        "import os, time\nfor _ in range(4):\n  if os.fork() == 0: x = bytearray(60 << 20); time.sleep(60)\nos.wait()"
    )
    assert python(level, many, limits=small).ended == "memory"
    shared = "import os, time\nx = bytearray(40 << 20)\nfor _ in range(6):\n  if os.fork() == 0: break\n"
    shared += "time.sleep(0.5); print(len(x))"  # long enough for some looks at what is held
    assert python(level, shared, limits=small).ended == "exit"
    twin = python(level, "x = bytearray(30 << 20); print(len(x))", limits=small)
    assert (twin.ended, twin.code) == ("exit", 0)


@EVERY_RUNG
def test_processes(level: Asked) -> None:
    code = "import os, time\nn = 0\ntry:\n while n < 200:\n  if os.fork() == 0: {}\n  n += 1\nexcept OSError: print(n)"
    code = code.format("os.closerange(0, 9); time.sleep(60)")
    done = python(level, code, limits=Limits(processes=20))
    assert done.ended == "exit"
    assert 5 < int(done.output) <= 20


@EVERY_RUNG
def test_files(level: Asked, tmp_path: Path) -> None:
    small = Limits(disk=8 * MIB, file=4 * MIB, seconds=10.0)
    one = shell(level, "head -c 6M /dev/zero > one", tmp_path, limits=small)
    assert one.code
    assert (tmp_path / "one").stat().st_size <= 4 * MIB
    assert (
        shell(level, "for i in $(seq 9999); do head -c 3M /dev/zero > f$i; done", tmp_path, limits=small).ended
        == "disk"
    )
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1024 * MIB


@EVERY_RUNG
def test_many_small_files(level: Asked, tmp_path: Path) -> None:
    code = "n = 0\nwhile True:\n  open(f'f{n}', 'w').close()\n  n += 1"
    assert python(level, code, tmp_path, limits=Limits(seconds=30.0)).ended == "files"
    assert 0 < len(list(tmp_path.iterdir())) <= MAX_ENTRIES
    shutil.rmtree(tmp_path)


@EVERY_RUNG
@pytest.mark.parametrize("chain", [SHARED, PRIVATE], ids=["shared", "private"])
def test_memory_that_is_handed_on_before_it_is_seen(level: Asked, chain: str) -> None:
    """Each process takes a little more, lives for a few milliseconds, and is nobody's child soon."""
    done = python(level, f"import os, time\nif os.fork() == 0:\n exec({chain!r})\ntime.sleep(60)", limits=SMALL)
    assert done.ended == "memory"


@EVERY_RUNG
def test_files_of_a_temporary_folder_are_counted(level: Asked, tmp_path: Path) -> None:
    code = (
        "import os\nos.chdir(os.environ['TMPDIR'])\nn = 0\nwhile True:\n os.close(os.open(f'{n}', os.O_CREAT)); n += 1"
    )
    assert python(level, code, tmp_path, limits=SMALL).ended == "files"


@EVERY_RUNG
def test_files_that_are_removed_while_they_are_open_are_counted(level: Asked, tmp_path: Path) -> None:
    code = (
        "import os, time\nopened = []\nfor n in range(40):\n f = os.open('x', os.O_CREAT | os.O_RDWR); os.unlink('x')\n"
        " opened.append(f); os.write(f, b'x' * (3 << 20))\ntime.sleep(60)"
    )
    assert python(level, code, tmp_path, limits=SMALL).ended == "disk"


@EVERY_RUNG
def test_after_too_many_bytes_the_newest_files_are_removed(level: Asked, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").write_text("kept", "utf-8")
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    outside.write_text("outside", "utf-8")
    code = f"ln -s {outside} a; mkdir -p b/c; for n in $(seq 999); do head -c 3M /dev/zero >b/c/$n; done"
    assert shell(level, code, tmp_path, limits=SMALL).ended == "disk"
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in files) <= SMALL.disk
    assert (tmp_path / "mine" / "kept").read_text("utf-8") == "kept"
    assert outside.read_text("utf-8") == "outside"


@EVERY_RUNG
def test_open_files(level: Asked) -> None:
    assert shell(level, "ulimit -n").output == b"64\n"
    assert shell(level, "ulimit -n", limits=Limits(address_space=None)).output == b"256\n"


@EVERY_RUNG
def test_a_program_that_kills_all_it_can_reach_ends_itself(level: Asked) -> None:
    done = python(level, "import os, signal; print('on', flush=True); os.kill(os.getppid(), 9); os.kill(-1, 9)")
    assert done.ended == "exit"
    assert done.seconds < 10.0


@EVERY_RUNG
@pytest.mark.parametrize(
    ("code", "due"), [("kill -9 $$", 137), ("kill -6 $$", 134), ("exit 200", 200), ("nonesuch", 127)]
)
def test_exit_codes(level: Asked, code: str, due: int) -> None:
    assert shell(level, f"sh -c '{code}'; exit $?").code == due
    assert shell(level, code).code == due


@EVERY_RUNG
def test_a_program_that_is_not_there(level: Asked) -> None:
    done = sandbox(level).run(Command(("/usr/bin/nonesuch",)))
    assert done.code in {126, 127}


# -- what comes back --------------------------------------------------------------------------------------------------


@EVERY_RUNG
def test_what_is_planted_in_the_workspace_is_harmless_afterwards(level: Asked, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("outside", "utf-8")
    outside.chmod(0o600)
    work = tmp_path / "work"
    work.mkdir()
    plant = (
        f"touch s; chmod 6755 s; mkdir -p a/b; chmod 0 a/b a; mkfifo ff; ln -s {outside} link; ln -s / root; chmod 0 ."
    )
    shell(level, plant, work)
    mode = (work / "s").lstat().st_mode
    assert not mode & (stat.S_ISUID | stat.S_ISGID)
    assert list((work / "a" / "b").iterdir()) == []
    assert stat.S_ISFIFO((work / "ff").lstat().st_mode)
    assert {path.lstat().st_uid for path in work.rglob("*")} == {os.geteuid()}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600
    assert outside.stat().st_uid == os.geteuid()
    shutil.rmtree(work)


@EVERY_RUNG
def test_folders_that_are_too_deep_are_removed(level: Asked, tmp_path: Path) -> None:
    done = python(level, "import os\nfor _ in range(1100): os.mkdir('d'); os.chdir('d')\nos.chmod('..', 0)", tmp_path)
    assert done.code == 0
    deepest = max(len(Path(folder).relative_to(tmp_path).parts) for folder, _, _ in os.walk(tmp_path))
    assert deepest == MAX_DEPTH - 1
    shutil.rmtree(tmp_path)


@EVERY_RUNG
def test_the_workspace_s_own_mode_is_as_before(level: Asked, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    before = tmp_path.stat()
    shell(level, "chmod 777 .; chmod 0 .; true", tmp_path)
    after = tmp_path.stat()
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_mode == before.st_mode or os.geteuid() != 0


@EVERY_RUNG
def test_a_killed_harness_leaves_nothing_running(level: Asked, tmp_path: Path) -> None:
    """kill -9, so that it can do nothing about it any more."""
    sandbox(level)
    marker = f"7077.{RUNGS.index(level) + 10}"
    program = (
        "from agent.sandbox.base import Command\nfrom agent.sandbox.ladder import Isolation\n"
        f"Isolation({level!r}).sandbox().run(Command(('/bin/sh', '-c', 'sleep {marker} & sleep {marker}')))"
    )
    here = {"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}  # where a folder is left, since nobody can remove it
    harness = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=here)
    try:
        deadline = time.monotonic() + 30
        while gone(f"sleep\0{marker}", within=0):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    assert gone(f"sleep\0{marker}")


# -- system calls -----------------------------------------------------------------------------------------------------

# Prints the number of its errno. No argument here would let a call that is let through do a thing.
CALL = "import ctypes; r = ctypes.CDLL(None, use_errno=True).syscall({}); print(ctypes.get_errno() if r == -1 else 0)"
NUMBERS = ARCHITECTURES["x86_64"].numbers
EPERM, ENOSYS, EBADF, EOPNOTSUPP = 1, 38, 9, 95


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of x86_64")
@EVERY_RUNG
@pytest.mark.parametrize(
    ("call", "due"),
    [
        (f"{NUMBERS['ptrace']}, 0, 0, 0, 0", EPERM),
        (f"{NUMBERS['bpf']}, -1, 0, 0", EPERM),
        (f"{NUMBERS['keyctl']}, -1", EPERM),
        (f"{NUMBERS['io_uring_setup']}, 1, 0", EPERM),
        (f"{NUMBERS['unshare']}, 0", EPERM),
        (f"{NUMBERS['memfd_create']}, b'x', 0", EPERM),
        (f"{NUMBERS['clone3']}, 0, 0", ENOSYS),
        (f"{NUMBERS['clone']}, 0x10000011, 0, 0, 0, 0", EPERM),
        (f"{NUMBERS['socket']}, 1, 1, 0", EPERM),
        (f"{NUMBERS['socket']}, 16, 3, 0", EPERM),
        (f"{NUMBERS['socketpair']}, 1, 2, 0, (ctypes.c_int * 2)()", EPERM),
        (f"{NUMBERS['socketpair']}, 1, 1, 0, (ctypes.c_int * 2)()", 0),
        (f"{NUMBERS['setsockopt']}, 99, 1, 7, 0, 0", EPERM),
        (f"{NUMBERS['setsockopt']}, 99, 1, 33, 0, 0", EPERM),
        (f"{NUMBERS['setsockopt']}, 99, 1, 2, 0, 0", EBADF),
        (f"{NUMBERS['fcntl']}, 99, 1031, 1 << 20", EPERM),
        (f"{NUMBERS['fcntl']}, 99, 1, 0", EBADF),
        (f"{NUMBERS['prctl']}, 4, 0, 0, 0, 0", EPERM),
        (f"{NUMBERS['msgget']}, 0, 0o1600", EPERM),
        (f"{NUMBERS['semget']}, 0, 1, 0o1600", EPERM),
        (f"{NUMBERS['vmsplice']}, 99, 0, 0, 0", EPERM),
        (f"{NUMBERS['fallocate']}, 99, 0, 0, 1", EOPNOTSUPP),
        (f"{NUMBERS['ioctl']}, 99, 0x5412, 0", EPERM),
        (f"{NUMBERS['ioctl']}, 99, 0x5413, 0", EBADF),
        (f"{NUMBERS['prlimit64']}, 1, 7, 0, 0", EPERM),
        (f"{NUMBERS['prlimit64']}, 0, 7, 0, 0", 0),
        ("9999", ENOSYS),
        (f"{0x4000_0000 + 39}", ENOSYS),
    ],
)
def test_a_call_is_answered_as_it_must(level: Asked, call: str, due: int) -> None:
    assert int(python(level, CALL.format(call)).output) == due


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
@pytest.mark.parametrize("rules", [Rules(), Rules(landlock=True), Rules(True, True, True)])
def test_every_jump_of_a_filter_stays_in_it(machine: str, rules: Rules) -> None:
    program = seccomp_filter(rules, machine)
    assert len(program) % 8 == 0
    steps = [program[at : at + 8] for at in range(0, len(program), 8)]
    for at, step in enumerate(steps):
        assert at + 1 + max(step[2], step[3]) < len(steps) or step[0] == 0x06
    assert steps[-1][0] == 0x06


@pytest.mark.parametrize("machine", sorted(ARCHITECTURES))
def test_every_call_that_a_filter_names_is_known_where_it_exists(machine: str) -> None:
    """aarch64 never had the older forms; whatever else is named has a number on both."""
    older = {*("chmod", "chown", "lchown", "utime", "utimes", "futimesat", "modify_ldt", "iopl", "ioperm")}
    named = {*seccomp._answers(Rules(True, True, True)), *dict(seccomp._tests(Rules(bare_signals=True)))}
    assert named - set(ARCHITECTURES[machine].numbers) <= (older if machine == "aarch64" else set())


# -- landlock where it has less ---------------------------------------------------------------------------------------


def test_where_files_outside_are_the_user_s_own_their_modes_do_not_change(tmp_path: Path) -> None:
    """Shown as the user who owns them, from a filter alone: landlock has no rule for modes."""
    sandbox("landlock")
    file = tmp_path / "file"
    file.write_text("x", "utf-8")
    file.chmod(0o640)
    before = file.stat()
    code = f"import os\nos.chmod({str(file)!r}, 0o777); os.utime({str(file)!r}, (1, 1)); os.chown({str(file)!r}, 1, 1)"
    _filtered(Rules(landlock=True, shares_user=True), code)
    after = file.stat()
    assert (after.st_mode, after.st_mtime, after.st_uid) == (before.st_mode, before.st_mtime, before.st_uid)
    _filtered(Rules(landlock=True), f"import os\nos.chmod({str(file)!r}, 0o600)")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_where_the_kernel_does_not_keep_signals_in_none_is_sent() -> None:
    sandbox("landlock")
    refused = "import os\ntry: os.kill(os.getppid(), 0)\nexcept PermissionError: print('refused')"
    assert _filtered(Rules(landlock=True, bare_signals=True), refused) == b"refused\n"
    assert _filtered(Rules(landlock=True), "import os\nos.kill(os.getppid(), 0); print('sent')") == b"sent\n"


def _filtered(rules: Rules, code: str) -> bytes:
    """What a program prints that runs as this user, with a filter and no other wall."""
    prepare = (
        f"import sys; sys.path.insert(0, {str(Path(landlock_launcher.__file__).parent)!r})\n"
        "import landlock_launcher as launcher\n"
        "launcher._prctl(launcher._PR_SET_NO_NEW_PRIVS, 1)\n"
        f"launcher._filter(bytes.fromhex({seccomp_filter(rules).hex()!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", prepare + code], capture_output=True, check=True)
    return done.stdout


# -- an ordinary user -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="root can try both; an ordinary user is tried by every other test")
@EVERY_RUNG
def test_an_ordinary_user_s_programs_are_held_too(level: Asked, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same package on the system's Python, as a user who is not root: it needs nothing but the standard library."""
    system = shutil.which("python3", path="/usr/bin")
    if system is None:
        pytest.skip("there is no Python that every user can run")
    sandbox(level)
    place = Path("/var/tmp") / f"shoestring-ordinary-{os.getpid()}-{level}"  # noqa: S108 must be reachable by all
    try:
        (place / "agent").mkdir(parents=True)
        for name in ("__init__.py", "errors.py"):
            shutil.copy(ROOT / "agent" / name, place / "agent" / name)
        shutil.copytree(
            ROOT / "agent" / "sandbox", place / "agent" / "sandbox", ignore=shutil.ignore_patterns("__pycache__")
        )
        subprocess.run(["chmod", "-R", "a+rX", place], check=True)
        program = (
            "from agent.sandbox.ladder import tried\nfrom agent.sandbox.base import Command, Limits\n"
            "import pathlib, tempfile\n"
            f"rung = tried({level!r})[0]\nprint(rung.why or 'held')\n"
            "with tempfile.TemporaryDirectory() as work:\n"
            "  code = 'touch s; chmod 4755 s; mkdir a; chmod 0 a; ls'\n"
            "  done = rung.sandbox.run(Command(('/bin/sh', '-c', code), pathlib.Path(work)))\n"
            "  print(done.code, done.output, [oct(p.stat().st_mode) for p in sorted(pathlib.Path(work).iterdir())])\n"
            "  code = 'mkdir d; cd d; for n in 1 2 3; do head -c 40M /dev/zero >$n; done; chmod 0300 .; sleep 9'\n"
            "  limits = Limits(seconds=9.0, disk=8 << 20)\n"
            "  print(rung.sandbox.run(Command(('/bin/sh', '-c', code), pathlib.Path(work), limits=limits)).ended)\n"
            "  code = 'mkdir -m 0300 q; head -c 9M /dev/zero >q/1; head -c 9M /dev/zero >q/2; chmod 0 . q'\n"
            "  print(rung.sandbox.run(Command(('/bin/sh', '-c', code), pathlib.Path(work), limits=limits)).ended)\n"
            '  code = \'import os; os.mkdir("m", 0o300); os.chdir("m"); n = 0\\n\'\n'
            "  code += 'while True: os.close(os.open(str(n), os.O_CREAT)); n += 1'\n"
            "  python = ('/usr/bin/python3', '-I', '-c', code)\n"
            "  print(rung.sandbox.run(Command(python, pathlib.Path(work), limits=limits)).ended)\n"
            "  from agent.sandbox.usage import files_below\n"
            "  left = files_below(pathlib.Path(work))\n"
            "  print(left.is_whole, left.bytes <= limits.disk, left.entries <= 10_000)\n"
        )
        done = subprocess.run(
            [system, "-c", program],
            cwd=place,
            user=61_500,
            group=61_500,
            extra_groups=[],
            env={},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if "namespace" in done.stdout.partition("\n")[0]:
        pytest.skip(f"users may make no namespaces here: {done.stdout}")
    assert done.stderr == ""
    held, ran, *hidden, left = done.stdout.splitlines()
    assert (held, hidden, left) == ("held", ["disk", "disk", "files"], "True True True")
    mode = "0o100755" if level == "bubblewrap" else "0o100644"  # landlock: told that it was done, and not done
    assert ran == f"0 b'a\\ns\\n' ['{'0o40700' if level == 'bubblewrap' else '0o40755'}', '{mode}']"


# -- parsers ----------------------------------------------------------------------------------------------------------


def _parsers(level: Asked) -> None:
    made = sandbox(level)
    if not all(made.can_read(path) for path in project_files()):
        with pytest.raises(SandboxError, match="only root may enter"):
            parsed(made, "tests.nonesuch", {}, b"")
        pytest.skip("this project stands where only root may enter")


@EVERY_RUNG
def test_a_parser_is_one_of_our_modules(level: Asked) -> None:
    _parsers(level)
    with pytest.raises(SandboxError) as crashed:
        parsed(sandbox(level), "agent.sandbox.nonesuch", {}, b"")
    assert crashed.value.error_type == "tool_crashed"
    assert "nonesuch" not in str(crashed.value)
