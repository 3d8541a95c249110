"""Pages served on loopback under names that a resolver of the test's own knows, and a record of who asked for what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]
Route = Answer | Callable[[], Answer]


def html(body: str, title: str = "") -> Answer:
    return 200, {"Content-Type": "text/html; charset=utf-8"}, f"<title>{title}</title>{body}".encode()


@dataclass
class Site:
    """A server on loopback. `asked` are the paths that were asked for, with the body where there was one."""

    port: int
    routes: dict[str, Route] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def site() -> Iterator[Site]:
    """A site for as long as the test runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            served.asked.append(self.path)
            route = served.routes.get(path, (404, {"Content-Type": "text/html"}, b"<p>There is nothing here."))
            status, headers, body = route() if callable(route) else route
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """A browser that was ended hangs up."""

    server = Server(("127.0.0.1", 0), Handler)
    served = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
