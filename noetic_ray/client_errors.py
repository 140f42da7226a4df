"""Errors of what a client sees and an agent reaches: messages, the trace, MCP servers."""

from __future__ import annotations

from typing import Any, ClassVar

from noetic_ray.error_base import NoeticError


class MessageError(NoeticError):
    """A message cannot be sent as it is; nothing of it was."""

    __module__ = "noetic_ray.errors"
    kind = "message_error"
    _fields: ClassVar[dict[str, Any]] = {"message_id": None}

    def __init__(self, message: str, message_id: str | None = None) -> None:
        self.message_id = message_id
        super().__init__(message)


class TraceError(NoeticError):
    """A trace node or a space cannot do what was asked."""

    __module__ = "noetic_ray.errors"
    kind = "trace_error"
    _fields: ClassVar[dict[str, Any]] = {"node_id": None, "space_id": None}

    def __init__(
        self, message: str, node_id: str | None = None, space_id: str | None = None
    ) -> None:
        self.node_id = node_id
        self.space_id = space_id
        super().__init__(message)


class McpError(NoeticError):
    """An MCP server is unknown, cannot be reached, or refused a request.

    ``code`` and ``data`` are what the server's JSON-RPC error said, None where it said nothing.
    """

    __module__ = "noetic_ray.errors"
    kind = "mcp_error"
    _fields: ClassVar[dict[str, Any]] = {"client": "", "code": None, "data": None}

    def __init__(
        self, client: str, message: str, *, code: int | None = None, data: Any = None
    ) -> None:
        self.client = client
        self.code = code
        self.data = data
        super().__init__(f"MCP server {client!r}: {message}")
