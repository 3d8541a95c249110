"""A terminal chat in which a local model has the tools of one MCP server: a program of yours, or one at an address.

    python scripts/mcp_chat.py --server "python my_server.py"
    python scripts/mcp_chat.py --server http://127.0.0.1:8000/mcp --model llama3.2:3b "What can you do?"

The rest of the line is that of `main.py chat`, which does all the work: you are asked before the model calls a tool,
the chat has one budget, and it leaves a trace. The program runs in your current folder, as it would if you started it.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, only scripts/ would be on it

from agent.errors import UsageError
from agent.tools.base import Effect
from cli.outcome import exit_code, prepare_process
from main import run

NAME = "server"


def list_of(server: str, effect: Effect) -> dict[str, Any]:
    """A list that holds this one server, as `--mcp-config` reads it.

    Raises:
        UsageError: no command can be read from the text.
    """
    if server.startswith(("http://", "https://")):
        return {"mcpServers": {NAME: {"url": server, "effect": effect}}}
    try:
        command, *arguments = shlex.split(server)
    except ValueError as error:
        raise UsageError(f"--server {server[:80]!a}: no command can be read from it ({error})") from None
    # The folder of the list is a temporary one: a command that is a path is one from here.
    program = str(Path(command).absolute()) if "/" in command else command
    about = {"command": program, "args": arguments, "cwd": str(Path.cwd()), "effect": effect}
    return {"mcpServers": {NAME: about}}


def chat(argv: Sequence[str]) -> int:
    """Talk, with the tools of the server that the arguments name; the exit code is the chat's.

    Raises:
        UsageError, BackendError, StoreError: as `main.py chat`.
    """
    parser = ArgumentParser(
        usage="mcp_chat.py --server COMMAND|URL [--effect EFFECT] [arguments of main.py chat]",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--server", required=True, metavar="COMMAND|URL", help="the program to start, or its address")
    parser.add_argument(
        "--effect",
        default="execute",
        choices=("read", "write", "execute", "network"),
        help="what its tools do, as far as you know: with read or network you are not asked (default: execute)",
    )
    known, of_chat = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mcp.json")
        config.write_text(json.dumps(list_of(known.server, known.effect)), encoding="utf-8")
        return run(["chat", "--toolset", f"mcp:{NAME}", "--mcp-config", str(config), *of_chat])


if __name__ == "__main__":
    prepare_process()
    sys.exit(exit_code(lambda: chat(sys.argv[1:])))
