"""More layers for a part of a context."""

from __future__ import annotations

from typing import Any

import noetic_ray as nr


class Named(nr.ContextLayer):
    """Counts how often it was initialised, in its own state."""

    def __init__(self, id: str, word: str) -> None:
        self.id, self.word = id, word

    async def init(self, params: Any) -> str:
        return self.word

    provides = {"word": nr.layer_data(lambda state: state)}


@nr.step
async def words(_: Any, ctx: nr.Context) -> dict[str, str]:
    return {id: handle.word for id, handle in ctx.context.items()}


def test_layers_are_there_inside_and_gone_after(telling: nr.Harness) -> None:
    @nr.step
    async def all_three(_: Any, ctx: nr.Context) -> list[Any]:
        before = await ctx.run(words)
        inside = await ctx.run(nr.with_context("w", words, [Named("x", "inner")]))
        return [before, inside, await ctx.run(words)]

    outer = {"o": "outer"}
    found = telling.run(all_three, layers=[Named("o", "outer")])
    assert found == [outer, {"o": "outer", "x": "inner"}, outer]


def test_an_inner_layer_takes_the_place_of_an_outer_one(telling: nr.Harness) -> None:
    step = nr.with_context("w", words, [Named("o", "inner")])
    assert telling.run(step, layers=[Named("o", "outer")]) == {"o": "inner"}


def test_layers_seen_later_are_in_a_context_read_earlier(telling: nr.Harness) -> None:
    @nr.step
    async def reads_twice(_: Any, ctx: nr.Context) -> list[Any]:
        assert list(ctx.context) == []
        return list(await ctx.run(nr.with_context("w", words, [Named("x", "inner")])))

    assert telling.run(reads_twice) == ["x"]


def test_branches_side_by_side_have_their_own_layers(telling: nr.Harness) -> None:
    @nr.step
    async def both(_: Any, ctx: nr.Context) -> list[Any]:
        import asyncio

        one = nr.with_context("w1", words, [Named("a", "1")])
        two = nr.with_context("w2", words, [Named("b", "2")])
        return list(await asyncio.gather(ctx.run(one), ctx.run(two)))

    assert telling.run(both) == [{"a": "1"}, {"b": "2"}]


def test_entered_again_a_layer_goes_on_where_it_was(telling: nr.Harness) -> None:
    async def grow(args: str, state: str, ctx: nr.Context) -> nr.Provided:
        return nr.Provided(None, state + args)

    class Growing(Named):
        provides = {**Named.provides, "grow": nr.layer_function(grow)}

    @nr.step
    async def grows(_: Any, ctx: nr.Context) -> str:
        await ctx.context["g"].grow("!")
        return str(ctx.context["g"].word)

    entered = nr.with_context("w", grows, [Growing("g", "hi")])
    assert telling.run(nr.sequence("twice", [entered, entered])) == "hi!!"
