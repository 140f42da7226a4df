"""A lasting connection to one MCP server: started by its first use, and again after a death."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from noetic_ray.errors import McpError
from noetic_ray.mcp.owner import Opened, Owner
from noetic_ray.mcp.requests import Request, encode, request
from noetic_ray.mcp.servers import McpServer

__all__ = ["Connection"]


class Connection:
    """Requests of many tasks of one event loop to one server.

    A server that dies fails what is in flight at once; nothing is sent a second time, and the
    next request starts the server again.
    """

    def __init__(self, client: str, server: McpServer) -> None:
        self._client = client
        self._server = server
        self._owner: Owner | None = None
        self._owners: set[Owner] = set()
        self._closed = False

    async def call(
        self, method: str, arguments: Mapping[str, Any], timeout: float | None = None
    ) -> Any:
        """Ask for one of the port's methods; returns the raw result.

        `timeout` in seconds is the server's own unless given, and does not count the time the
        server needs to start. Cancelling the await cancels the request at the server. Raises
        McpError, and ConfigError when the SDK is not installed.
        """
        return await self.call_encoded(method, encode(self._client, arguments), timeout)

    async def call_encoded(self, method: str, encoded: bytes, timeout: float | None = None) -> Any:
        """`call` with arguments that are JSON already."""
        asked = request(self._client, method, encoded)
        owner = self._current()
        opened = await owner.opened()
        owner.begin()
        try:
            answer = await self._ask(opened, asked, timeout)
            if method == "list_tools":
                opened.schemas.learn(answer)
            elif method == "call_tool":
                await opened.schemas.examine(asked[1]["name"], answer)
            return answer
        finally:
            owner.done(opened.session.lost)

    async def aclose(self) -> None:
        """End the connection; requests in flight fail."""
        self._closed = True
        while self._owners:
            await asyncio.gather(*[owner.aclose() for owner in self._owners])

    async def _ask(self, opened: Opened, asked: Request, timeout: float | None) -> Any:
        seconds = self._server.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                return await opened.session.ask(asked)
        except TimeoutError:
            raise McpError(
                self._client, f"no answer to {asked[0]} within {seconds:g} s; it was cancelled"
            ) from None

    def _current(self) -> Owner:
        if self._closed:
            raise McpError(self._client, "the connection is closed")
        owner = self._owner
        if owner is None or owner.retired:
            owner = self._owner = Owner(self._client, self._server)
            self._owners.add(owner)
            owner.task.add_done_callback(partial(self._forget, owner))
        return owner

    def _forget(self, owner: Owner, task: asyncio.Task[None]) -> None:
        self._owners.discard(owner)
