"""The gateways of a harness's MCP servers, as its supervisor keeps them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError

from noetic_ray.actors.mcp_gateway import start_gateways
from noetic_ray.actors.nodes import on_this_node
from noetic_ray.mcp.servers import McpServer

ANSWER_SECONDS = 5.0
CLOSE_SECONDS = 2.0


class Gateways:
    """Starts the actors of a server when it is first asked for, on the supervisor's node.

    `prefix` begins their names. A dead one gets a successor, under another name, the next time
    somebody asks; the others go on.
    """

    def __init__(self, prefix: str, namespace: str, servers: Mapping[str, McpServer]) -> None:
        self._prefix = prefix
        self._namespace = namespace
        self._servers = servers
        self._held: dict[str, list[Any]] = {}
        self._numbers = itertools.count(1)

    async def of(self, client: str) -> list[Any]:
        """Handles of a server's actors, each of which answered or is just being started."""
        held = self._held.get(client)
        if held is None:
            held = self._held[client] = self._start(client, self._servers[client])
            return list(held)
        seen = list(held)
        answers = await asyncio.gather(*(_answers(each) for each in seen))
        for index, (gateway, answered) in enumerate(zip(seen, answers, strict=True)):
            if not answered and held[index] is gateway:
                _kill(gateway)
                held[index] = self._start(client, replace(self._servers[client], replicas=1))[0]
        return list(held)

    def _start(self, client: str, server: McpServer) -> list[Any]:
        name = f"{self._prefix}:mcp-{client}-{next(self._numbers)}"
        options = {"namespace": self._namespace, "scheduling_strategy": on_this_node()}
        return start_gateways(client, server, name, **options)

    async def close(self) -> None:
        """Let the servers end well, for a moment; then the actors go."""
        gateways = [each for group in self._held.values() for each in group]
        self._held.clear()
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(each.close.remote() for each in gateways))
        for gateway in gateways:
            _kill(gateway)


async def _answers(actor: Any) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await actor.__ray_ready__.remote()
    except (RayError, TimeoutError):
        return False
    return True


def _kill(actor: Any) -> None:
    with contextlib.suppress(RayError):
        ray.kill(actor)
