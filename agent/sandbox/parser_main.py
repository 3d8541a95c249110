"""What runs inside for `parsing.parsed`: reads the request and the bytes, calls the module, prints the answer last."""

from __future__ import annotations

import importlib
import json
import sys


def main(module: str) -> None:
    """Parse standard input with a module of ours. What libraries print stands before the answer, which is one line."""
    request = json.loads(sys.stdin.buffer.readline())
    answer = importlib.import_module(module).parse(request, sys.stdin.buffer.read())
    sys.stdout.flush()
    sys.stderr.flush()
    sys.stdout.write("\n" + json.dumps(answer))
