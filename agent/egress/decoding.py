"""What a server packed, unpacked within a bound."""

from __future__ import annotations

import zlib
from email.message import Message

from agent.egress.faults import FetchError

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class Unpacker:
    """Takes a body's pieces as they come. Whatever a small piece would unpack to, no more than was asked for is made.

    Raises:
        FetchError: refused_encoding, for all but one layer of gzip or deflate.
    """

    def __init__(self, headers: Message) -> None:
        layers = _tokens(headers, "Content-Encoding")
        if len(layers) > 1 or not set(layers) <= {"gzip", "x-gzip", "deflate"}:
            raise FetchError("refused_encoding", "The page is packed in a way that is not unpacked here.")
        if _tokens(headers, "Transfer-Encoding") not in ([], ["chunked"]):
            raise FetchError("refused_encoding", "The page is sent in a way that is not read here.")
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB) if layers else None

    def unpack(self, piece: bytes, room: int) -> bytes:
        """At most `room` bytes (1 or more) of what the piece holds; what would be beyond them is dropped.

        Raises:
            FetchError: refused_encoding, it is not packed as the server says.
        """
        if self._stream is None:
            return piece[:room]
        try:
            return self._stream.decompress(piece, room)
        except zlib.error:
            raise FetchError("refused_encoding", "The page is not packed as its server says.") from None

    @property
    def is_whole(self) -> bool:
        """Whether what was unpacked so far may be all: a packed stream says where it ends."""
        return self._stream is None or self._stream.eof


def _tokens(headers: Message, name: str) -> list[str]:
    """The values of a header that lists some, in lower case; `identity` means nothing."""
    listed = ",".join(headers.get_all(name, [])).lower().split(",")
    return [token.strip() for token in listed if token.strip() not in ("", "identity")]
