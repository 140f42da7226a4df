"""An MCP server's connection as a Ray actor: one for each replica."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import ray

from noetic_ray.actors.mcp_line import LineServer
from noetic_ray.errors import McpError, NoeticError, to_wire
from noetic_ray.mcp.connection import Connection
from noetic_ray.mcp.servers import McpServer

_SLOTS = 10_000
_CONTROL = "control"
_MAX_TOMBSTONES = 10_000


class McpGateway:
    """A `Connection` behind a call that takes and returns pickled bytes.

    The server's process belongs to this one and ends with it, also when it is killed.
    """

    def __init__(self, client: str, server: McpServer) -> None:
        # Ray makes async actors on the event loop that later runs their default methods.
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._connection = Connection(client, server)
        self._calls: dict[str, asyncio.Task[Any]] = {}
        self._tombstones: dict[str, None] = {}
        self._lines = LineServer(self.call)
        self._address: asyncio.Task[str | None] | None = None

    async def line(self) -> str | None:
        """Where `Line.open` reaches `call` from this machine; None where nothing does."""
        if self._address is None:
            self._address = self._loop.create_task(self._lines.open(), name="mcp-line")
        return await asyncio.shield(self._address)

    async def call(self, payload: bytes) -> bytes:
        """Pickled (call id, method, JSON of the arguments); pickled (True, raw result) or
        (False, error record) back."""
        call_id, method, encoded = pickle.loads(payload)
        if call_id in self._tombstones:
            del self._tombstones[call_id]
            return self._failed(McpError(self._client, "the call was cancelled"))
        self._calls[call_id] = asyncio.current_task()  # type: ignore[assignment]
        try:
            answer = await self._connection.call_encoded(method, encoded)
            return pickle.dumps((True, answer), pickle.HIGHEST_PROTOCOL)
        except asyncio.CancelledError:
            return self._failed(McpError(self._client, "the call was cancelled"))
        except NoeticError as error:
            return self._failed(error)
        except Exception as error:
            return self._failed(McpError(self._client, f"the call failed: {error!r}"))
        finally:
            del self._calls[call_id]

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator, unused-ignore]
    async def cancel(self, call_id: str) -> None:
        """Nobody waits for this call any more; it may not have arrived yet."""
        self._loop.call_soon_threadsafe(self._cancel, call_id)

    @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator, unused-ignore]
    async def close(self) -> None:
        """End the connection and the server's process; calls under way fail."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        await asyncio.wrap_future(closing)

    async def _close(self) -> None:
        await self._connection.aclose()
        self._lines.close()

    def _cancel(self, call_id: str) -> None:
        task = self._calls.get(call_id)
        if task is not None:
            task.cancel()
            return
        self._tombstones[call_id] = None
        if len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]

    def _failed(self, error: NoeticError) -> bytes:
        return pickle.dumps((False, to_wire(error)), pickle.HIGHEST_PROTOCOL)


def start_gateways(client: str, server: McpServer, name: str, **options: Any) -> list[Any]:
    """Start the gateways of a server, one per replica; returns their handles at once.

    They are called `name`, with a number behind it when there are several; `options` are Ray's.
    The server itself is started by the first call.
    """
    settings: dict[str, Any] = {
        "num_cpus": 0,
        "max_restarts": 0,
        "max_task_retries": 0,
        "enable_task_events": False,
        "max_concurrency": _SLOTS,
        "concurrency_groups": {_CONTROL: 100},
    }
    made = ray.remote(**settings)(McpGateway)
    names = [name] if server.replicas == 1 else [f"{name}-{n}" for n in range(server.replicas)]
    return [made.options(name=each, **options).remote(client, server) for each in names]
