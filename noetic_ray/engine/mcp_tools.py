"""The tools of MCP servers as a model step finds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from noetic_ray.canonical import to_json_bytes
from noetic_ray.engine.blocking import blocking
from noetic_ray.engine.tasks import shared_tasks
from noetic_ray.mcp.paging import all_pages
from noetic_ray.mcp.tools import McpTool, McpTools, expand
from noetic_ray.tools import Tool

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

#: Seconds a server's list of tools is believed.
FRESH_SECONDS = 30.0


async def ask_server(cell: Cell, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
    """Ask an MCP server on a context's behalf; the connection belongs to all contexts."""
    cell.check()
    with shared_tasks():
        return await blocking(cell, cell.rt.mcp.call(client, method, arguments))


class ServerTools:
    """What the servers offered when they were last asked; one per process."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[float, list[Any]]] = {}
        self._made: dict[Any, tuple[bytes, tuple[McpTool, ...]]] = {}

    async def listed(self, cell: Cell, client: str) -> list[Any]:
        """A server's tools."""
        known = self._listed.get(client)
        if known is None or monotonic() - known[0] > FRESH_SECONDS:
            tools = await _list(cell, client)
            known = self._listed[client] = monotonic(), tools
        return known[1]

    def made(
        self, markers: tuple[McpTools, ...], listed: dict[str, list[Any]], taken: frozenset[str]
    ) -> tuple[McpTool, ...]:
        """The same tool objects as long as the servers offer the same."""
        key = (markers, taken)
        digest = to_json_bytes(listed)
        known = self._made.get(key)
        if known is None or known[0] != digest:
            known = self._made[key] = digest, tuple(expand(markers, listed, taken))
        return known[1]


async def mcp_tools_of(cell: Cell, tools: Iterable[Tool]) -> tuple[McpTool, ...]:
    """The tools behind the `nr.mcp_tools(...)` in a list. Raises McpError."""
    markers = tuple(each for each in tools if isinstance(each, McpTools))
    if not markers:
        return ()
    shelf = cell.rt.server_tools
    listed = {marker.client: await shelf.listed(cell, marker.client) for marker in markers}
    taken = frozenset(each.name for each in tools if not isinstance(each, McpTools))
    return shelf.made(markers, listed, taken)


async def _list(cell: Cell, client: str) -> list[Any]:
    async def page(cursor: str | None) -> tuple[list[Any], str | None]:
        arguments = {"cursor": cursor} if cursor else {}
        answer = await ask_server(cell, client, "list_tools", arguments)
        return list(answer.get("tools") or ()), answer.get("nextCursor") or None

    return await all_pages(page, client, "name")
