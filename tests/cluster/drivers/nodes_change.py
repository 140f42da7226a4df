"""A cluster whose second node goes, and a third one comes, while a harness is open."""

from __future__ import annotations

import asyncio
import json

import ray
from ray.cluster_utils import Cluster

import noetic_ray as nr

WIDTH = 4
arrived = nr.channel("arrived", int, mode="queue", capacity=WIDTH)
leave = nr.channel("leave", int, mode="queue", capacity=WIDTH)


@nr.step
async def where(_: object, ctx: nr.Context) -> str:
    """The node of this context, told when it may leave."""
    await ctx.send(arrived, 1)
    await ctx.recv(leave, timeout=60.0)
    return str(ray.get_runtime_context().get_node_id())


@nr.step
async def side_by_side(_: object, ctx: nr.Context) -> list[str]:
    """The nodes of children that all live at the same time."""
    children = [asyncio.ensure_future(ctx.spawn(where, None)) for _ in range(WIDTH)]
    for _ in range(WIDTH):
        await ctx.recv(arrived, timeout=60.0)
    for _ in range(WIDTH):
        await ctx.send(leave, 1)
    return sorted(await asyncio.gather(*children))


def main() -> None:
    cluster = Cluster()
    try:
        head = cluster.add_node(num_cpus=1, include_dashboard=False, dashboard_port=None)
        second = cluster.add_node(num_cpus=1)
        found = {"head": head.node_id, "second": second.node_id}
        few = nr.Placement(warm=0)
        with nr.Harness("nodes", address=cluster.address, placement=few) as harness:
            cluster.remove_node(second)
            found["after_loss"] = harness.run(side_by_side)
            found["third"] = cluster.add_node(num_cpus=2).node_id
            found["after_growth"] = grown(harness, found["third"])
        print(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()


def grown(harness: nr.Harness, node: str) -> list[str]:
    """Where contexts are once the new node has been noticed."""
    nodes: list[str] = []
    for _ in range(40):
        nodes = harness.run(wider)
        if node in nodes:
            break
    return nodes


@nr.step
async def wider(_: object, ctx: nr.Context) -> list[str]:
    """Two groups at a time: more than the first run had processes for."""
    groups = await asyncio.gather(*(ctx.spawn(side_by_side, None) for _ in range(2)))
    return sorted({node for group in groups for node in group})


if __name__ == "__main__":
    main()
