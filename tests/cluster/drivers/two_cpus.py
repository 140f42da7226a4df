"""On a Ray of two CPUs: what asks for none completes, what asks for more than there is says so."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import ray

import noetic_ray as nr

DEPTH, FAN_OUT, CHILDREN = 8, 2, 200


@nr.step
async def branch(depth: int, ctx: nr.Context) -> int:
    """The number of contexts in this subtree."""
    if depth == 0:
        return 1
    below = [ctx.spawn(branch, depth - 1) for _ in range(FAN_OUT)]
    return 1 + sum(await asyncio.gather(*below))


@nr.step
async def number(value: int, ctx: nr.Context) -> int:
    return value


def numbered(value: int) -> nr.Step[object, int]:
    @nr.step(id=f"number-{value}")
    async def give(_: object, ctx: nr.Context) -> int:
        return value

    return give


wide = nr.in_parallel("wide", [numbered(value) for value in range(CHILDREN)])
gate = nr.channel("gate", int, mode="queue", external=True)


@nr.step
async def waits(_: Any, ctx: nr.Context) -> None:
    await ctx.send(gate, 1)
    await asyncio.Event().wait()


def timed(run: Any) -> dict[str, Any]:
    """What a call gives, or the ConfigError it raises, and how long it took."""
    began = time.monotonic()
    try:
        value, code, text = run(), None, None
    except nr.ConfigError as error:
        value, code, text = None, error.code, str(error)
    return {"value": value, "code": code, "text": text, "seconds": time.monotonic() - began}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True, logging_level="ERROR")
    found: dict[str, Any] = {}
    with nr.Harness("two-cpus") as harness:
        found["tree"] = timed(lambda: harness.run(branch, DEPTH))
        run = harness.start(wide)
        found["wide"] = timed(run.result)
        found["actors"] = len({node.pid for node in flat(run.tree())})
        found["map"] = timed(lambda: harness.map(number, range(CHILDREN), progress=False))
        found["abort"] = abort_in_the_middle(harness)
    with nr.Harness("cpu-each", placement=nr.Placement(num_cpus=1)) as harness:
        found["cpu_each"] = timed(lambda: harness.run(branch, DEPTH))
    print(json.dumps(found))


def abort_in_the_middle(harness: nr.Harness) -> dict[str, Any]:
    """Abort a run when half of its children are known to be at work."""
    run = harness.start(nr.in_parallel("waiting", [waits] * CHILDREN))
    arrived = harness.channel(gate).stream()
    for _ in range(CHILDREN // 2):
        next(arrived)
    report = run.abort("enough")
    return {"status": run.status, "reached": report.reached, "settled": report.settled}


def flat(tree: nr.ContextTree) -> list[nr.ContextTree]:
    """A tree's contexts, the root first."""
    return [tree, *(each for child in tree.children for each in flat(child))]


if __name__ == "__main__":
    main()
