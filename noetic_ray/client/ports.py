"""What the objects on a context need from the engine that hosts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

#: (type, context id, seconds since the epoch, data)
TraceEvent = tuple[str, str, float, Any]


class ClientPort(Protocol):
    """One context's way out to its client; any thread may call what is not awaited."""

    @property
    def accept(self) -> str:
        """The format the client asked for."""
        ...

    def emit(self, type: str, data: Mapping[str, Any], now: bool = False) -> bool:
        """Record an event; `now` brings it to its readers at once.

        False when the context has ended and nothing was recorded. Raises Cancelled for a message
        of a context that was aborted and has been closed.
        """
        ...

    def span_ids(self) -> tuple[str, str]:
        """(trace id, span id) of the step that runs, as OpenTelemetry writes them."""
        ...

    def mark_span(self, node_id: str, label: str) -> None:
        """Leave a node's id on the span of the step that runs."""

    async def read_trace(self, since: int) -> tuple[list[TraceEvent], int]:
        """(events, where to go on): what the journal has of the run's trace after `since`."""
        ...

    async def space(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        """Do something to the run's spaces, after all this context recorded before."""
        ...

    async def ask_mcp(self, client: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """Ask an MCP server of the harness."""
        ...

    @property
    def mcp_clients(self) -> Sequence[str]:
        """The names of the harness's MCP servers."""
        ...

    async def add_value(self, prefix: str, value: bytes) -> int:
        """Append to a list of values in the harness's store; returns the index."""
        ...

    async def load_values(self, prefix: str) -> list[tuple[str, bytes]]:
        """A list of values in the harness's store, in order."""
        ...
