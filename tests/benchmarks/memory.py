"""What contexts and their processes hold in memory, as unique set size (USS)."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import psutil
import ray

import noetic_ray as nr
from tests.support.model_server import server_process

parked_contexts = nr.channel("bench-idle", int, mode="queue", capacity=10_000, external=True)


@nr.step
async def idle(_: int, ctx: nr.Context) -> None:
    await ctx.send(parked_contexts, 1)
    await asyncio.get_running_loop().create_future()


@nr.step
async def looks(_: int, ctx: nr.Context) -> None:
    await ctx.try_recv(parked_contexts)


@nr.step
async def idlers(count: int, ctx: nr.Context) -> None:
    await ctx.run(nr.in_parallel("idlers", [idle] * count), 0)


@nr.step
async def pid(_: int, ctx: nr.Context) -> int:
    return os.getpid()


@ray.remote(num_cpus=0)
class Bare:
    """An async actor that does nothing."""

    async def pid(self) -> int:
        return os.getpid()


def uss(pids: list[int]) -> int:
    """Bytes that only these processes hold."""
    return sum(psutil.Process(each).memory_full_info().uss for each in pids)


def ray_workers() -> list[int]:
    """This process and every actor process below it."""
    me = psutil.Process()
    return [me.pid] + [
        child.pid
        for child in me.children(recursive=True)
        if child.name().startswith("ray::") or "default_worker" in " ".join(child.cmdline())
    ]


def shared_context_kb(count: int = 2_000) -> float:
    """KB of an idle shared context, over all processes.

    All of them go to one actor, so that what the first contexts of a process cost once (code,
    connections) is paid by 64 others before the measurement; its heap is not grown in advance.
    """
    placement = nr.Placement("shared", contexts_per_actor=count + 100, warm=1)
    with nr.Harness("bench-memory", placement=placement) as harness:
        harness.map(looks, range(64), progress=False)
        _park(harness, 64)
        _until_quiet()
        return _park(harness, count) / count / 1024


def _until_quiet() -> None:
    """Wait until no process of ours grows any more: warm actors take seconds to start."""
    last = 0
    while abs(uss(ray_workers()) - last) > 500_000:
        last = uss(ray_workers())
        time.sleep(2.0)


def _park(harness: nr.Harness, count: int) -> int:
    stream = harness.channel(parked_contexts).stream()
    before = uss(ray_workers())
    run = harness.start(idlers, count)
    for _ in range(count):
        next(stream)
    stream.close()
    grown = uss(ray_workers()) - before
    run.abort("measured")
    return grown


def actor_uss() -> dict[str, float]:
    """A context actor against a bare Ray actor, idle and after its first model call."""
    bare = Bare.remote()  # type: ignore[attr-defined]
    bare_uss = uss([ray.get(bare.pid.remote())])
    with server_process() as base_url:
        model = nr.models.OpenAI(base_url=base_url, api_key="bench", api="chat")
        with nr.Harness("bench-uss", model, placement=nr.Placement(warm=1)) as harness:
            process = harness.run(pid)
            idle_uss = uss([process])
            harness.run(nr.call_model("ask", "bench", tools=[lookup]), "hello")
            called = uss([harness.run(pid)])
    ray.kill(bare)
    return {
        "actor_uss_over_raw": idle_uss / bare_uss,
        "actor_uss_mb": idle_uss / 1e6,
        "raw_actor_uss_mb": bare_uss / 1e6,
        "actor_uss_after_model_call_over_raw": called / bare_uss,
    }


@nr.tool
def lookup(key: str = "") -> str:
    """Look a key up."""
    return key


def run() -> dict[str, float]:
    """shared_context_kb and actor_uss_over_raw."""
    figures: dict[str, Any] = {"shared_context_kb": shared_context_kb()}
    figures.update(actor_uss())
    return figures
