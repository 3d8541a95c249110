"""The filters of system calls, assembled as the kernel's classic BPF: no compiler and no library is needed.

A filter lets everything through but what it names, and calls that were unknown when it was written. What it names has
no place in a program that computes something: calls that reach the kernel's rarely used corners, other processes, or
memory and descriptors that no limit counts.
"""

from __future__ import annotations

import errno
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from agent.sandbox.syscalls import ARCHITECTURES, Architecture

_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
# What a filter reads: the call's number, the machine's word, and the low and high halves of each argument.
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_AT_LEAST, _JUMP_BITS, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06

_AF_INET, _AF_INET6, _SOCK_STREAM, _SOCK_TYPE_MASK = 2, 10, 1, 0xF
_NEW_NAMESPACES = 0x7E02_0000  # every CLONE_NEW* flag of clone
_PUSH_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into a terminal
_SET_FILE_FLAGS = (0x4008_6602, 0x401C_5820)  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
_SET_OWNER_OF_SIGNALS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
_SET_DUMPABLE = 4  # PR_SET_DUMPABLE
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ
_SET_BUFFERS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and what they are to root

_DENIED = (
    # Other processes, and the kernel's tracing.
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp"),
    *("bpf", "perf_event_open", "userfaultfd", "lookup_dcookie", "syslog", "fanotify_init"),
    # Keys, which are shared by all processes of a user.
    *("add_key", "request_key", "keyctl"),
    # Mounts and namespaces.
    *("mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "open_tree_attr", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "statmount", "listmount"),
    # Files by handle, past every rule about paths.
    *("name_to_handle_at", "open_by_handle_at"),
    # The machine.
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "acct", "swapon"),
    *("swapoff", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    *("sethostname", "setdomainname", "iopl", "ioperm", "modify_ldt", "vhangup"),
    # Memory that is nobody's, so that no limit counts it, and memory placed by hand.
    *("memfd_create", "memfd_secret", "shmget", "semget", "msgget", "mq_open", "vmsplice"),
    *("mbind", "set_mempolicy", "set_mempolicy_home_node", "migrate_pages", "move_pages"),
    # Calls made through a ring, which no filter sees.
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
)

# Where there are no namespaces: what would reach beyond the group of processes, or leave it.
_DENIED_UNDER_LANDLOCK = (
    *("setsid", "setpgid", "connect", "bind", "listen", "accept", "accept4", "truncate"),
    *("inotify_add_watch", "setpriority", "ioprio_set", "sched_setattr", "sched_setparam", "sched_setscheduler"),
    "sched_setaffinity",
)

# Landlock has no rule for these, and they would work on any file of the same user. They are answered as done and not
# done: programs that copy a file with its mode go on, and nothing outside changes.
_PRETENDED = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes"),
    *("futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr"),
    *("fremovexattr", "removexattrat", "file_setattr"),
)

_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")

_Instruction = tuple[int, int, int, int]


@dataclass(frozen=True)
class Rules:
    """What a filter is for. `landlock`: there are no namespaces around the program, so it has no socket at all.

    `shares_user`: files outside belong to the user that it runs as. `bare_signals`: the kernel does not keep its
    signals to its own processes.
    """

    landlock: bool = False
    shares_user: bool = False
    bare_signals: bool = False


def is_supported() -> bool:
    """Whether this is Linux on a machine whose calls are known."""
    return sys.platform == "linux" and platform.machine() in ARCHITECTURES


def seccomp_filter(rules: Rules, machine: str | None = None) -> bytes:
    """A filter as the kernel loads it: eight bytes an instruction. `machine` is as uname tells it.

    Raises:
        KeyError: the calls of this machine are not known (`is_supported` tells).
    """
    known = ARCHITECTURES[machine or platform.machine()]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _program(rules, known))


def _program(rules: Rules, machine: Architecture) -> Iterator[_Instruction]:
    yield (_LOAD, 0, 0, _MACHINE_AT)
    yield (_JUMP_EQUAL, 1, 0, machine.audit_word)
    yield (_RETURN, 0, 0, _KILL)
    yield (_LOAD, 0, 0, _NUMBER_AT)
    unknown = (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    if machine.foreign_bit is not None:
        yield from ((_JUMP_AT_LEAST, 0, 1, machine.foreign_bit), unknown)
    yield from ((_JUMP_ABOVE, 0, 1, machine.newest), unknown)
    for name, fault in _answers(rules).items():
        if name in machine.numbers:
            yield (_JUMP_EQUAL, 0, 1, machine.numbers[name])
            yield (_RETURN, 0, 0, _ERRNO | fault)
    for name, test in _tests(rules):
        yield (_JUMP_EQUAL, 0, len(test), machine.numbers[name])
        yield from test
    yield (_RETURN, 0, 0, _ALLOW)


def _answers(rules: Rules) -> dict[str, int]:
    """The calls that are answered whatever their arguments, and with which errno (0: as if done).

    clone3 keeps its flags where no filter can read them; ENOSYS makes libraries fall back on clone. fallocate takes the
    disk faster than anybody can look; libraries write the file instead.
    """
    answers = dict.fromkeys(_DENIED, errno.EPERM) | {"clone3": errno.ENOSYS, "fallocate": errno.EOPNOTSUPP}
    if rules.landlock:
        answers |= dict.fromkeys((*_DENIED_UNDER_LANDLOCK, "socket"), errno.EPERM)
    if rules.shares_user:
        answers |= dict.fromkeys(_PRETENDED, 0)
    if rules.bare_signals:
        answers |= dict.fromkeys(_SIGNALS, errno.EPERM)
    return answers


def _tests(rules: Rules) -> Iterator[tuple[str, list[_Instruction]]]:
    """The calls that depend on an argument. A socketpair of streams cannot be turned to an address, as others can."""
    yield "clone", _refused_if_bits(0, _NEW_NAMESPACES)
    yield "socketpair", _refused_unless(1, (_SOCK_STREAM,), mask=_SOCK_TYPE_MASK)
    yield "prlimit64", _refused_unless(0, (0,))  # of itself only
    yield "prctl", _refused_if(0, (_SET_DUMPABLE,))  # it hides the open files of a process from its user
    yield "ioctl", _refused_if(1, (*_PUSH_INPUT, *(_SET_FILE_FLAGS if rules.shares_user else ())))
    if not rules.landlock:  # within a network of its own
        yield "socket", _refused_unless(0, (_AF_INET, _AF_INET6))
    yield "setsockopt", _refused_if(2, _SET_BUFFERS)  # of any level: nothing that programs need has these numbers
    yield "fcntl", _refused_if(1, (_SET_PIPE_SIZE, *(_SET_OWNER_OF_SIGNALS if rules.bare_signals else ())))


def _refused_if_bits(argument: int, bits: int) -> list[_Instruction]:
    return [_argument(argument), (_JUMP_BITS, 0, 1, bits), *_refuse_or_allow()]


def _refused_unless(argument: int, values: tuple[int, ...], mask: int = 0xFFFF_FFFF) -> list[_Instruction]:
    jumps = [(_JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_argument(argument), (_AND, 0, 0, mask), *jumps, *_refuse_or_allow()]


def _refused_if(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    jumps = [(_JUMP_EQUAL, len(values) - 1 - place, int(place == len(values) - 1), v) for place, v in enumerate(values)]
    return [_argument(argument), *jumps, *_refuse_or_allow()]


def _argument(index: int) -> _Instruction:
    """Load the low half of an argument: the kernel itself reads no more of those that are tested."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * index)


def _refuse_or_allow() -> list[_Instruction]:
    return [(_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
