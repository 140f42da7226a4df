"""A server for the measurements, written with the SDK: it echoes, at once or after a while."""

from __future__ import annotations

import asyncio

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")


@server.tool()
async def echo(message: str) -> dict[str, str]:
    """Give the message back."""
    return {"echo": message}


@server.tool()
async def slow(seconds: float) -> str:
    """Answer after a while."""
    await asyncio.sleep(seconds)
    return "done"


if __name__ == "__main__":
    server.run()
