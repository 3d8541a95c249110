"""The MCP servers of a person's list, offered as the toolsets mcp:NAME. The list is read where one is asked for."""

from __future__ import annotations

import functools

from agent.config import Settings, environment_of_programs
from agent.tools.mcp.config import ServerFile, read_servers
from agent.tools.mcp.tools import McpToolsets
from agent.tools.registry import TOOLSET_FAMILIES
from cli.outcome import say


def offer_mcp(settings: Settings) -> None:
    """From here on toolset("mcp:NAME") starts that server and has its tools. What cannot be offered is said aloud."""

    @functools.cache
    def servers() -> ServerFile:
        return read_servers(settings.mcp_config)

    TOOLSET_FAMILIES["mcp"] = McpToolsets(servers, environment_of_programs(), say, settings.secret_values()).tools
