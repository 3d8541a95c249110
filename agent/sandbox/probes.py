"""The self-test of a rung: attacks that a sandbox must hold against, tried from within. A rung is used only where all
of them fail. They are made so that one which succeeds does no harm."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.base import MIB, Command, Limits, Sandbox, SandboxError
from agent.sandbox.leftovers import prefix
from agent.sandbox.readable import python_for

ATTACKER = Path(__file__).with_name("attacker.py")
_PROCESSES = 24
_MEMORY = 96 * MIB
_SECONDS = 10.0
_BRIEF = (0.5, 5.0)  # seconds for a program that must be ended; the longer one where the machine is slow
_READY = b"ready"


@dataclass(frozen=True)
class Probe:
    """One attack: whether the sandbox held, and what was seen. `disturbed`: the machine ran short meanwhile, so that
    this says nothing of the next time."""

    name: str
    held: bool
    detail: str = ""
    disturbed: bool = False


def self_test(sandbox: Sandbox) -> tuple[Probe, ...]:
    """Try every attack, within about a second."""
    attacks: tuple[Callable[[Sandbox], list[Probe]], ...] = (_reaching_out, _outliving, _memory_of_many)
    with ThreadPoolExecutor(len(attacks), thread_name_prefix="probe") as pool:
        return tuple(probe for found in pool.map(lambda attack: _tried(attack, sandbox), attacks) for probe in found)


def _tried(attack: Callable[[Sandbox], list[Probe]], sandbox: Sandbox) -> list[Probe]:
    try:
        return attack(sandbox)
    except SandboxError as error:
        return [Probe("start", held=False, detail=str(error), disturbed=error.error_type == "machine_busy")]
    except OSError as error:
        return [Probe("start", held=False, detail=str(error))]


def _reaching_out(sandbox: Sandbox) -> list[Probe]:
    """Files, network, processes and the environment of the machine, and the number of processes."""
    python, files = python_for(sandbox)
    with _canaries() as canaries:
        limits = Limits(seconds=_SECONDS, processes=_PROCESSES)
        argv = (str(python), "-I", "-S", "-c", ATTACKER.read_text("utf-8"), json.dumps(canaries.told))
        done = sandbox.run(Command(argv, readable=files, limits=limits))
        seen = canaries.seen()
    try:
        reached: dict[str, str | None] = json.loads(done.output)
    except ValueError:
        words = done.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return [
            Probe("start", held=False, detail=f"the test program ended with {done.ended} {done.code}: {words[:200]}")
        ]
    return [
        Probe(name, held=not (what or name in seen), detail=what or seen.get(name, ""))
        for name, what in reached.items()
    ]


def _outliving(sandbox: Sandbox) -> list[Probe]:
    """A daemon that leaves its group and its session, and would go on after the time is up."""
    marker = f"9{secrets.randbelow(10**12):012}"
    code = f"(setsid sleep {marker} >/dev/null 2>&1 || sleep {marker} >/dev/null 2>&1) & echo ready; sleep {marker}"
    done = sandbox.run(Command(("/bin/sh", "-c", code), limits=Limits(seconds=_BRIEF[0])))
    if _READY not in done.output:
        done = sandbox.run(Command(("/bin/sh", "-c", code), limits=Limits(seconds=_BRIEF[1])))
    left = _running(marker)
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, 9)
    held = done.ended == "timeout" and _READY in done.output and not left
    return [Probe("daemon", held, "" if held else f"ended with {done.ended}; {len(left)} processes outlived it")]


def _memory_of_many(sandbox: Sandbox) -> list[Probe]:
    """Processes of which each keeps its limit, and all together do not."""
    python, files = python_for(sandbox)
    half = _MEMORY // 2
    code = f"import os, time\nfor _ in range(3):\n  if os.fork() == 0: x = bytearray({half}); time.sleep(60)\nos.wait()"
    limits = Limits(seconds=_SECONDS, memory=_MEMORY)
    done = sandbox.run(Command((str(python), "-I", "-S", "-c", code), readable=files, limits=limits))
    return [Probe("memory", done.ended == "memory", "" if done.ended == "memory" else f"ended with {done.ended}")]


@dataclass(frozen=True)
class _Canaries:
    """What stands outside to be reached. `told` is what the attacker knows of it."""

    told: dict[str, str | int]
    sockets: dict[str, socket.socket]
    victim: subprocess.Popen[bytes]
    folder: Path

    def seen(self) -> dict[str, str]:
        """What arrived, by the name of the probe."""
        seen: dict[str, str] = {}
        for name, listener in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                if name == "udp":
                    listener.recv(1)
                else:
                    listener.accept()[0].close()
                seen[name] = "something arrived"
        if self.victim.poll() is not None:
            seen["signals"] = "a process outside was killed"
        if {path.name for path in self.folder.iterdir()} != {"canary", "socket"}:
            seen["writing"] = "a file was made outside"
        return seen


@contextmanager
def _canaries() -> Iterator[_Canaries]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix("probe")))).resolve()
        folder.chmod(0o777)  # only the sandbox may be what keeps a program from it
        canary, path = folder / "canary", folder / "socket"
        canary.write_text("canary", encoding="ascii")
        canary.chmod(0o666)
        sockets = {
            "tcp": socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "unix": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        }
        for name, listener in sockets.items():
            stack.enter_context(listener)
            listener.bind(str(path) if name == "unix" else ("127.0.0.1", 0))
            if name != "udp":
                listener.listen()
            listener.setblocking(False)
        path.chmod(0o777)
        victim = stack.enter_context(subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE))  # ends with us
        stack.callback(victim.kill)
        told: dict[str, str | int] = {
            "canary": str(canary),
            "socket": str(path),
            "tcp": sockets["tcp"].getsockname()[1],
            "udp": sockets["udp"].getsockname()[1],
            "victim": victim.pid,
            "harness": os.getpid(),
            "user": os.geteuid(),
            "processes": 3 * _PROCESSES,
        }
        yield _Canaries(told, sockets, victim, folder)


def _running(marker: str) -> list[int]:
    """The processes with this word in their command line."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and marker.encode() in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found
