"""The HTTP client that an MCP server at an address is spoken to with: no proxy, no cookie, no answer without an end.

The address is the person's own choice, so it may be of this machine or of their network. The SDK follows redirects
within that one origin alone. Imported on first use: it needs the SDK.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx2

MAX_BODY_BYTES = 4 << 20  # of one answer; a stream of events is one answer
_CONNECT_SECONDS = 10.0


def bounded_client(headers: Mapping[str, str], seconds: float) -> httpx2.AsyncClient:
    """A client that waits at most so many seconds for the next bytes. It asks for nothing compressed."""
    timeout = httpx2.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS))
    own = {**headers, "Accept-Encoding": "identity"}
    return httpx2.AsyncClient(headers=own, timeout=timeout, transport=_Bounded(), trust_env=False)


class _Bounded(httpx2.AsyncBaseTransport):
    """Requests as ever; answers cut off with an error where they are too long, or compressed all the same."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101  the transport is asynchronous
        response.stream = _BoundedStream(response.stream)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.stream.aclose()
            raise httpx2.DecodingError("the server sent a compressed answer that was not asked for", request=request)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._inner:
            read += len(chunk)
            if read > MAX_BODY_BYTES:
                raise httpx2.ReadError(f"the answer is longer than {MAX_BODY_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
