"""MCP servers of a harness without Ray: the connections live in its own process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from noetic_ray.mcp.connection import Connection
from noetic_ray.mcp.port import unknown_client
from noetic_ray.mcp.servers import McpServer

__all__ = ["LocalMcp"]


class LocalMcp:
    """An `McpPort` on connections of its own, all in one event loop.

    A server is started, and the SDK imported, by the first use. The connections live in `loop`;
    `aclose` runs there too, calls may come from anywhere.
    """

    def __init__(self, servers: Mapping[str, McpServer], loop: asyncio.AbstractEventLoop) -> None:
        self._servers = dict(servers)
        self._loop = loop
        self._connections: dict[str, list[_Counted]] = {}
        self._turns = itertools.count()

    @property
    def clients(self) -> Sequence[str]:
        """The names the servers were given."""
        return tuple(self._servers)

    async def call(self, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """See `McpPort.call`."""
        if client not in self._servers:
            raise unknown_client(client, self.clients)
        asked = self._call(client, method, arguments)
        if asyncio.get_running_loop() is self._loop:
            return await asked
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._loop))

    async def aclose(self) -> None:
        """End every connection and the processes behind them."""
        held = [each.connection for some in self._connections.values() for each in some]
        await asyncio.gather(*[connection.aclose() for connection in held])

    async def _call(self, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
        chosen = self._least_busy(client)
        chosen.busy += 1
        try:
            return await chosen.connection.call(method, arguments)
        finally:
            chosen.busy -= 1

    def _least_busy(self, client: str) -> _Counted:
        held = self._connections.get(client)
        if held is None:
            server = self._servers[client]
            held = [_Counted(Connection(client, server)) for _ in range(server.replicas)]
            self._connections[client] = held
        first = next(self._turns) % len(held)
        return min(held[first:] + held[:first], key=lambda each: each.busy)


class _Counted:
    """A connection and how many requests are under way on it."""

    __slots__ = ("busy", "connection")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.busy = 0
