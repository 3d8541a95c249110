"""execute_code: what a program prints comes back, whatever it does; the attacks on it, and their harmless twins."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sandbox.ladder import Asked, Isolation
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.execute_code import ExecuteCode
from agent.tools.read_file import ReadFile
from agent.tools.registry import ToolRegistry
from agent.tools.write_file import WriteFile
from benchmarks.isolation_storm import storm
from tests.support_sandbox import RUNGS, gone, isolation, open_folder

BRIEF = 1.0  # seconds of wall clock for programs that are meant to be stopped

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


class Desk:
    """The tools of a run in a workspace of its own."""

    def __init__(self, workspace: Path | None, lent: Isolation, seconds: float = 15.0):
        context = ToolContext(workspace=workspace, isolation=lent)
        self.tools = ToolRegistry([ExecuteCode(seconds), ReadFile(), WriteFile()], context)

    def run(self, code: str, language: str = "python") -> ToolResult:
        return self.tools.execute(ToolCall(name="execute_code", arguments={"code": code, "language": language}))

    def read(self, path: str) -> ToolResult:
        return self.tools.execute(ToolCall(name="read_file", arguments={"path": path}))

    def write(self, path: str, content: str) -> ToolResult:
        return self.tools.execute(ToolCall(name="write_file", arguments={"path": path, "content": content}))


@pytest.fixture(params=RUNGS)
def level(request: pytest.FixtureRequest) -> Asked:
    rung: Asked = request.param
    return rung


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Where the workspaces of runs are."""
    with open_folder() as folder:
        yield folder


@pytest.fixture
def desk(level: Asked, tmp_path: Path) -> Desk:
    return Desk(tmp_path, isolation(level))


@pytest.fixture
def brief(level: Asked, tmp_path: Path) -> Desk:
    return Desk(tmp_path, isolation(level), BRIEF)


# -- what is printed --------------------------------------------------------------------------------------------------


def test_what_is_printed_comes_back(desk: Desk) -> None:
    code = "a, b = 0, 1\nfor _ in range(25):\n    a, b = b, a + b\nprint(a)\n"
    result = desk.run(code)
    assert (result.success, result.data, result.error) == (True, "75025", None)


def test_python_is_what_is_meant_where_nothing_is_said(desk: Desk) -> None:
    result = desk.tools.execute(ToolCall(name="execute_code", arguments={"code": "print(6 * 7)"}))
    assert result.data == "42"


@needs_node
@pytest.mark.parametrize(
    ("code", "due"),
    [
        ("console.log(6 * 7)", "42"),
        ("const fs = require('fs'); fs.writeFileSync('f', 'x'); console.log(fs.readdirSync('.').join())", "f"),
        ("import fs from 'node:fs'\nconsole.log(fs.existsSync('/workspace'), await 5)", "5"),
        ("console.log(process.cwd())", "/workspace"),
    ],
)
def test_javascript(desk: Desk, code: str, due: str) -> None:
    result = desk.run(code, "javascript")
    assert result.success, result.error
    assert result.data.endswith(due)


@needs_node
def test_a_failure_in_javascript(desk: Desk) -> None:
    result = desk.run("console.log('before'); throw new Error('which one')", "javascript")
    assert result.error_type == "code_failed"
    assert "Error: which one" in (result.error or "")


def test_bash(desk: Desk) -> None:
    assert desk.run("for i in 1 2 3; do echo -n $((i * i)),; done; pwd", "bash").data == "1,4,9,/workspace"
    failed = desk.run("echo before; exit 3", "bash")
    assert (failed.error_type, failed.error) == (
        "code_failed",
        "The code failed (exit code 3). Its output ended with:\nbefore",
    )


def test_a_language_that_is_not_installed_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("agent.tools.execute_code.PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    result = desk.run("console.log(1)", "javascript")
    assert (result.error_type, result.error) == (
        "missing_program",
        "node is not installed on this machine: use another language.",
    )


def test_stdout_and_stderr_come_in_the_order_they_were_written(desk: Desk) -> None:
    assert desk.run("import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')").data == "one\ntwo\nthree"


@pytest.mark.parametrize("code", ["```python\nprint('x')\n```", "\n```\nprint('x')```  \n", "print('x')"])
def test_a_fence_around_the_whole_program_is_taken_off(desk: Desk, code: str) -> None:
    assert desk.run(code).data == "x"


def test_a_failure_shows_the_end_of_its_traceback_and_no_real_path(desk: Desk, tmp_path: Path) -> None:
    result = desk.run("print('before')\nfor i in range(2000): print('noise', i)\nraise KeyError('which one')")
    assert (result.success, result.error_type) == (False, "code_failed")
    assert result.error is not None
    assert result.error.endswith(
        "File \"/code/program\", line 3, in <module>\n    raise KeyError('which one')\nKeyError: 'which one'"
    )
    assert "before" not in result.error
    assert len(result.error) < 1700
    assert "which one" in result.error
    assert str(tmp_path) not in result.error


@pytest.mark.parametrize("code", ["print(", "def f():\nreturn 1", "import sys; sys.exit(3)", "import os; os.abort()"])
def test_any_other_end_than_success_is_a_failure(desk: Desk, code: str) -> None:
    assert desk.run(code).error_type == "code_failed"


@pytest.mark.parametrize("code", ["print('first half')\n\0print('second')", "print('\ud800')"])
def test_a_program_is_run_whole_or_not_at_all(desk: Desk, code: str) -> None:
    assert desk.run(code).error_type == "bad_args"


@pytest.mark.parametrize("code", ["x = 1", "1 + 1", "print()"])
def test_printing_nothing_is_told(desk: Desk, code: str) -> None:
    result = desk.run(code)
    assert (result.success, result.error_type) == (False, "empty")
    assert "Print the result" in (result.error or "")


def test_a_long_output_is_cut(desk: Desk) -> None:
    result = desk.run("print('x' * 200_000)")
    assert result.success
    assert result.truncated
    assert len(result.data) == 3000


@pytest.mark.parametrize("code", ["while True: print('x' * 1000)", "import os\nwhile True: os.write(2, b'y' * 65536)"])
def test_an_output_bomb_is_stopped_and_read_within_bounds(desk: Desk, code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = desk.run(code)
    assert result.error_type == "too_large"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_the_same_program_prints_the_same_every_time(desk: Desk) -> None:
    code = "import os\nprint(set('abcdefgh'), os.getcwd(), __file__, os.environ['HOME'])"
    first = desk.run(code)
    assert first.success
    assert first.data == desk.run(code).data


def test_our_modules_cannot_be_imported(desk: Desk) -> None:
    assert "No module named 'agent'" in (desk.run("import agent").error or "")


def test_input_is_empty(desk: Desk) -> None:
    assert "EOFError" in (desk.run("input()").error or "")


# -- the workspace ----------------------------------------------------------------------------------------------------


def test_files_and_programs_share_the_workspace(desk: Desk, tmp_path: Path) -> None:
    desk.write("numbers.txt", "1\n2\n3\n")
    assert desk.run("print(sum(map(int, open('numbers.txt'))), file=open('sum.txt', 'w'))").error_type == "empty"
    assert "6" in desk.read("sum.txt").data
    assert {path.name for path in tmp_path.iterdir()} == {"numbers.txt", "sum.txt"}


def test_a_module_of_the_workspace_can_be_imported(desk: Desk) -> None:
    desk.write("helper.py", "def double(x):\n    return 2 * x\n")
    assert desk.run("from helper import double\nprint(double(21))").data == "42"


def test_without_a_workspace_there_is_an_empty_folder_that_is_gone_afterwards(level: Asked) -> None:
    desk = Desk(None, isolation(level))
    assert desk.run("import os; print(os.listdir()); open('left', 'w').write('x')").data == "[]"
    assert desk.run("import os; print(os.listdir())").data == "[]"


def test_a_person_s_own_folder_is_not_shown(level: Asked, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=sk-secret", "utf-8")
    context = ToolContext(workspace=tmp_path, persons_folder=True, isolation=isolation(level))
    tools = ToolRegistry([ExecuteCode()], context)
    code = f"cat .env {tmp_path}/.env; ls -A; echo x > new"
    result = tools.execute(ToolCall(name="execute_code", arguments={"code": code, "language": "bash"}))
    assert "sk-secret" not in f"{result.data}{result.error}"
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


# -- without a sandbox ------------------------------------------------------------------------------------------------


def test_without_a_sandbox_the_tool_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.sandbox.ladder._tested", {})
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    result = Desk(tmp_path, Isolation()).run("print(1)")
    assert (result.success, result.error_type) == (False, "no_sandbox")
    assert "--sandbox external" in (result.error or "")


def test_external_runs_programs_within_limits(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Isolation("external"), BRIEF)
    assert desk.run("print(6 * 7)").data == "42"
    assert desk.run("setsid sleep 7078.01 & sleep 7078.01", "bash").error_type == "timeout"
    assert gone("7078.01")


# -- the attacks, each with a twin that means no harm -----------------------------------------------------------------


def test_exec_bad_utf8(desk: Desk) -> None:
    result = desk.run(r"printf '\xff\xfe\x00\x1b[2J'", "bash")
    assert result.data == "\ufffd\ufffd\x00\x1b[2J"
    assert json.loads(result.model_dump_json())["data"] == result.data
    assert desk.run("printf 'caf\\xc3\\xa9'", "bash").data == "café"


def test_exec_daemon(desk: Desk) -> None:
    desk.run("setsid nohup sleep 7078.02 >/dev/null 2>&1 & disown", "bash")
    assert gone("7078.02")
    assert desk.run("(sleep 0.1; echo late) & wait; echo done", "bash").data == "late\ndone"


def test_exec_disk_fill(desk: Desk, tmp_path: Path) -> None:
    result = desk.run("for i in $(seq 9999); do head -c 60M /dev/zero >f$i; done", "bash")
    assert result.error_type == "disk"
    for path in tmp_path.iterdir():
        path.unlink()
    assert desk.run("head -c 6M /dev/zero >f; wc -c <f", "bash").data == str(6 << 20)


def test_too_many_files_are_told_from_too_large_ones(desk: Desk) -> None:
    many = desk.run("n = 0\nwhile True:\n    open(str(n), 'w').close()\n    n += 1")
    assert (many.error_type, many.error) == ("disk", "The code failed: it made over 10,000 files. Make fewer.")
    desk.run("find . -type f -delete", "bash")
    large = desk.run("for i in $(seq 9999); do head -c 60M /dev/zero >f$i; done", "bash")
    assert (large.error_type, "268,435,456 bytes" in (large.error or "")) == ("disk", True)


def test_exec_fifo_plant(desk: Desk) -> None:
    desk.run("mkfifo ff", "bash")
    assert desk.read("ff").error_type == "refused"
    assert desk.run("mkfifo gg; echo through >gg & cat gg", "bash").data == "through"


def test_exec_forkbomb(brief: Desk) -> None:
    assert brief.run(":(){ :|:& };:", "bash").seconds < 10
    assert brief.run("for i in 1 2 3 4; do (echo $i) & done; wait", "bash").data.split() != []


def test_exec_home_env(desk: Desk) -> None:
    result = desk.run("cat ~/.env $HOME/../*/.ssh/* $HOME/.env", "bash")
    assert result.error_type == "code_failed"
    assert desk.run("echo mine > ~/notes; cat ~/notes", "bash").data == "mine"


def test_exec_kill_parent(desk: Desk) -> None:
    desk.run("import os,signal;os.kill(os.getppid(),9);os.kill(-1,9)")
    twin = "import subprocess\np = subprocess.Popen(['sleep', '60'])\np.kill()\nprint(p.wait())"
    assert desk.run(twin).data == "-9"


def test_exec_lone_surrogate(desk: Desk) -> None:
    assert "UnicodeEncodeError" in (desk.run("print('\\ud800')").error or "")
    assert desk.run("print('\\U0001f600')").data == "\U0001f600"


def test_exec_membomb(desk: Desk) -> None:
    assert desk.run("x=[bytearray(1<<26) for _ in range(1000)]").error_type == "memory"
    assert desk.run("x=[bytearray(1<<26) for _ in range(3)]; print(len(x))").data == "3"


def test_exec_membomb_multi(desk: Desk) -> None:
    bomb = "import os\nfor i in range(20):\n  if os.fork()==0: x=bytearray(900<<20); import time; time.sleep(10)"
    assert desk.run(bomb).error_type == "memory"
    twin = "import os\nfor i in range(3):\n  if os.fork()==0: x=bytearray(9<<20); os._exit(0)\nos.wait(); print('ok')"
    assert desk.run(twin).data == "ok"


def test_exec_net_udp(desk: Desk) -> None:
    """Where a program has a network of its own, what it sends goes nowhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        port = server.getsockname()[1]
        desk.run(f"import socket;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.sendto(b'x',('127.0.0.1',{port}))")
        with pytest.raises(BlockingIOError):
            server.recv(1)
    twin = "import socket;a,b=socket.socketpair();a.send(b'x');print(b.recv(1))"
    assert desk.run(twin).data == "b'x'"


def test_exec_passwd(desk: Desk) -> None:
    result = desk.run("print(open('/etc/passwd').read())")
    assert (result.error_type, "root:" in (result.error or "")) == ("code_failed", False)
    assert desk.run("open('passwd', 'w').write('x'); print(open('passwd').read())").data == "x"


def test_exec_pipe_holder(brief: Desk) -> None:
    result = brief.run("sleep 7078.03 & sleep 7078.03", "bash")
    assert (result.error_type, result.seconds < BRIEF + 5) == ("timeout", True)
    assert gone("7078.03")
    assert brief.run("sleep 0.01 & sleep 0.01; echo over", "bash").data == "over"


def test_exec_proc1_env(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOESTRING_CANARY", "canary")
    result = desk.run("tr '\\0' '\\n' </proc/1/environ; echo; tr '\\0' '\\n' </proc/$PPID/environ", "bash")
    assert "canary" not in f"{result.data}{result.error}"
    assert desk.run("MINE=1; export MINE; env | grep MINE", "bash").data == "MINE=1"


def test_exec_sigterm_ignore(brief: Desk) -> None:
    attack = "import signal,time\nfor s in (1,2,15): signal.signal(s,signal.SIG_IGN)\nprint('on')\ntime.sleep(999)"
    result = brief.run(attack)
    assert (result.error_type, result.seconds < BRIEF + 5) == ("timeout", True)
    assert "stopped after 1 seconds" in (result.error or "")
    assert (result.error or "").endswith("on")
    assert brief.run("import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('over')").data == "over"


def test_exec_unix_sock(desk: Desk) -> None:
    attack = "import socket;s=socket.socket(socket.AF_UNIX);s.connect('/var/run/docker.sock')"
    assert desk.run(attack).error_type == "code_failed"
    twin = "import subprocess;print(subprocess.run(['cat'],input=b'piped',capture_output=True).stdout)"
    assert desk.run(twin).data == "b'piped'"


def test_exec_userns(desk: Desk) -> None:
    result = desk.run("unshare -Urmn id", "bash")
    assert (result.error_type, "uid=0" in (result.error or "")) == ("code_failed", False)
    assert "uid=" in desk.run("id", "bash").data


def test_exec_write_outside(desk: Desk, tmp_path: Path) -> None:
    result = desk.run("echo x >/usr/local/bin/python3; echo x >../outside", "bash")
    assert result.error_type == "code_failed"
    assert not (tmp_path.parent / "outside").exists()
    assert desk.run("mkdir -p a && echo x >a/../inside; cat inside", "bash").data == "x"


def test_path_read_06(desk: Desk) -> None:
    desk.run("ln -s /etc/shadow evil; ln -s inner good; echo x > inner", "bash")
    assert desk.read("evil").error_type == "refused"
    assert desk.read("inner").success


# -- side by side -----------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_many_runs_from_many_threads(level: Asked, tmp_path: Path, scratch: Path) -> None:
    """A few of each rung; 500 of them come next."""
    desks = []
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        desks.append(Desk(tmp_path / str(number), isolation(level)))
    desks[0].run("print(0)")
    handles, results = _handles(), list[ToolResult]()
    codes = [
        "print(7)",
        "(sleep 7078.04 >/dev/null 2>&1 &) ; echo 7",
        "import os\nprint(7, flush=True)\nos.fork()",
        "echo 7; mkdir -p a/b",
    ]

    def work(desk: Desk) -> None:
        for code in codes * 3:
            results.append(desk.run(code, "bash" if "echo" in code else "python"))

    threads = [threading.Thread(target=work, args=(desk,)) for desk in desks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert {result.data.split("\n")[0] for result in results} == {"7"}
    assert len(results) == 48
    assert _handles() == handles
    assert list(scratch.iterdir()) == []
    assert gone("7078.04")
    assert _children() == []


@pytest.mark.timeout(400)  # it takes half a minute on two processors that have nothing else to do
def test_nothing_is_left_of_500_runs_from_8_threads() -> None:
    """No process, folder or descriptor; strays, daemons, closed folders and programs that print for ever among them."""
    isolation("bubblewrap")
    assert storm("bubblewrap", runs=500, threads=8) == []


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where folders are made, so that what is left of them can be seen."""
    with open_folder() as made:
        monkeypatch.setattr(tempfile, "tempdir", str(made))
        yield made


def _handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _children() -> list[int]:
    found: list[int] = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text("ascii").split())
    return found


if sys.platform != "linux":
    pytest.skip("programs are isolated on Linux only", allow_module_level=True)
