"""execute_code: what a program prints comes back, and nothing of it outlives its time, its group or its folder."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.execute_code import ExecuteCode
from agent.tools.registry import ToolRegistry

BRIEF = 1.0  # seconds of wall clock for programs that are meant to be stopped


def run(code: str, seconds: float = 15.0) -> ToolResult:
    registry = ToolRegistry([ExecuteCode(seconds)], ToolContext())
    return registry.execute(ToolCall(name="execute_code", arguments={"code": code}))


@pytest.fixture
def scratch_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where scratch folders are made, so that what is left of them can be seen."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    left = list(tmp_path.iterdir())
    subprocess.run(["rm", "-rf", "--", *left], check=True)  # pytest itself cannot remove what some of these tests make
    assert left == []


def gone(pid: int, within: float = 5.0) -> bool:
    """Whether no such process runs any more; a zombie that its new parent has not buried yet counts as gone."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        if state.stdout.strip() in {"", "Z"} or state.stdout.startswith("Z"):
            return True
        time.sleep(0.05)
    return False


def test_what_is_printed_comes_back() -> None:
    code = "a, b = 0, 1\nfor _ in range(25):\n    a, b = b, a + b\nprint(a)\n"
    result = run(code)
    assert (result.success, result.data, result.error) == (True, "75025", None)


def test_stdout_and_stderr_come_in_the_order_they_were_written() -> None:
    code = "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')"
    assert run(code).data == "one\ntwo\nthree"


@pytest.mark.parametrize("code", ["```python\nprint('x')\n```", "\n```\nprint('x')```  \n", "print('x')"])
def test_a_fence_around_the_whole_program_is_taken_off(code: str) -> None:
    assert run(code).data == "x"


def test_a_failure_shows_the_end_of_its_traceback_and_no_real_path() -> None:
    result = run("print('before')\nfor i in range(2000): print('noise', i)\nraise KeyError('which one')")
    assert (result.success, result.error_type) == (False, "code_failed")
    assert result.error is not None
    assert result.error.endswith(
        "File \"/scratch/code.py\", line 3, in <module>\n    raise KeyError('which one')\nKeyError: 'which one'"
    )
    assert "before" not in result.error
    assert len(result.error) < 1700


@pytest.mark.parametrize("code", ["print(", "def f():\nreturn 1", "import sys; sys.exit(3)", "import os; os.abort()"])
def test_any_other_end_than_success_is_a_failure(code: str) -> None:
    assert run(code).error_type == "code_failed"


def test_a_program_is_run_whole_or_not_at_all() -> None:
    assert run("print('first half')\n\0print('second')").error_type == "bad_args"


@pytest.mark.parametrize("code", ["x = 1", "1 + 1", "print()"])
def test_printing_nothing_is_told(code: str) -> None:
    result = run(code)
    assert (result.success, result.error_type) == (False, "empty")
    assert "Print the result" in (result.error or "")


def test_a_long_output_is_cut() -> None:
    result = run("print('x' * 500_000)")
    assert result.success
    assert result.truncated
    assert len(result.data) == 3000


def test_bytes_that_are_not_text_come_back_as_text() -> None:
    result = run(r"import os; os.write(1, b'\xff\xfe\x00\x1b[2J')")
    assert result.data == "\ufffd\ufffd\x00\x1b[2J"


def test_the_same_program_prints_the_same_every_time() -> None:
    code = "import os\nprint(set('abcdefgh'), os.getcwd(), __file__)"
    assert run(code).data == run(code).data


def test_no_variable_of_ours_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOESTRING_TEST_MARKER", "secret")
    result = run("import os; print(dict(os.environ))")
    assert "secret" not in result.data
    names = set(eval(result.data))  # noqa: S307 our own print
    assert names == {"PATH", "LANG", "HOME", "TMPDIR", "PYTHONHASHSEED", "MALLOC_ARENA_MAX"}


def test_our_modules_cannot_be_imported() -> None:
    assert "No module named 'agent'" in (run("import agent").error or "")


def test_input_is_empty() -> None:
    assert "EOFError" in (run("input()").error or "")


def test_the_folder_is_fresh_and_removed(scratch_parent: Path) -> None:
    assert run("import os; print(os.listdir()); open('left', 'w').write('x')").data == "['code.py']"
    assert run("import os; print(os.listdir())").data == "['code.py']"


@pytest.mark.parametrize(
    "mess",
    [
        "for _ in range(1500): os.mkdir('d'); os.chdir('d')",
        "os.makedirs('a/b'); os.chmod('a/b', 0); os.chmod('a', 0)",
        "os.symlink('/', 'root'); os.mkfifo('fifo')",
        "os.chmod('.', 0)",
    ],
)
def test_whatever_a_program_leaves_is_removed(scratch_parent: Path, mess: str) -> None:
    assert run(f"import os\n{mess}\nprint('done')").data == "done"


def test_the_wall_clock_holds_for_a_program_that_ignores_signals(scratch_parent: Path) -> None:
    code = "import signal, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nprint('on')\ntime.sleep(60)"
    result = run(code, BRIEF)
    assert (result.success, result.error_type) == (False, "timeout")
    assert "stopped after 1 seconds" in (result.error or "")
    assert (result.error or "").endswith("on")
    assert BRIEF <= result.seconds < BRIEF + 5


def test_a_timeout_ends_grandchildren_too() -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid)\ntime.sleep(60)"
    )
    result = run(code, BRIEF)
    assert result.error_type == "timeout"
    assert gone(int((result.error or "").split()[-1]))


def test_a_success_leaves_no_stray_behind_even_one_that_holds_the_pipe() -> None:
    result = run("import subprocess\nprint(subprocess.Popen(['sleep', '60']).pid)")
    assert result.success
    assert result.seconds < 10
    assert gone(int(result.data))


def test_a_daemon_that_left_the_group_does_not_hold_us_up() -> None:
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '20'], start_new_session=True).pid)"
    result = run(code)
    assert result.success
    assert result.seconds < 10
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(result.data), 9)


def test_closing_the_pipe_does_not_end_the_watch() -> None:
    assert run("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(60)", BRIEF).error_type == "timeout"


@pytest.mark.parametrize(
    "code",
    [
        "while True: print('x' * 1000)",
        "import os\nwhile True: os.write(2, b'y' * 65536)",
        "import os, time\nfor _ in range(4): os.fork()\nwhile True: print('z' * 1000)",
    ],
)
def test_an_output_bomb_is_stopped_and_read_within_bounds(code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run(code)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.error_type == "too_large"
    assert result.seconds < 10
    assert grown < 100_000  # kilobytes on Linux; macOS counts bytes, and then this is stricter


@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not keep RLIMIT_AS")
def test_a_memory_bomb_is_stopped_by_the_limit() -> None:
    result = run("x = bytearray(2 << 30)\nprint(len(x))")
    assert (result.success, result.error_type) == (False, "memory")


def test_a_file_bomb_is_stopped_by_the_limit(scratch_parent: Path) -> None:
    result = run(
        "with open('big', 'wb') as file:\n    for _ in range(200): file.write(bytes(1 << 20))\nprint('written')"
    )
    assert result.error_type == "code_failed"


def test_a_fork_bomb_that_goes_on_is_ended_with_its_group() -> None:
    code = "import os, time\nfor _ in range(5): os.fork()\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    result = run(code, BRIEF)
    assert result.error_type == "timeout"
    pids = [int(word) for word in (result.error or "").partition("with:\n")[2].split()]
    assert len(pids) > 1
    assert all(gone(pid) for pid in pids)


def test_programs_run_beside_each_other() -> None:
    results: list[ToolResult] = []
    threads = [threading.Thread(target=lambda n=n: results.append(run(f"print({n})"))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(result.data for result in results) == ["0", "1", "2", "3", "4", "5"]
