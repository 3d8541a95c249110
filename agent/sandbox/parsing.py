"""Parsers of foreign bytes, run inside: one of our own modules, a JSON object in and a JSON value out.

The module has a function `parse(request, data)`: `request` is the object, `data` the foreign bytes; it returns any JSON
value. It may import the packages of this project's environment, sees no file but those, and has no network. Import
little in it: it starts anew for every call. Whether an optional package is there is to be asked outside, beforehand.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from agent.sandbox.base import Command, Limits, Sandbox, SandboxError
from agent.sandbox.readable import PROJECT, base_python, packages, project_files

log = logging.getLogger("shoestring")

PARSER_LIMITS = Limits(seconds=10.0, output=1 << 20)
_WORDS = {
    "timeout": ("timeout", "took too long"),
    "memory": ("memory", "needs too much memory"),
    "output": ("too_large", "gives too much text"),
    "disk": ("disk", "wrote too much"),
    "files": ("disk", "wrote too many files"),
}
_START = (
    "import site, sys; [site.addsitedir(folder) for folder in sys.argv[3:]]; sys.path.insert(0, sys.argv[1]);"
    " from agent.sandbox.parser_main import main; main(sys.argv[2])"
)


def parsed(sandbox: Sandbox, module: str, request: dict[str, Any], data: bytes, limits: Limits = PARSER_LIMITS) -> Any:
    """What `parse` of a module of ours makes of foreign bytes. It is a hostile program's answer: check its form.

    Raises:
        SandboxError: no_sandbox; timeout, memory or too_large, what it took was too much; tool_crashed, the bytes
            brought it down; machine_busy, it was ended for what was not its doing.
    """
    files = project_files()
    if not all(sandbox.can_read(path) for path in files):
        raise SandboxError("no_sandbox", "this project, or its Python, stands in a folder that only root may enter")
    head = json.dumps(request).encode() + b"\n"
    argv = (str(base_python()), "-I", "-B", "-X", "utf8", "-c", _START, str(PROJECT), module, *map(str, packages()))
    done = sandbox.run(Command(argv, stdin=head + data, readable=files, limits=limits))
    if done.ended != "exit":
        kind, words = _WORDS[done.ended]
        raise SandboxError(kind, f"reading it {words}")
    if done.code != 0:
        log.debug("%s ended with %s: %r", module, done.code, done.output[-1000:])
        is_memory = done.output.rstrip().endswith(b"MemoryError")
        kind = "memory" if is_memory else "tool_crashed"
        raise SandboxError(kind, "reading it needs too much memory" if is_memory else "it cannot be read: it is broken")
    try:
        return json.loads(done.output.rpartition(b"\n")[2])
    except ValueError:
        raise SandboxError("tool_crashed", "it cannot be read: it is broken") from None
