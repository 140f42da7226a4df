"""A search engine on the SDK: five articles a query, or a failure for the query `down`."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("search_engine")


@server.tool()
def search(query: str, limit: int) -> list[str]:
    """Find articles."""
    if query == "down":
        raise ToolError("the index is down")
    return [f"{query} {number}" for number in range(limit)]


if __name__ == "__main__":
    server.run("stdio")
