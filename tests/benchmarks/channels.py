"""Channels between two contexts against `ray.util.queue.Queue` between two plain actors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util.queue import Queue

import noetic_ray as nr

ROUNDS = 9
ONE_BY_ONE = 300
BULK = 50_000

SINGLE = nr.channel("bench-single", int, mode="queue", capacity=1_000)
MANY = nr.channel("bench-many", int, mode="queue", capacity=1_000)


class QueuePeer:
    """Puts and gets as plain Ray code does."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def put(self, count: int) -> float:
        """Put one by one; the time of the end."""
        for value in range(count):
            self.queue.put(value)
        return time.time()

    def get(self, count: int) -> float:
        """Get one by one; the time of the end."""
        for value in range(count):
            assert self.queue.get() == value
        return time.time()


@nr.step
async def sends(count: int, ctx: nr.Context) -> float:
    for value in range(count):
        await ctx.send(SINGLE, value)
    return time.time()


@nr.step
async def receives(count: int, ctx: nr.Context) -> float:
    for value in range(count):
        assert await ctx.recv(SINGLE) == value
    return time.time()


@nr.step
async def sends_many(count: int, ctx: nr.Context) -> float:
    await ctx.send_many(MANY, range(count), timeout=None)
    return time.time()


@nr.step
async def subscribes(count: int, ctx: nr.Context) -> float:
    expected = 0
    async for value in ctx.subscribe(MANY):
        assert value == expected
        expected += 1
        if expected == count:
            break
    return time.time()


one_by_one = nr.in_parallel("one by one", [sends, receives])
bulk = nr.in_parallel("bulk", [sends_many, subscribes])


@nr.step
async def rate(job: tuple[str, int], ctx: nr.Context) -> float:
    """Messages a second, from the start of both ends to the end of both."""
    kind, count = job
    started = time.time()
    ended = max(await ctx.run(one_by_one if kind == "one" else bulk, count))
    return float(count / (ended - started))


def _queue_rate(putter: Any, getter: Any, count: int) -> float:
    started = time.time()
    ended = max(ray.get([putter.put.remote(count), getter.get.remote(count)]))
    return count / (ended - started)


def run(rounds: int = ROUNDS) -> dict[str, float]:
    """channel_one_by_one and channel_bulk, with the rates behind them in messages per second."""
    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    queue = Queue(maxsize=1_000, actor_options={"num_cpus": 0})
    plain = ray.remote(num_cpus=0)(QueuePeer)
    putter, getter = plain.remote(queue), plain.remote(queue)
    with nr.Harness("bench-channels", placement=nr.Placement(warm=3)) as harness:
        measures: dict[str, Callable[[], float]] = {
            "queue": lambda: _queue_rate(putter, getter, ONE_BY_ONE),
            "channel": lambda: harness.run(rate, ("one", ONE_BY_ONE)),
            "bulk": lambda: harness.run(rate, ("bulk", BULK)),
        }
        for measure in measures.values():
            measure()
        rates: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(rounds):  # interleaved, so that a busy machine disturbs all alike
            for name, measure in measures.items():
                rates[name].append(measure())
    for each in (putter, getter, queue.actor):
        ray.kill(each)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    return {
        "channel_one_by_one": medians["channel"] / medians["queue"],
        "channel_bulk": medians["bulk"] / medians["queue"],
        "queue_rate": medians["queue"],
        "channel_rate": medians["channel"],
        "bulk_rate": medians["bulk"],
    }
