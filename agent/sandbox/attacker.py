"""A program that is run inside, never imported: it tries to get out, and prints as JSON what each attempt reached, null
where it failed. Any Python 3 can run it. Nothing it does would do harm if it succeeded."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any


def main(told: dict[str, Any]) -> None:
    """Try everything, one after the other."""
    print(json.dumps({name: attempted(attempt, told) for name, attempt in ATTEMPTS.items()}))  # noqa: T201 its answer


def attempted(attempt: Any, told: dict[str, Any]) -> str | None:
    """What an attempt reached; None where the system refused."""
    try:
        reached: str | None = attempt(told)
    except OSError:
        return None
    return reached


def reading(told: dict[str, Any]) -> str:
    """A file outside."""
    with open(told["canary"], "rb") as file:  # noqa: PTH123 as small as can be
        file.read()
    return "a file outside was read"


def writing(told: dict[str, Any]) -> str:
    """A new file outside."""
    with open(told["canary"] + "-made", "wb"):  # noqa: PTH123 as above
        return "a file was made outside"


def tcp(told: dict[str, Any]) -> str:
    """A server on the loopback."""
    with socket.create_connection(("127.0.0.1", told["tcp"]), timeout=1):
        return "a server was reached"


def udp(told: dict[str, Any]) -> None:
    """A datagram to the loopback: whether it arrived is seen outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", ("127.0.0.1", told["udp"]))


def unix(told: dict[str, Any]) -> str:
    """A socket with a path."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(told["socket"])
        return "a socket with a path was reached"


def signals(told: dict[str, Any]) -> None:
    """A process outside: whether it was killed is seen there."""
    os.kill(told["victim"], signal.SIGKILL)


def environment(told: dict[str, Any]) -> str:
    """The variables of the harness."""
    with open(f"/proc/{told['harness']}/environ", "rb") as file:  # noqa: PTH123 as above
        file.read()
    return "the harness's environment was read"


def connections(told: dict[str, Any]) -> str | None:
    """What the kernel tells of the machine's connections: the server on the loopback stands there."""
    for process in ("self", "thread-self", told["harness"]):
        try:
            with open(f"/proc/{process}/net/tcp", encoding="ascii") as file:  # noqa: PTH123 as above
                if f":{told['tcp']:04X} " in file.read():
                    return "the machine's connections were listed"
        except OSError:
            continue
    return None


def user(told: dict[str, Any]) -> str | None:
    """Root, or a capability."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123 as above
        lines = dict(line.strip().split(":", 1) for line in file)
    if told["user"] == 0 and os.getuid() == 0:
        return "it runs as root"
    return "it has capabilities" if int(lines["CapEff"], 16) else None


def processes(told: dict[str, Any]) -> str | None:
    """More processes than are allowed."""
    made: list[int] = []
    try:
        while len(made) < told["processes"]:
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            made.append(child)
    except BlockingIOError:
        return None
    finally:
        for child in made:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"{len(made)} processes were made"


ATTEMPTS = {
    "reading": reading,
    "writing": writing,
    "tcp": tcp,
    "udp": udp,
    "unix": unix,
    "signals": signals,
    "environment": environment,
    "connections": connections,
    "user": user,
    "processes": processes,
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
