"""Recordings from a real Ollama: `fixtures/wire/exchanges.jsonl`, or a folder named by WIRE_EXCHANGES."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support_named import named_exchanges
from tests.support_wire import FIXTURES, Seen, chunk, chunked_head, http_reply


@dataclass(frozen=True)
class Recording:
    name: str
    request: dict[str, Any]
    response: str

    @property
    def parts(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case name, body."""
        head, _, body = self.response.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.split("\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(first.split()[1]), headers, body.encode()

    def answer(self, seen: Seen) -> Iterator[bytes]:
        """The recording; what a backend asks before is answered as the recorded server would have."""
        status, headers, body = self.parts
        if seen.path == "/api/version" != self.request["path"]:
            yield http_reply('{"version":"0.32.15"}')
        elif headers.get("transfer-encoding") == "chunked":
            yield chunked_head(status=status, content_type=headers["content-type"])
            yield from (chunk(line) for line in body.splitlines(keepends=True))
            yield chunk(b"")
        else:
            yield http_reply(
                b"" if seen.method == "HEAD" else body, status=status, content_type=headers.get("content-type", "")
            )


def _recordings() -> list[Recording]:
    requests = named_exchanges()
    if requests is not None:
        names = [path.name.removesuffix(".req.json") for path in requests]
        return [
            Recording(name, json.loads(path.read_text("utf-8")), _text(path.with_name(f"{name}.resp.txt")))
            for name, path in zip(names, requests, strict=True)
        ]
    lines = (FIXTURES / "exchanges.jsonl").read_text("utf-8").split("\n")
    return [Recording(**json.loads(line)) for line in lines if line]


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


RECORDINGS = {recording.name: recording for recording in _recordings()}
