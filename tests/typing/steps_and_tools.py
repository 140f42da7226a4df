"""Read by mypy in test_typing.py, never run: the types users of steps and tools see."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

from pydantic import BaseModel

from noetic_ray import steps, tools, until
from noetic_ray.context import Context


class Answer(BaseModel):
    text: str


@steps.step
async def shout(text: str, ctx: Context) -> str:
    return text.upper()


@steps.step(id="count", retry=steps.Retry(attempts=2))
def count(text: str) -> int:
    return len(text)


@tools.tool
def lookup(city: str, days: int = 1) -> list[str]:
    """Weather."""
    return [city] * days


@tools.tool(name="slow", needs_approval=True)
async def slow(n: int, ctx: Context) -> int:
    return n


def takes_step(step: steps.Step[str, int]) -> None: ...


async def kept_generics(ctx: Context) -> None:
    takes_step(count)
    takes_step(shout)  # type: ignore[arg-type]
    assert_type(await ctx.run(shout, "a"), str)
    assert_type(await ctx.spawn(count, "a"), int)
    await ctx.run(count, 3)  # type: ignore[misc]


async def calls_the_function(ctx: Context) -> None:
    assert_type(await shout("a", ctx), str)
    assert_type(count("a"), int)
    assert_type(lookup("Rome", days=2), list[str])
    coroutine: Coroutine[Any, Any, int] = slow(1, ctx)
    assert_type(await coroutine, int)
    count(3)  # type: ignore[arg-type]
    lookup(3)  # type: ignore[arg-type]


async def built(ctx: Context) -> None:
    agent = steps.call_model("a", "m", tools=[lookup, tools.as_tool(shout)])
    assert_type(await ctx.run(agent, "hi"), str)
    typed = steps.call_model("b", "m", output=Answer)
    assert_type(await ctx.run(typed, "hi"), Answer)
    assert_type(await ctx.run(steps.spawn("s", count), "a"), int)
    assert_type(await ctx.run(steps.in_parallel("p", [count, count]), "a"), list[int])
    assert_type(await ctx.run(steps.in_parallel("p", [count, count], mode="race"), "a"), int)
    looped = steps.loop("l", shout, until=until.max_steps(3) | until.never())
    assert_type(await ctx.run(looped, "a"), str)
    chosen = steps.conditional("c", lambda text, ctx: count if text else None)
    assert_type(await ctx.run(chosen, "a"), int)
    mixed = steps.in_parallel("p", [count, agent, steps.run_code("n", lambda n, ctx: n + 1)])
    computed = steps.in_parallel("p", lambda text, ctx: [count], merge=lambda out, ctx: sum(out))
    settled = steps.in_parallel("p", [count], "settle")
    several = steps.loop("l", [agent, count], until.never(), on_error=lambda error, ctx: "skip")
    steps.loop("l", [agent], until.never(), on_error=lambda error, ctx: "ignore")  # type: ignore
    await ctx.run(steps.sequence("q", [mixed, computed, settled, several]), "a")
    steps.run_code("x", lambda value, ctx: value)
    steps.run_code("x", lambda value: value + 1)
    assert_type(await ctx.run(steps.run_code("len", len), "abc"), int)


bare: steps.Step = shout
tool_list: list[tools.Tool] = [lookup, slow]
