"""How the rest of the library asks MCP servers, wherever the connections live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from noetic_ray.errors import McpError

__all__ = ["METHODS", "McpPort", "unknown_client"]

#: What a port's `call` understands, with the arguments it takes.
METHODS: Mapping[str, tuple[str, ...]] = {
    "list_resources": ("cursor",),
    "read_resource": ("uri",),
    "list_tools": ("cursor",),
    "call_tool": ("name", "arguments"),
    "list_prompts": ("cursor",),
    "get_prompt": ("name", "arguments"),
    "ping": (),
}


class McpPort(Protocol):
    """The MCP servers of one harness."""

    @property
    def clients(self) -> Sequence[str]:
        """The names the servers were given."""
        ...

    async def call(self, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """Ask a server one of `METHODS`; returns the JSON result as the server sent it.

        Cancelling the await cancels the request at the server. A request is never sent twice.
        Raises McpError: an unknown client, a server that cannot be reached, a refusal.
        """
        ...

    async def aclose(self) -> None:
        """End what this port started; requests in flight fail."""
        ...


def unknown_client(client: object, known: Sequence[str]) -> McpError:
    """The error for a name that no server has."""
    names = ", ".join(map(repr, known))
    there = f"the harness knows {names}" if names else "the harness has none; give it mcp={...}"
    return McpError(str(client), f"there is no server of this name: {there}")
