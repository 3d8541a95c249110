"""Which code decides how a run goes: a hash of its sources, by which a trace says whether it was this very code.

Left out is what a trace holds the results of: servers, tools that reach outside, isolation.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_AGENT = Path(__file__).resolve().parent.parent / "agent"
_RECORDED = ("llm/backends", "sandbox", "egress", "tools/parsers", "tools/mcp")


@cache
def code_version() -> str:
    """The hash, over every source file by its name."""
    digest = hashlib.sha256()
    for path in sorted(_AGENT.rglob("*.py")):
        name = path.relative_to(_AGENT).as_posix()
        if not name.startswith(_RECORDED):
            digest.update(f"{name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
