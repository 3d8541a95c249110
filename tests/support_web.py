"""A little internet for the tests of tools that fetch: names that a stub resolver knows, and servers on loopback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

from agent.egress.fetch import Reach
from agent.egress.intranet import Intranet
from tests.support_wire import Answer, Seen, Wire, http_reply


class Names:
    """A resolver that knows some names; the n-th lookup of a name gives its n-th answer, and the last one ever after.

    `asked` holds every lookup. Addresses in any spelling are read by the machine, as they are without a stub.
    """

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self._names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        from agent.egress.addresses import system_resolver  # noqa: PLC0415  used for odd spellings alone

        self.asked.append(host)
        if host not in self._names:
            return system_resolver(host, port)
        answers = self._names[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def reach(wire: Wire, *hosts: str, resolver: Callable[[str, int], Sequence[str]] | None = None) -> Reach:
    """May go to the server under each of the names, and to the public internet."""
    named = ",".join(f"{host}:{wire.port}" for host in hosts or ("127.0.0.1",))
    names = {host.replace(".", "_"): [["127.0.0.1"]] for host in hosts}
    return Reach(Intranet.of(named), resolver or Names(**names))


def site(pages: Mapping[str, bytes]) -> Answer:
    """An Answer that knows some paths, each with a whole reply; 404 for any other."""

    def answer(request: Seen) -> Sequence[bytes]:
        return [pages.get(unquote(request.path), http_reply("nothing here", status=404, content_type="text/plain"))]

    return answer


def redirect(location: str, status: int = 302) -> bytes:
    """A reply that sends on."""
    return f"HTTP/1.1 {status} Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


def encoded(body: bytes, encoding: str, content_type: str = "text/html") -> bytes:
    """A reply whose body is said to be packed."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Encoding: {encoding}\r\n"
    return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
