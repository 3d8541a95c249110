"""What main.py mcp-serve offers, to whom, and where: tools under a policy, at an address of this machine's own."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from agent.errors import ShoestringError, UsageError
from agent.guards.approvals import Policy
from agent.state import ToolCall, ToolResult
from agent.tools.registry import ToolRegistry

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:]{2,39})\]|([A-Za-z0-9.-]{1,253})):([0-9]{1,5})")


@dataclass(frozen=True)
class Address:
    """Where to serve: an address of this machine's loopback, as sockets take it."""

    host: str
    port: int


@dataclass(frozen=True)
class Sessions:
    """Clients over HTTP: how many may be known at a time, and for how long one that neither asks nor listens."""

    most: int = 100
    idle_seconds: float = 600.0


@dataclass(frozen=True)
class Offer:
    """The tools that are offered, and what is done with a call of each."""

    tools: ToolRegistry
    policy: Policy

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """The result of one call, or why there is none. Raises nothing but our own bugs."""
        effect = self.tools.effect(name)
        permission = self.policy.permission(name, effect) if effect else "allow"  # an unknown name is told as such
        if permission != "allow":
            way = f"start mcp-serve with --approve {name}=allow" if permission == "ask" else "it is forbidden here"
            message = f"{name} is not run: nobody can be asked about it ({way})."
            return ToolResult(
                success=False, error=message, error_type="forbidden" if permission == "deny" else "denied"
            )
        try:
            return self.tools.execute(ToolCall(name=name, arguments=arguments))
        except ShoestringError as error:  # what the person set up for the tool cannot be used
            return ToolResult(success=False, error=str(error), error_type="unusable")


def loopback_address(text: str) -> Address:
    """The address in a text like 127.0.0.1:8000 or [::1]:8000.

    Raises:
        UsageError: another form, or an address that other machines may reach.
    """
    found = _ADDRESS.fullmatch(text)
    if not found or int(found[3]) > 65_535:
        raise UsageError(f"--http: {text[:60]!a} is no address; write it like 127.0.0.1:8000")
    host = found[1] or found[2]
    if host.lower() == "localhost":
        host = "127.0.0.1"
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise UsageError(
            f"--http: {host[:60]} is not of this machine's loopback; tools are offered on 127.0.0.1 or ::1"
        )
    return Address(host, int(found[3]))
