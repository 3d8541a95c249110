"""Sockets that can be hung up from outside: `requests` knows a timeout for each read, and none for all of them.

This module imports `requests` and is itself imported only when the first request is made.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from agent.egress.strict_http import StrictResponse


class Watch:
    """Hangs up its call's connection when `seconds` are over, whatever the call is waiting for.

    `connected` turns true once a request may have left; `hung_up` once it was ended from here.
    """

    def __init__(self, seconds: float) -> None:
        self.connected = False
        self.hung_up = False
        self._ends = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self.hang_up)
        self._timer.daemon = True

    def __enter__(self) -> Watch:
        self._timer.start()
        self._token = _watch.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        _watch.reset(self._token)
        with self._lock:
            for sock in self._sockets:
                sock.close()
            self._sockets.clear()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._ends

    def seconds_left(self) -> float:
        """Time until the deadline; never 0, which a socket takes for "do not block"."""
        return max(0.001, self._ends - time.monotonic())

    def add(self, sock: socket.socket) -> None:
        """Watch a new connection, by a descriptor of our own: TLS takes the first one over."""
        with self._lock:
            self._sockets.append(sock.dup())
            if self.hung_up:
                self._shut()

    def hang_up(self) -> None:
        """End the call now: whoever waits on the connection wakes up. Harmless when there is none (any more)."""
        with self._lock:
            self.hung_up = True
            self._shut()

    def _shut(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # the other side was faster
                sock.shutdown(socket.SHUT_RDWR)


_watch: ContextVar[Watch] = ContextVar("_watch")


class _Http(HTTPConnection):
    response_class = StrictResponse

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        _watch.get().add(sock)
        return sock

    def connect(self) -> None:
        super().connect()
        _watch.get().connected = True


class _Https(HTTPSConnection):
    response_class = StrictResponse

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        _watch.get().add(sock)
        return sock

    def connect(self) -> None:
        super().connect()
        _watch.get().connected = True


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class WatchedAdapter(HTTPAdapter):
    """An adapter whose connections tell the Watch of the call that opens them."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """As in `requests`, with watched pools."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """As in `requests`, with watched pools; a SOCKS proxy has pools of its own, and is not watched."""
        manager = super().proxy_manager_for(proxy, **kwargs)
        if proxy.lower().startswith("http"):
            manager.pool_classes_by_scheme = _POOLS
        return manager
