"""On a cluster of one CPU: a producer, two consumers and a bounded queue between them."""

from __future__ import annotations

import asyncio
import json

import noetic_ray as nr

VALUES = 60
numbers = nr.channel("numbers", int, mode="queue", capacity=4)


@nr.step
async def produce(count: int, ctx: nr.Context) -> None:
    for value in range(count):
        await ctx.send(numbers, value)
    for _ in range(2):
        await ctx.send(numbers, -1)


@nr.step
async def consume(_: object, ctx: nr.Context) -> list[int]:
    taken = []
    while (value := await ctx.recv(numbers, timeout=60.0)) >= 0:
        taken.append(value)
    return taken


@nr.step
async def market(count: int, ctx: nr.Context) -> list[int]:
    _, one, other = await asyncio.gather(
        ctx.spawn(produce, count), ctx.spawn(consume, None), ctx.spawn(consume, None)
    )
    return sorted([*one, *other])


def main() -> None:
    with nr.Harness("one-cpu", address="auto") as harness:
        print(json.dumps(harness.run(market, VALUES)))


if __name__ == "__main__":
    main()
