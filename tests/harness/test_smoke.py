"""The shortest path through every layer."""

from __future__ import annotations

import noetic_ray as nr


@nr.step
async def greet(name: str, ctx: nr.Context) -> str:
    return f"hello {name} at depth {ctx.depth}"


@nr.step
async def parent(name: str, ctx: nr.Context) -> list[str]:
    return [await ctx.run(greet, name), await ctx.spawn(greet, name)]


def test_a_parent_runs_a_step_here_and_one_in_a_child(harness: nr.Harness) -> None:
    assert harness.run(parent, "Ada") == ["hello Ada at depth 0", "hello Ada at depth 1"]


def test_map_returns_outputs_in_input_order(harness: nr.Harness) -> None:
    names = [f"n{i}" for i in range(20)]
    assert harness.map(greet, names) == [f"hello {name} at depth 1" for name in names]
