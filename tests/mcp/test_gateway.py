"""The gateways on Ray, and the port on them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from noetic_ray.actors.mcp_client import RayMcp
from noetic_ray.actors.mcp_gateway import start_gateways
from noetic_ray.errors import McpError
from noetic_ray.mcp.port import McpPort
from noetic_ray.mcp.results import tool_result
from noetic_ray.mcp.servers import McpServer
from tests.conftest import unique
from tests.support.mcp_servers import alive, echo_server, noted, odd_server, pids
from tests.support.wait import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class Gateways:
    """Stands in for who keeps the actors: starts them when asked."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.handles: list[Any] = []
        self.asked = 0

    async def __call__(self, client: str) -> list[Any]:
        self.asked += 1
        self.handles = start_gateways(client, self.server, unique("mcp"))
        return self.handles


@pytest.fixture
async def open_port() -> AsyncIterator[Callable[[McpServer], tuple[RayMcp, Gateways]]]:
    """Makes ports on gateways of a server; its client is called `test`."""
    made: list[tuple[RayMcp, Gateways]] = []

    def make(server: McpServer) -> tuple[RayMcp, Gateways]:
        gateways = Gateways(server)
        made.append((RayMcp(["test"], gateways), gateways))
        return made[-1]

    yield make
    for port, gateways in made:
        await port.aclose()
        for handle in gateways.handles:
            ray.kill(handle)


Open = Callable[[McpServer], tuple[RayMcp, Gateways]]


async def call(port: McpPort, tool: str, **arguments: Any) -> Any:
    raw = await port.call("test", "call_tool", {"name": tool, "arguments": arguments})
    return tool_result(raw).value


async def _until(predicate: Any) -> None:
    await asyncio.to_thread(wait_until, predicate)


async def test_calls_reach_the_server_and_errors_come_back_as_ours(open_port: Open) -> None:
    port, gateways = open_port(echo_server())
    assert await call(port, "ping", message="m") == {"message": "m", "count": 1}
    said = [f"text {n}" for n in range(20)]
    assert await asyncio.gather(*[call(port, "echo", text=each) for each in said]) == said
    with pytest.raises(McpError, match="Unknown resource") as caught:
        await port.call("test", "read_resource", {"uri": "echo://nope"})
    assert (caught.value.client, caught.value.code) == ("test", -32602)
    with pytest.raises(McpError, match="the harness knows 'test'"):
        await port.call("other", "ping", {})
    assert gateways.asked == 1


async def test_callers_share_one_search_for_gateways(open_port: Open) -> None:
    port, gateways = open_port(echo_server())
    await asyncio.gather(*[port.call("test", "ping", {}) for _ in range(5)])
    assert gateways.asked == 1


async def test_objects_of_the_caller_do_not_travel(open_port: Open) -> None:
    class Mine:
        pass

    port, _ = open_port(echo_server())
    with pytest.raises(McpError, match="not JSON data"):
        await call(port, "ping", message=Mine())


async def test_a_cancelled_call_is_cancelled_at_the_server(open_port: Open, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"

    def got(method: str) -> list[Any]:
        return [e["got"] for e in noted(record) if e.get("got", {}).get("method") == method]

    port, _ = open_port(odd_server(record))
    waiting = asyncio.create_task(call(port, "hang"))
    await _until(lambda: got("tools/call"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until(lambda: got("notifications/cancelled"))
    assert got("notifications/cancelled")[0]["params"]["requestId"] == got("tools/call")[0]["id"]
    assert await call(port, "fine")


async def test_a_cancel_that_overtakes_its_call_stops_it(open_port: Open) -> None:
    port, gateways = open_port(echo_server())
    await port.call("test", "ping", {})
    gateway = gateways.handles[0]
    await gateway.cancel.remote("early")
    payload = pickle.dumps(("early", "ping", b"{}"))
    fine, _ = pickle.loads(await gateway.call.remote(payload))
    assert not fine
    fine, _ = pickle.loads(await gateway.call.remote(payload))
    assert fine


async def test_a_server_that_dies_is_started_again_by_the_next_call(
    open_port: Open, tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    port, gateways = open_port(odd_server(record))
    async with asyncio.timeout(60):
        with pytest.raises(McpError, match="exit code 9"):
            await call(port, "die")
        assert await call(port, "fine")
    assert len(pids(record)) == 2
    assert gateways.asked == 1


async def test_a_killed_gateway_fails_what_is_under_way_and_leaves_no_process(
    open_port: Open, tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    port, gateways = open_port(odd_server(record, STUBBORN=1))
    waiting = asyncio.create_task(call(port, "hang"))
    await _until(lambda: any("tools/call" in str(each) for each in noted(record)))
    ray.kill(gateways.handles[0])
    with pytest.raises(McpError, match="its gateway does not answer"):
        await waiting
    await _until(lambda: not any(map(alive, pids(record))))
    assert await call(port, "fine")
    assert gateways.asked == 2


async def test_closing_a_gateway_ends_its_server(open_port: Open, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    port, gateways = open_port(odd_server(record))
    await port.call("test", "ping", {})
    await gateways.handles[0].close.remote()
    assert not any(map(alive, pids(record)))
    with pytest.raises(McpError, match="closed"):
        await port.call("test", "ping", {})


async def test_replicas_are_processes_of_their_own_and_busy_ones_are_passed_over(
    open_port: Open,
) -> None:
    port, gateways = open_port(echo_server(replicas=2))
    found = {(await call(port, "status"))["pid"] for _ in range(4)}
    assert len(found) == len(gateways.handles) == 2
    busy = asyncio.create_task(call(port, "slow", ms=30_000, tag="x"))
    await asyncio.sleep(0)
    assert len({(await call(port, "status"))["pid"] for _ in range(4)}) == 1
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)


async def test_a_search_that_fails_is_an_error_of_the_call_and_tried_again() -> None:
    tries = 0

    async def gateways(client: str) -> list[Any]:
        nonlocal tries
        tries += 1
        raise McpError(client, f"try {tries}")

    port = RayMcp(["test"], gateways)
    for number in (1, 2):
        with pytest.raises(McpError, match=f"try {number}"):
            await port.call("test", "ping", {})
    await port.aclose()
