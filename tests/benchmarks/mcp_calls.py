"""MCP calls: from a context on Ray, beside the same call with the SDK in one process."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import noetic_ray as nr

SERVER = Path(__file__).with_name("mcp_server.py")
CALLS = 200
ROUNDS = 5
SLOW_SECONDS = 0.05
PARALLEL = 100
CONCURRENCY = 16


@nr.step
async def one_by_one(count: int, ctx: nr.Context) -> list[float]:
    """Seconds of each of `count` calls."""
    times: list[float] = []
    for index in range(count):
        started = time.perf_counter()
        result = await ctx.mcp.call_tool("bench", "echo", {"message": f"call {index}"})
        times.append(time.perf_counter() - started)
        assert not result.is_error
    return times


@nr.step
async def side_by_side(count: int, ctx: nr.Context) -> float:
    """Seconds for `count` calls of a slow tool."""
    calls = [{"name": "slow", "args": {"seconds": SLOW_SECONDS}} for _ in range(count)]
    started = time.perf_counter()
    results = await ctx.mcp.call_tools_parallel("bench", calls, concurrency=CONCURRENCY)
    assert not any(result.is_error for result in results)
    return time.perf_counter() - started


async def _with_sdk(count: int) -> list[float]:
    """The same calls, the SDK's client in this process."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    times: list[float] = []
    command = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    async with stdio_client(command) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()
        for index in range(count):
            started = time.perf_counter()
            await session.call_tool("echo", {"message": f"call {index}"})
            times.append(time.perf_counter() - started)
    return times


def run() -> dict[str, float]:
    """`mcp_call_overhead` (medians of five rounds, in turn) and `mcp_100_parallel_over_serial`."""
    server: Any = nr.McpServer(command=sys.executable, args=[str(SERVER)])
    ours: list[float] = []
    theirs: list[float] = []
    walls: list[float] = []
    with nr.Harness("bench-mcp", mcp={"bench": server}) as harness:
        harness.run(one_by_one, 20)
        for _ in range(ROUNDS):
            ours.append(statistics.median(harness.run(one_by_one, CALLS)))
            theirs.append(statistics.median(asyncio.run(_with_sdk(CALLS))))
            walls.append(harness.run(side_by_side, PARALLEL))
    mine, plain = statistics.median(ours), statistics.median(theirs)
    ideal = -(-PARALLEL // CONCURRENCY) * SLOW_SECONDS
    return {
        "mcp_call_overhead": mine / plain,
        "mcp_100_parallel_over_serial": statistics.median(walls) / ideal,
        "mcp_call_ms": mine * 1e3,
        "sdk_call_ms": plain * 1e3,
    }
