"""Replies in HTTP as the standard library reads them, where it takes a hostile server's word for more than it should.

Whatever reads foreign replies by http.client, libraries above it included, reads them through this class.
"""

from __future__ import annotations

import io
import re
from http.client import HTTPException, HTTPResponse
from typing import Any

# Of all that frames a body: heads (of a reply and of the "100 Continue" before it), extensions of chunks, trailers.
# Node takes 16 KiB of them. The library's reading of a multipart type takes time by the square of its length: 0.7 s.
MAX_FRAME_BYTES = 32 * 1024
# The library reads a chunk's size as Python reads a number: -1 (all that ever comes), 0x5, 5_0.
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*((?:;[^\r\n]*)?)\r?\n")


class StrictResponse(HTTPResponse):
    """A reply whose frame has a bound, whose chunks have the size that they say, and whose cookies nobody reads.

    Raises:
        HTTPException: where it is read, it is not so.
    """

    fp: _Frame

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = _Frame(self.fp.detach())

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        for name in ("Set-Cookie", "Set-Cookie2"):  # `requests` has them read, and warns of a bug at what is no cookie
            del self.headers[name]

    def _read_next_chunk_size(self) -> int:
        """The library's own place for it, called before each chunk."""
        return self.fp.chunk_size()


class _Frame(io.BufferedReader):
    """What a server sends. By lines the library reads heads and trailers, and the rest by bytes."""

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(raw)
        self._left = MAX_FRAME_BYTES

    def readline(self, limit: int | None = -1, /) -> bytes:
        """A line of a head or a trailer. The library would take a carriage return inside it for the end of the head,
        and what follows for mail in parts."""
        line = super().readline(limit)
        self._count(len(line))
        if b"\r" in line.removesuffix(b"\n").removesuffix(b"\r"):
            raise HTTPException("a carriage return inside a line")
        return line

    def chunk_size(self) -> int:
        """The size that the next chunk says it has."""
        line = super().readline(MAX_FRAME_BYTES)
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise HTTPException("no chunk's size")
        self._count(len(size[2]))
        return int(size[1], 16)

    def _count(self, came: int) -> None:
        self._left -= came
        if self._left < 0:
            raise HTTPException("more around the body than a reply has")
