"""The toolset mcp:NAME: the tools of a Model Context Protocol server that a person lists in a file."""
