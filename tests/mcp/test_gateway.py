"""The gateways on Ray, and the port on them."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from noetic_ray.actors.mcp_client import RayMcp
from noetic_ray.actors.mcp_gateway import start_gateways
from noetic_ray.actors.mcp_line import Line
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
        self.same = False

    async def __call__(self, client: str) -> list[Any]:
        self.asked += 1
        if self.same:
            return self.handles
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


#: The server may be dead before its gateway is: then the gateway still says so.
GONE = "not sent again|nothing is sent again"


async def _kill(gateways: Gateways, record: Path) -> None:
    """Kill the gateway; returns when nothing is left of it and of the server."""
    ray.kill(gateways.handles[0])
    parents = [each["parent"] for each in noted(record) if "parent" in each]
    await _until(lambda: not any(map(psutil.pid_exists, parents)))
    await _until(lambda: not any(map(alive, pids(record))))


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
    await _kill(gateways, record)
    with pytest.raises(McpError, match=GONE):
        await waiting
    assert await call(port, "fine")
    assert gateways.asked == 2


async def test_closing_a_gateway_ends_its_server(open_port: Open, tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    port, gateways = open_port(odd_server(record))
    await port.call("test", "ping", {})
    gateways.same = True
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


async def test_calls_work_without_a_direct_line_too(
    open_port: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_line(address: str | None) -> None:
        return None

    monkeypatch.setattr(Line, "open", no_line)
    record = tmp_path / "record.jsonl"
    port, gateways = open_port(odd_server(record))
    assert await call(port, "fine")
    waiting = asyncio.create_task(call(port, "hang"))
    await _until(lambda: "hang" in str(noted(record)))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until(lambda: "notifications/cancelled" in str(noted(record)))
    waiting = asyncio.create_task(call(port, "late", seconds=60))
    await _until(lambda: "late" in str(noted(record)))
    await _kill(gateways, record)
    with pytest.raises(McpError, match=GONE):
        await waiting
    # Whether the end was heard of depends on who died first; nothing else is lost by it.
    await asyncio.gather(call(port, "perhaps"), return_exceptions=True)
    assert await call(port, "fine")
    assert gateways.asked == 2


async def test_a_gateway_that_died_between_calls_costs_no_call(
    open_port: Open, tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    port, gateways = open_port(odd_server(record))
    await call(port, "fine")
    await _kill(gateways, record)
    assert await call(port, "fine")
    assert gateways.asked == 2


async def test_the_death_of_one_replica_does_not_fail_calls_of_another(open_port: Open) -> None:
    port, gateways = open_port(echo_server(replicas=2))
    await asyncio.gather(*[call(port, "slow", ms=200, tag="warm") for _ in range(2)])
    first = gateways.handles
    calls = [asyncio.create_task(call(port, "slow", ms=3_000, tag="x")) for _ in range(2)]
    await asyncio.sleep(0)
    ray.kill(first[0])
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["McpError", "str"]
    ray.kill(first[1])


async def test_calls_of_a_process_that_died_are_cancelled_at_the_server(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record.jsonl"
    [gateway] = start_gateways("test", odd_server(record), unique("mcp"))

    class Caller:
        async def hang(self, gateways: list[Any]) -> None:
            async def give(client: str) -> list[Any]:
                return gateways

            arguments = {"name": "hang"}
            await RayMcp(["test"], give).call("test", "call_tool", arguments)

    caller = ray.remote(num_cpus=0, max_restarts=0)(Caller).remote()
    caller.hang.remote([gateway])
    await _until(lambda: "hang" in str(noted(record)))
    ray.kill(caller)
    await _until(lambda: "notifications/cancelled" in str(noted(record)))
    await gateway.close.remote()
    ray.kill(gateway)
