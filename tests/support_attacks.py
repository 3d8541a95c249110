"""Where an attack takes place: a workspace among secrets, a little internet on loopback, traps that tell of harm.

A case is one line of the file; support_attack_fixtures.py makes its world.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from agent.egress.fetch import Reach
from agent.egress.intranet import Intranet
from agent.tools.base import ToolContext, WebAccess
from tests.support_pages import Answer, Site
from tests.support_web import Names

SECRET = "the secret outside"
KEY = "sk-live-CANARY"
CANARY = "canary-of-the-environment"
HARBOUR = "The harbour closes at nine."


@dataclass
class Case:
    """One line of the file, with the values that it says shortly (`$repeat`, `$concat`) written out."""

    id: str
    tool: str
    args: dict[str, Any]
    must: str
    why: str = ""
    fixture: str = ""

    @classmethod
    def of(cls, line: dict[str, Any]) -> Case:
        return cls(**{**line, "args": whole(line["args"])})


def whole(value: Any) -> Any:
    """A value in which `$repeat` and `$concat` are carried out."""
    if isinstance(value, list):
        return [whole(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$repeat"}:
        text, times = value["$repeat"]
        return whole(text) * times
    if value.keys() == {"$concat"}:
        return "".join(map(whole, value["$concat"]))
    return {name: whole(item) for name, item in value.items()}


@dataclass
class World:
    """Where one attack takes place. Everything that must not be touched stands in `folder`, beside the workspace."""

    folder: Path
    case: Case
    site: Site
    trap: Trap
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)
    lookups: Names = field(default_factory=Names)
    kills: int = 0
    swapped: bool = False
    understood: bool = True
    more: ExitStack = field(default_factory=ExitStack)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def address(self, url: str) -> str:
        """An address of the little internet with the port that it has on this machine."""
        found = re.match(r"(?i)https?://([^/?#@:\\\\]+)(?=[/?#]|$)", url)
        if found is None or not (found[1].endswith(".test") or found[1] in self.allowed):
            return url
        return f"{url[: found.end()]}:{self.site.port}{url[found.end() :]}"

    def inside(self, url: str) -> str:
        """An address of this machine with the port of the trap."""
        return re.sub(r"^(http://127\.0\.0\.1)(?::\d+)?", rf"\1:{self.trap.port}", self.address(url))

    def serve(self, page: Answer) -> None:
        """Give this page wherever the case asks."""
        self.site.routes.clear()
        asked = str(self.case.args.get("url", "")).replace("\\", "/")
        for path in (urlsplit(asked).path, f"/{quote(str(self.case.args.get('location', '')), safe='')}", "/"):
            self.site.routes[path] = page

    def context(self) -> ToolContext:
        reach = Reach(Intranet.of(",".join(f"{host}:{self.site.port}" for host in self.allowed)), self.lookups)
        weather = f"http://127.0.0.1:{self.site.port}"
        return ToolContext(
            corpus=self.folder / "corpus",
            workspace=self.workspace,
            persons_folder="hook" in self.case.id,  # what other programs would run is a matter of a person's own folder
            secrets=(KEY,),
            web=WebAccess(reach=reach, weather_url=weather),
        )


# -- traps ------------------------------------------------------------------------------------------------------------


@dataclass
class Trap:
    """Sockets of this machine that nobody may reach: TCP and UDP on one port, and one with a path."""

    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    path: str

    @property
    def port(self) -> int:
        return int(self.tcp.getsockname()[1])

    def reached(self) -> list[str]:
        """Which of them somebody reached."""
        found = []
        for name, trap in (("tcp", self.tcp), ("unix", self.unix)):
            with suppress(BlockingIOError):
                trap.accept()[0].close()
                found.append(f"the {name} socket was connected to")
        with suppress(BlockingIOError):
            self.udp.recv(1)
            found.append("a datagram came")
        return found


@contextmanager
def trap(folder: Path) -> Iterator[Trap]:
    tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    unix = socket.socket(socket.AF_UNIX)
    with tcp, udp, unix:
        udp.bind(tcp.getsockname())
        path = folder / "s"
        unix.bind(str(path))
        unix.listen()
        for each in (tcp, udp, unix):
            each.setblocking(False)
        path.chmod(0o777)  # a program of any user must be kept from it by its sandbox alone
        yield Trap(tcp, udp, unix, str(path))


def weather_asked(made: World) -> list[str]:
    """The requests to the weather server that are not one segment of a path for the case's location."""
    location = str(made.case.args.get("location", ""))
    return [
        f"asked for {path}"
        for path in made.site.asked
        if urlsplit(path).path.count("/") != 1
        or unquote(urlsplit(path).path[1:]) != location
        or urlsplit(path).query != "format=j1"
    ]
