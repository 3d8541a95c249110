"""main.py mcp-serve: Shoestring's own tools for another program, over the Model Context Protocol.

The client is a program that the person started, and what it asks for may be a model's idea: so the policy of a run
holds, and since nobody can be asked here, what would be asked about is refused. What speaks the protocol
stands in cli/mcp_protocol.py.
"""

from __future__ import annotations

import ipaddress
import re
from argparse import Namespace
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.config import load_settings
from agent.errors import ShoestringError, UsageError
from agent.guards.approvals import Policy, check_rules, parse_rules, rules_of_run
from agent.sandbox.ladder import Isolation
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.mcp.tools import lacks
from agent.tools.registry import ToolRegistry, toolset
from cli.compose import web_access
from cli.outcome import OK, say
from cli.plugins import load_plugins
from evals.workspaces import fresh_workspace

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:]{2,39})\]|([A-Za-z0-9.-]{1,253})):([0-9]{1,5})")


@dataclass(frozen=True)
class Address:
    """Where to serve: an address of this machine's loopback, as sockets take it."""

    host: str
    port: int


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


def mcp_serve(args: Namespace) -> int:
    """Serve until the client ends it.

    Raises:
        UsageError: an address, a rule, a toolset or a folder that cannot be; or the SDK is not installed.
    """
    settings = load_settings()
    load_plugins(args.plugin)
    address = None if args.http is None else loopback_address(args.http)
    chosen = toolset(args.toolset or settings.toolset)
    given = parse_rules(args.approve or ())
    check_rules(given, [tool.name for tool in chosen])
    isolated = settings.sandbox != "external"  # where nothing isolates, execute_code refuses by itself
    rules = rules_of_run(given, chosen, own_workspace=args.workspace is None, isolated=isolated)
    with ExitStack() as stack:
        folder = stack.enter_context(fresh_workspace({})) if args.workspace is None else _folder(args.workspace)
        context = ToolContext(
            search_provider=settings.search_provider,
            secrets=settings.secret_values(),
            web=web_access(settings),
            workspace=folder,
            persons_folder=args.workspace is not None,
            isolation=Isolation(settings.sandbox, say),
        )
        tools = stack.enter_context(closing(ToolRegistry(chosen, context)))
        _serve(Offer(tools, Policy(rules)), address)
    return OK


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


def _folder(text: str) -> Path:
    try:
        folder = Path(text).resolve(strict=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"--workspace {text[:200]!a}: cannot be used ({error})") from None
    if not folder.is_dir():
        raise UsageError(f"--workspace {text[:200]!a}: is no folder")
    return folder


def _serve(offer: Offer, address: Address | None) -> None:
    try:
        from cli.mcp_protocol import serve  # noqa: PLC0415  the SDK is an extra, and a heavy one
    except ModuleNotFoundError as error:
        raise UsageError(lacks("mcp-serve", error)) from None
    serve(offer, address)
