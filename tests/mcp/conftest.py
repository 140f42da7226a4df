"""Connections that are closed after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import pytest

from noetic_ray.mcp.connection import Connection
from noetic_ray.mcp.servers import McpServer

Connect: TypeAlias = Callable[[McpServer], Connection]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes connections to servers, named `test`."""
    made: list[Connection] = []

    def make(server: McpServer) -> Connection:
        made.append(Connection("test", server))
        return made[-1]

    yield make
    for connection in made:
        await connection.aclose()
