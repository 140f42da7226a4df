"""How fast a whole tree is aborted, against as many plain calls."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import ray

import noetic_ray as nr
from tests.benchmarks.spawning import Callee, Caller, median

started_contexts = nr.channel("bench-parked", int, mode="queue", capacity=10_000, external=True)


@nr.step
async def parked(_: int, ctx: nr.Context) -> None:
    await ctx.send(started_contexts, 1)
    await asyncio.Event().wait()


@nr.step
async def branch(width: int, ctx: nr.Context) -> None:
    await ctx.send(started_contexts, 1)
    await ctx.run(nr.in_parallel("leaves", [parked] * width), 0)


@nr.step
async def tree(width: int, ctx: nr.Context) -> None:
    await ctx.send(started_contexts, 1)
    await ctx.run(nr.in_parallel("branches", [branch] * width), width)


@nr.step
async def wide(count: int, ctx: nr.Context) -> None:
    await ctx.run(nr.in_parallel("wide", [parked] * count), 0)


def abort_when_parked(harness: nr.Harness, step: Any, input: int, parked_count: int) -> float:
    """Seconds from the abort until all contexts have settled."""
    stream = harness.channel(started_contexts).stream()
    run = harness.start(step, input)
    for _ in range(parked_count):
        next(stream)
    stream.close()
    begun = time.perf_counter()
    report = run.abort("bench")
    elapsed = time.perf_counter() - begun
    assert report.settled == report.reached, report
    return elapsed


def gathered(callees: int, calls: int) -> float:
    """Seconds for so many gathered calls over so many plain actors."""
    actors = [Callee.remote() for _ in range(callees)]  # type: ignore[attr-defined]
    caller = Caller.remote(actors)  # type: ignore[attr-defined]
    took = median(lambda: ray.get(caller.gathered.remote(calls)))
    for actor in (caller, *actors):
        ray.kill(actor)
    return took


def run() -> dict[str, float]:
    """abort_111_over_calls, abort_111_shared_over_calls, abort_1000_shared_over_calls."""
    calls = gathered(8, 111)
    with nr.Harness("bench-abort", placement=nr.Placement(warm=8)) as harness:
        own = median(lambda: abort_when_parked(harness, tree, 10, 111), 5)
    with nr.Harness("bench-abort-shared", placement=nr.Placement("shared", warm=4)) as harness:
        shared = median(lambda: abort_when_parked(harness, tree, 10, 111), 5)
        thousand = median(lambda: abort_when_parked(harness, wide, 1_000, 1_000), 5)
    thousand_calls = gathered(4, 1_000)
    return {
        "abort_111_over_calls": own / calls,
        "abort_111_shared_over_calls": shared / calls,
        "abort_1000_shared_over_calls": thousand / thousand_calls,
        "abort_111_ms": own * 1e3,
        "abort_111_shared_ms": shared * 1e3,
        "abort_1000_shared_ms": thousand * 1e3,
        "raw_111_calls_ms": calls * 1e3,
    }
