"""main.py mcp-serve: Shoestring's own tools for another program, over the Model Context Protocol.

The client is a program that the person started, and what it asks for may be a model's idea: so the policy of a run
holds, and since nobody can be asked here, what would be asked about is refused. What speaks the protocol
stands in cli/mcp_protocol.py.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack, closing
from pathlib import Path

from agent.config import load_settings
from agent.errors import UsageError
from agent.guards.approvals import Policy, check_rules, parse_rules, rules_of_run
from agent.sandbox.ladder import Isolation
from agent.sandbox.leftovers import sweep
from agent.tools.base import ToolContext
from agent.tools.mcp.tools import lacks
from agent.tools.registry import ToolRegistry, toolset
from cli.compose import web_access
from cli.mcp_offer import Address, Offer, Sessions, loopback_address
from cli.outcome import OK, say
from cli.plugins import load_plugins
from evals.workspaces import fresh_workspace


def mcp_serve(args: Namespace) -> int:
    """Serve until the client ends it.

    Raises:
        UsageError: an address, a rule, a toolset or a folder that cannot be; or the SDK is not installed.
    """
    settings = load_settings(**({} if args.sandbox is None else {"sandbox": args.sandbox}))
    load_plugins(args.plugin)
    address = None if args.http is None else loopback_address(args.http)
    chosen = toolset(args.toolset or settings.toolset)
    given = parse_rules(args.approve or ())
    check_rules(given, [tool.name for tool in chosen])
    isolated = settings.sandbox != "external"  # where nothing isolates, execute_code refuses by itself
    rules = rules_of_run(given, chosen, own_workspace=args.workspace is None, isolated=isolated)
    sweep()
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
    serve(offer, address, Sessions())
