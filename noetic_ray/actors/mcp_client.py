"""The MCP gateways as seen from the processes whose contexts call them."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from noetic_ray.actors.mcp_line import Line, LineLost
from noetic_ray.errors import McpError, from_wire
from noetic_ray.mcp.port import unknown_client
from noetic_ray.mcp.requests import encode

__all__ = ["RayMcp"]

_ports = itertools.count()


class _Gateway:
    """One replica, and how many requests of this process are under way there."""

    __slots__ = ("ask", "busy", "handle", "line", "retired")

    def __init__(self, handle: Any, line: Line | None) -> None:
        self.handle = handle
        self.ask = handle.call
        self.line = line
        self.busy = 0
        self.retired = False

    @classmethod
    async def reach(cls, handle: Any) -> _Gateway:
        """With a direct line where there is one."""
        return cls(handle, await Line.open(await handle.line.remote()))

    @property
    def lost(self) -> bool:
        """Whether its process is known to be gone."""
        return self.line is not None and self.line.lost

    def rest(self) -> None:
        """Hang up, unless it is to be called again or is still to answer somebody."""
        if self.retired and not self.busy and self.line is not None:
            self.line.close()


class RayMcp:
    """An `McpPort` on gateway actors. Used from the tasks of one event loop.

    `gateways` gives the handles of a client's replicas; it is asked once, and again when one of
    them turns out to be dead.
    """

    def __init__(
        self, clients: Sequence[str], gateways: Callable[[str], Awaitable[list[Any]]]
    ) -> None:
        self._clients = tuple(clients)
        self._gateways = gateways
        self._known: dict[str, list[_Gateway]] = {}
        self._searches: dict[str, asyncio.Task[list[_Gateway]]] = {}
        self._prefix = f"{os.getpid()}-{os.urandom(4).hex()}-{next(_ports)}"
        self._numbers = itertools.count()

    @property
    def clients(self) -> Sequence[str]:
        """The names the servers were given."""
        return self._clients

    async def call(self, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """See `McpPort.call`."""
        if client not in self._clients:
            raise unknown_client(client, self._clients)
        encoded = encode(client, arguments)
        replicas = self._alive(client) or await self._found(client)
        number = next(self._numbers)
        first = number % len(replicas)
        gateway = min(replicas[first:] + replicas[:first], key=_busy)
        call_id = f"{self._prefix}-{number}"
        payload = pickle.dumps((call_id, method, encoded), pickle.HIGHEST_PROTOCOL)
        gateway.busy += 1
        try:
            fine, answer = pickle.loads(await self._asked(client, gateway, call_id, payload))
        finally:
            gateway.busy -= 1
            gateway.rest()
        if not fine:
            raise from_wire(answer)
        return answer

    async def aclose(self) -> None:
        """Stop looking for gateways; the actors are their owner's to end."""
        searches = list(self._searches.values())
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)
        for client in list(self._known):
            self._forget(client)

    async def _asked(self, client: str, gateway: _Gateway, call_id: str, payload: bytes) -> bytes:
        if gateway.line is not None:
            try:
                return await gateway.line.ask(call_id, payload)
            except LineLost as error:
                raise _gone(client, "its process has ended") from error
        _check_ray(client)
        try:
            answer: bytes = await gateway.ask.remote(payload)
        except asyncio.CancelledError:
            if ray.is_initialized():
                gateway.handle.cancel.remote(call_id)
            raise
        except RayActorError as error:
            if gateway in self._known.get(client, ()):
                self._forget(client)
            raise _gone(client, error) from error
        except RayError as error:
            raise _gone(client, error) from error
        return answer

    def _alive(self, client: str) -> list[_Gateway] | None:
        """The replicas that are known, if none of them is known to be dead."""
        known = self._known.get(client)
        if known is not None and any(gateway.lost for gateway in known):
            self._forget(client)
            return None
        return known

    async def _found(self, client: str) -> list[_Gateway]:
        """The replicas, asked for once for all who wait."""
        search = self._searches.get(client)
        if search is None:
            search = asyncio.create_task(self._search(client), name=f"mcp-gateways-{client}")
            self._searches[client] = search
        await asyncio.wait([search])
        if search.cancelled():
            raise McpError(client, "its gateway is not there any more")
        return search.result()

    async def _search(self, client: str) -> list[_Gateway]:
        try:
            _check_ray(client)
            handles = await self._gateways(client)
            found = await asyncio.gather(*[_Gateway.reach(handle) for handle in handles])
            if not found:
                raise McpError(client, "it has no gateway")
            self._known[client] = found
        except RayError as error:
            raise _gone(client, error) from error
        else:
            return found
        finally:
            del self._searches[client]

    def _forget(self, client: str) -> None:
        """Ask for the replicas again with the next call."""
        for gateway in self._known.pop(client):
            gateway.retired = True
            gateway.rest()


def _busy(gateway: _Gateway) -> int:
    return gateway.busy


def _check_ray(client: str) -> None:
    """A call without Ray would start a new one."""
    if not ray.is_initialized():
        raise McpError(client, "its gateway does not answer: Ray was shut down")


def _gone(client: str, error: object) -> McpError:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return McpError(client, f"its gateway does not answer; nothing is sent again: {reason}")
