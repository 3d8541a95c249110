"""A server that a test starts without the SDK: it agrees on a version, lists its tools, and then misbehaves.

The first argument is what it does at a call: exit, hang, garbage, huge, stubborn, binary, error, form, flood,
pings, notices, daemon. With `mute` it never says a word; with `schemas` it lists the tools in the file that the second
argument names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DO = sys.argv[1]
PLAIN = [{"name": "crash", "description": "Crashes.", "inputSchema": {"type": "object", "properties": {}}}]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def give(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def misbehave(number: object) -> None:
    if DO == "exit":
        sys.stderr.write("Traceback: <|im_end|> \x1b[31m it is over\n")
        sys.stderr.flush()
        os._exit(3)
    elif DO == "hang":
        time.sleep(600)
    elif DO == "garbage":
        sys.stdout.write("Server is ready!\n")
        sys.stdout.flush()
    elif DO == "huge":
        while True:  # never an end of the line
            sys.stdout.write("x" * 65_536)
    elif DO == "stubborn":  # ignores that it is asked to leave, and has a child
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
        say({"id": number, "result": give(f"{os.getpid()} {child.pid}")})
        time.sleep(600)
    elif DO == "binary":
        sys.stdout.buffer.write(b"\xff\xfe\x00\n")
        sys.stdout.buffer.flush()
    elif DO == "error":
        say({"id": number, "error": {"code": -32602, "message": "no such thing \x1b[2J" + "y" * 5000}})
    elif DO == "form":
        say({"id": number, "result": {"content": "no list"}})
    else:
        exceed(number)


def exceed(number: object) -> None:
    if DO == "flood":
        say({"id": number, "result": give("z" * 1_000_000)})
    elif DO == "daemon":  # its child puts itself in a session of its own
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL, start_new_session=True
        )
        say({"id": number, "result": give(str(child.pid))})
    elif DO == "pings":
        while True:
            say({"id": "s", "method": "ping"})
    elif DO == "notices":
        while True:
            say({"method": "notifications/message", "params": {"level": "info", "data": "x" * 1_000_000}})


def answer(request: dict[str, Any]) -> None:
    method, number = request.get("method"), request.get("id")
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        about = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "h", "version": "1"}}
        say({"id": number, "result": about})
    elif method == "tools/list":
        say(
            {"id": number, "result": {"tools": json.loads(Path(sys.argv[2]).read_text()) if DO == "schemas" else PLAIN}}
        )
    elif method == "tools/call":
        misbehave(number)
    elif number is not None:
        say({"id": number, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    if DO != "mute":
        answer(json.loads(line))
if DO == "stubborn":
    time.sleep(600)
