"""A process of its own, never imported: starts one program within landlock, a filter of system calls and limits, and
sees to it that nothing of it is left.

It stays outside of those walls, as the parent of all that the program leaves behind. On stdout it writes one line, the
program's exit code; the program's own stdout and stderr are its stderr. It never ends by itself: SIGTERM, which the
kernel sends too when the harness has died, makes it kill the program's group and leave.

Argument: the number of a descriptor with the plan, a dictionary of agent/sandbox/landlock.py (as marshal writes it: it
comes from the same Python, and loading any other form would double the start-up time). `--abi` prints the version of
landlock, 0 where there is none.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # the enums around it would take a third of the time
import ctypes
import marshal
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False  # typing would take another
if TYPE_CHECKING:
    from typing import Any, NoReturn

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PATH_BENEATH, _ASK_VERSION = 1, 1
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_CANNOT_START = 126

# Rights on files, as landlock numbers them, and the version that each came with.
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCKET, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_FIRST_RIGHTS = (1 << 13) - 1
_LATER_RIGHTS = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # moving between folders, truncating, ioctl on devices
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _LATER_RIGHTS[3] | _LATER_RIGHTS[5]
_READABLE = _EXECUTE | _READ | _LIST
_TCP, _OUTSIDE_SOCKETS_AND_SIGNALS = 0b11, 0b11

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of landlock's interface; 0 where the kernel has none, or does not let it be used."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)))


def main(plan: dict[str, Any]) -> None:
    """Start the program, tell its exit code, and end its group when told to."""
    waited_for = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != plan["parent"]:  # it died before it could be watched
        return
    program = os.fork()
    if program == 0:
        _become(plan, waited_for)
    for standard in (0, 2):
        os.close(standard)
    is_over = False
    while signal.sigwait(waited_for) != signal.SIGTERM:
        is_over = is_over or _bury(program)
    _end_group(program)


def _bury(program: int) -> bool:
    """Bury the strays that have died. The program itself keeps its number, which is its group's; its end is told."""
    while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if dead.si_pid == program:
            by_itself = dead.si_code == os.CLD_EXITED
            os.write(1, b"%d\n" % (dead.si_status if by_itself else 128 + dead.si_status))
            return True
        os.waitpid(dead.si_pid, 0)
    return False


def _end_group(program: int) -> None:
    """And whoever has left it, where nothing kept them in: strays come to us. Until none is there to be buried."""
    is_buried = False  # then the number may be somebody else's
    while True:
        for stray in _strays():
            os.kill(stray, signal.SIGKILL)
        if not is_buried:
            _kill_group(program)
        try:
            is_buried = os.wait()[0] == program or is_buried
        except ChildProcessError:
            return


def _kill_group(program: int) -> None:
    try:
        os.killpg(program, signal.SIGKILL)
    except ProcessLookupError:  # it has not made its group yet
        os.kill(program, signal.SIGKILL)
    except PermissionError:  # macOS says so where only the dead are left
        pass


def _strays() -> list[int]:
    try:
        with open("/proc/thread-self/children", "rb") as file:  # noqa: PTH123 pathlib would double the start-up time
            return [int(number) for number in file.read().split()]
    except FileNotFoundError:  # macOS
        return []


def _become(plan: dict[str, Any], blocked: set[int]) -> NoReturn:
    """In the child: put up the walls, each before what it does not allow any more, and become the program."""
    try:
        os.setpgid(0, 0)
        os.dup2(2, 1)
        os.chdir(plan["folder"])
        for name, value in plan["limits"].items():
            _limit(name, value)
        ruleset = _ruleset(plan) if plan["landlocked"] else None
        if plan["user"] is not None:
            os.setgroups([])
            os.setresgid(*[plan["user"]] * 3)
            os.setresuid(*[plan["user"]] * 3)
        if ruleset is not None:
            _prctl(_PR_SET_NO_NEW_PRIVS, 1)
            _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock")
            os.close(ruleset)
            _filter(plan["filter"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        os.execvpe(plan["argv"][0], plan["argv"], plan["environment"])  # noqa: S606 no shell is the point
    except OSError as error:
        os.write(2, f"cannot start: {error}\n".encode())
    os._exit(_CANNOT_START)


def _limit(name: str, value: int) -> None:
    """Lower a limit for good; what is lower already stays."""
    kind = getattr(resource, f"RLIMIT_{name.upper()}")
    hard = resource.getrlimit(kind)[1]
    lowered = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (lowered, lowered))


def _ruleset(plan: dict[str, Any]) -> int:
    """The handle of the rules: nothing on the disk may be touched but what the plan names."""
    known = version()
    handled = _FIRST_RIGHTS
    for since, right in _LATER_RIGHTS.items():
        handled |= right if known >= since else 0
    attributes = struct.pack("=QQQ", handled, _TCP, _OUTSIDE_SOCKETS_AND_SIGNALS)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0), "landlock")
    for path in plan["readable"]:
        _allow(ruleset, path, _READABLE & handled)
    for path in plan["devices"]:
        _allow(ruleset, path, (_READ | _WRITE) & handled)
    for path in plan["writable"]:
        _allow(ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCKET))
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # not every system has each of them
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _OF_A_FILE
        rule = struct.pack("=Qi", rights, handle)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0), path)
    finally:
        os.close(handle)


def _filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0), "seccomp")


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))), "prctl")


def _checked(result: int, what: str) -> int:
    """The result of a call of the C library. Raises OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


if __name__ == "__main__":
    if sys.argv[1] == "--abi":
        print(version())  # noqa: T201 its answer
    else:
        with open(int(sys.argv[1]), "rb") as file:  # noqa: PTH123 a descriptor, which closes with it
            given = marshal.load(file)  # noqa: S302 our own words
        main(given)
        os._exit(0)  # its standard streams are closed, which the usual end would complain about
