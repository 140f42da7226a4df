"""What a child context costs, against plain Ray actor calls of the same shape."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import ray

import noetic_ray as nr

REPEATS = 7


@ray.remote(num_cpus=0)
class Callee:
    """A bare async actor."""

    async def ping(self, value: int) -> int:
        return value


@ray.remote(num_cpus=0)
class Caller:
    """Calls bare actors from inside an actor."""

    def __init__(self, callees: list[Any]) -> None:
        self._callees = callees

    async def one_by_one(self, count: int) -> float:
        """Seconds per call."""
        callee = self._callees[0]
        started = time.perf_counter()
        for i in range(count):
            await callee.ping.remote(i)
        return (time.perf_counter() - started) / count

    async def gathered(self, count: int) -> float:
        """Seconds for `count` calls at once, spread over the callees."""
        import asyncio

        started = time.perf_counter()
        calls = [self._callees[i % len(self._callees)].ping.remote(i) for i in range(count)]
        await asyncio.gather(*calls)
        return time.perf_counter() - started


@nr.step
async def trivial(value: int, ctx: nr.Context) -> int:
    return value


@nr.step
async def spawns(count: int, ctx: nr.Context) -> float:
    started = time.perf_counter()
    for i in range(count):
        await ctx.spawn(trivial, i)
    return (time.perf_counter() - started) / count


@nr.step
async def spawns_inline(count: int, ctx: nr.Context) -> float:
    started = time.perf_counter()
    for i in range(count):
        await ctx.spawn(trivial, i, placement="inline")
    return (time.perf_counter() - started) / count


@nr.step
async def fans_out(count: int, ctx: nr.Context) -> float:
    fan = nr.in_parallel("fan", [trivial] * count)
    started = time.perf_counter()
    await ctx.run(fan, 1)
    return time.perf_counter() - started


def median(measure: Callable[[], float], repeats: int = REPEATS) -> float:
    """The median of several measurements after one that warms up."""
    measure()
    return statistics.median(measure() for _ in range(repeats))


def run() -> dict[str, float]:
    """spawn_warm_over_call, spawn_inline_over_call, spawn_shared_1000_over_calls."""
    callees = [Callee.remote() for _ in range(4)]  # type: ignore[attr-defined]
    caller = Caller.remote(callees)  # type: ignore[attr-defined]
    call = median(lambda: ray.get(caller.one_by_one.remote(300)))
    calls = median(lambda: ray.get(caller.gathered.remote(1_000)))
    with nr.Harness("bench-spawn", placement=nr.Placement(warm=2)) as harness:
        warm = median(lambda: harness.run(spawns, 300))
        inline = median(lambda: harness.run(spawns_inline, 300))
    with nr.Harness("bench-shared", placement=nr.Placement("shared", warm=4)) as harness:
        shared = median(lambda: harness.run(fans_out, 1_000))
    for actor in (caller, *callees):
        ray.kill(actor)
    return {
        "spawn_warm_over_call": warm / call,
        "spawn_inline_over_call": inline / call,
        "spawn_shared_1000_over_calls": shared / calls,
        "spawn_warm_ms": warm * 1e3,
        "raw_call_ms": call * 1e3,
        "spawn_inline_us": inline * 1e6,
        "spawn_shared_1000_ms": shared * 1e3,
        "raw_1000_calls_ms": calls * 1e3,
    }
