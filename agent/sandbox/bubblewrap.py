"""The first rung: bubblewrap. The program has namespaces of its own (files, processes, network, names), a filter of
system calls, and limits that are set inside, since bubblewrap itself could not start within them.

An ordinary user gets a user namespace. Root needs none, and gets none: it builds the same walls as root and gives its
user up inside them, which is the only way that the kernel holds it to the limit on processes, and keeps files that the
program makes from being root's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from agent.sandbox.base import MIB, SHOWN_ROOT, SHOWN_SOURCE, Command, Finished, Level, SandboxError
from agent.sandbox.lending import Lent, lent
from agent.sandbox.limits import PATH, kernel_limits, variables
from agent.sandbox.readable import ROOTS, SYSTEM, SYSTEM_FILES
from agent.sandbox.sealed import sealed
from agent.sandbox.seccomp import Rules, is_supported, seccomp_filter
from agent.sandbox.users import Borrower, borrowed
from agent.sandbox.watched import ASKS, Launch, watch

WHERE = f"{PATH}:/usr/local/bin"  # its own programs are looked for
_TMP = "/tmp"  # noqa: S108 the program's own
_SHM = "/dev/shm"  # noqa: S108 its own too
_TMP_BYTES, _SHM_BYTES = 32 * MIB, 16 * MIB
_NEW_USER = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL")
# Root: just what setpriv needs to give up the rest.
_AS_ROOT = ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP")
WALLS = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"),
)
# The first process inside. It asks before it starts the program: a harness that was killed while bwrap was still
# setting up has missed --die-with-parent, and gives no answer. It tells the program's exit code on stdout. The
# program's own outputs reach stderr through a pipe, which ends when its last holder does; then it says so, and waits to
# be killed: were it to leave, bwrap would leave before those that the program has left behind.
_OBSERVED = f"""
exec 3>&1 1>&2
printf '{ASKS.decode()}' >&3; read -r answer <&3 || exit
{{ "$@" 3>&-; echo $? >&3; }} 2>&1 | exec cat 3>&-
echo over >&3
while :; do kill -STOP $$; done
"""


class Bubblewrap:
    """Runs commands with bwrap; see the module's docstring.

    Raises:
        SandboxError: no_sandbox, a program that it needs is missing, or this kind of processor is not known.
    """

    name: Level = "bubblewrap"

    def __init__(self) -> None:
        if not is_supported():
            raise SandboxError("no_sandbox", "this system, or this kind of processor, is not one it is made for")
        self._bwrap = _found("bwrap")
        self._prlimit = _found("prlimit")
        self._setpriv = _found("setpriv") if os.geteuid() == 0 else None

    def can_read(self, path: Path) -> bool:  # noqa: ARG002 the walls are built by one who can
        """See `Sandbox.can_read`."""
        return True

    def run(self, command: Command) -> Finished:
        """See `Sandbox.run`."""
        with ExitStack() as stack:
            user = stack.enter_context(borrowed())
            given = Lent()
            if command.workspace is not None:
                writing = lent(command.workspace, user, read_only=command.read_only, most=command.limits.disk)
                given = stack.enter_context(writing)
            rules = stack.enter_context(sealed(seccomp_filter(Rules())))
            source = stack.enter_context(sealed(command.source))
            program = ("--perms", "0644", "--ro-bind-data", str(source), SHOWN_SOURCE)
            options = [*WALLS, *self._user_options(user), *program, *_files(command), *_variables(command)]
            listed = b"".join(os.fsencode(option) + b"\0" for option in (*options, "--seccomp", str(rules)))
            handle = stack.enter_context(sealed(listed))  # so that no process in there can read them
            inner = (*self._drop(user), *self._limited(command, user), "/bin/sh", "-c", _OBSERVED, "sh", *command.argv)
            folders = () if command.workspace is None or command.read_only else (command.workspace,)
            argv = (self._bwrap, "--args", str(handle), "--", *inner)
            environment = {"PATH": PATH}  # readable inside, as /proc/1/environ
            in_memory = (_TMP, _SHM) if command.workspace is not None else (_TMP, _SHM, SHOWN_ROOT)
            kept = (rules, source, handle)
            launch = Launch(argv, environment, kept, folders, ends_when_told=False, in_memory=in_memory)
            done = watch(launch, command)
        return given.judged(done)

    def _user_options(self, user: Borrower) -> tuple[str, ...]:
        return _AS_ROOT if user.is_other else _NEW_USER

    def _drop(self, user: Borrower) -> tuple[str, ...]:
        """Root's inner launcher: another user, no group, no capability, none to be had."""
        if self._setpriv is None:
            return ()
        who = (f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups")
        return (self._setpriv, *who, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")

    def _limited(self, command: Command, user: Borrower) -> tuple[str, ...]:
        limits = kernel_limits(command.limits, user)
        return (self._prlimit, *(f"--{name}={value}" for name, value in limits.items()), "--")


def _files(command: Command) -> Iterator[str]:
    """The tree that the program sees. Nothing is in it but what is named here."""
    for folder in filter(Path.exists, SYSTEM):
        yield from ("--ro-bind", str(folder), str(folder))
    for name in ROOTS:
        root = Path("/", name)
        if root.is_symlink():
            yield from ("--symlink", str(root.readlink()), str(root))
        elif root.is_dir():
            yield from ("--ro-bind", str(root), str(root))
    yield from ("--perms", "0755", "--dir", "/etc")
    for path in SYSTEM_FILES:
        yield from ("--ro-bind-try", str(path), str(path))
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from ("--size", str(_TMP_BYTES), "--perms", "1777", "--tmpfs", _TMP)
    yield from ("--size", str(_SHM_BYTES), "--perms", "1777", "--tmpfs", _SHM)
    for path in command.readable:  # some may stand below those
        for parent in reversed(path.parents[:-1]):
            yield from ("--perms", "0755", "--dir", str(parent))
        yield from ("--ro-bind", str(path), str(path))
    if command.workspace is None:
        yield from ("--size", str(_TMP_BYTES), "--perms", "1777", "--tmpfs", SHOWN_ROOT)
    else:
        yield from ("--ro-bind" if command.read_only else "--bind", str(command.workspace), SHOWN_ROOT)
    yield from ("--chdir", SHOWN_ROOT, "--remount-ro", "/dev", "--remount-ro", "/")


def _variables(command: Command) -> Iterator[str]:
    for name, value in variables(command, _TMP):
        yield from ("--setenv", name, value)


def _found(name: str) -> str:
    path = shutil.which(name, path=WHERE)
    if path is None:
        raise SandboxError("no_sandbox", f"{name} is not installed")
    return path
