"""A server of the SDK's that tests start: over stdio or, with the argument http, over HTTP on loopback."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Literal

import uvicorn
from mcp.server import MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent

server = MCPServer("notes")
NOTES: list[str] = []


@server.tool()
def add_note(text: str, place: Literal["first", "last"] = "last") -> str:
    """Keeps a note. It is there for as long as the server is."""
    NOTES.insert(0 if place == "first" else len(NOTES), text)
    return f"kept {len(NOTES)}"


@server.tool()
def read_notes() -> str:
    """Reads all notes."""
    return "\n".join(NOTES) or "none"


@server.tool()
def execute_code(code: str) -> str:
    """Bears the name of a tool of Shoestring's own."""
    return f"not run: {code}"


@server.tool()
def surroundings() -> str:
    """Tells the environment, the folder and the number of this process."""
    variables = "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))
    return f"{variables}\ncwd={Path.cwd()}\npid={os.getpid()}"


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("the note is lost")


@server.tool()
def picture() -> CallToolResult:
    """Gives a picture with words beside it."""
    image = ImageContent(data="aGVsbG8=", mime_type="image/png")
    return CallToolResult(content=[TextContent(text="a picture:"), image])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        listening = socket.create_server(("127.0.0.1", 0))
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run([listening])
    else:
        server.run("stdio")
