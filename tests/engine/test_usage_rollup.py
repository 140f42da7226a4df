"""What children use is their parents' use, however they end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.wait import wait_until

Talk = nr.Harness
ASK = nr.call_model("ask", "hello")  # 10 tokens in, 5 out, 25 cents
ONE = nr.TokenUsage(10, 5, 15)


@nr.step
async def asks(_: Any, ctx: nr.Context) -> None:
    await ctx.run(ASK, "hi")


@nr.step
async def asks_and_fails(_: Any, ctx: nr.Context) -> None:
    await ctx.run(ASK, "hi")
    raise ValueError("after all")


@nr.step
async def asks_and_aborts(_: Any, ctx: nr.Context) -> None:
    await ctx.run(ASK, "hi")
    ctx.abort("after all")


@nr.step
async def asks_and_hangs(_: Any, ctx: nr.Context) -> None:
    await ctx.run(ASK, "hi")
    await asyncio.Event().wait()


ENDS = [asks, asks_and_fails, asks_and_aborts]


def _spawned(step: Any) -> Any:
    return nr.spawn("s", step)


def _path(step: Any) -> Any:
    return nr.in_parallel("p", [step], "settle")


def _detached(step: Any) -> Any:
    async def detach(_: Any, ctx: nr.Context) -> None:
        await ctx.detach(step)

    return nr.run_code("detach", detach)


def _nested(step: Any) -> Any:
    return nr.spawn("s", nr.in_parallel("p", [nr.spawn("t", step)]))


def _as_tool(step: Any) -> Any:
    return nr.invoke_tool("t", nr.as_tool(step), {"input": "go"})


KINDS = [_spawned, _path, _detached, _nested, _as_tool]


@nr.step
async def used(step: nr.Step[Any, Any], ctx: nr.Context) -> tuple[Any, ...]:
    try:
        await ctx.run(step)
    except nr.NoeticError:
        ctx.state["failed"] = True
    return ctx.tokens, ctx.cost, ctx.step_count, ctx.last_step_meta


@pytest.mark.parametrize("child", ENDS, ids=lambda step: step.id)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_usage_of_every_kind_of_child_and_end_reaches_the_parent(
    talk: Talk, kind: Any, child: Any
) -> None:
    run = talk.start(used, kind(child))
    tokens, cost, steps, meta = run.result()
    assert (tokens, cost) == (ONE, 0.25)
    assert steps == 2  # not rolled up
    assert meta is None
    assert run.usage == run.tree().tokens == ONE
    assert run.cost == 0.25
    info = next(info for info in talk.runs() if info.id == run.id)
    assert (info.tokens, info.cost) == (ONE, 0.25)


def test_usage_of_a_child_past_its_time_is_kept(talk: Talk) -> None:
    run = talk.start(used, nr.spawn("s", asks_and_hangs, timeout=1.0))
    tokens, cost, *_ = run.result()
    assert (tokens, cost) == (ONE, 0.25)


@nr.step
async def wins_later(_: Any, ctx: nr.Context) -> str:
    """Win when the other path has asked."""
    assert ctx.parent is not None
    await ctx.recv(nr.channel("asked", str, mode="queue"), timeout=60)
    return "won"


@nr.step
async def asks_and_loses(_: Any, ctx: nr.Context) -> None:
    await ctx.run(ASK, "hi")
    await ctx.send(nr.channel("asked", str, mode="queue"), "now")
    await asyncio.Event().wait()


@nr.step
async def fails_when_asked(_: Any, ctx: nr.Context) -> None:
    await ctx.recv(nr.channel("asked", str, mode="queue"), timeout=60)
    raise ValueError("sibling")


@pytest.mark.parametrize(
    "step",
    [
        nr.in_parallel("p", [wins_later, asks_and_loses], "race"),
        nr.in_parallel("p", [fails_when_asked, asks_and_loses]),
    ],
    ids=["race lost", "sibling failed"],
)
def test_usage_of_aborted_paths_is_kept(talk: Talk, step: Any) -> None:
    tokens, cost, *_ = talk.run(used, step)
    assert (tokens, cost) == (ONE, 0.25)


def test_usage_of_an_aborted_run_is_kept(talk: Talk) -> None:
    run = talk.start(nr.spawn("s", nr.spawn("t", asks_and_hangs)))
    for event in run.events():
        if event.type == "model.completed":
            break
    run.abort("stop")
    assert run.usage == run.tree().tokens == ONE
    assert run.response().usage == ONE


@nr.step
async def leaves_it_running(_: Any, ctx: nr.Context) -> str:
    await ctx.run(ASK, "hi")
    ctx.detach(nr.sequence("later", [wins_later, asks]))
    return "done"


def test_what_a_detached_child_uses_after_the_result_is_added(talk: Talk) -> None:
    run = talk.start(nr.spawn("s", leaves_it_running))
    assert run.result(timeout=30) == "done"
    talk.channel(nr.channel("asked", str, mode="queue", external=True)).send("now")
    wait_until(lambda: run.status == "completed", 30)
    expected = nr.TokenUsage(20, 10, 30)
    assert run.usage == run.tree().tokens == expected
    assert run.cost == 0.5


@nr.step
async def many(_: Any, ctx: nr.Context) -> tuple[int, float]:
    await ctx.run(nr.in_parallel("p", [nr.in_parallel("q", [asks] * 3)] * 4))
    return ctx.tokens.total, ctx.cost


def test_sums_over_a_tree(talk: Talk) -> None:
    run = talk.start(many)
    assert run.result() == (12 * 15, 12 * 0.25)
    tree = run.tree()
    assert tree.tokens.total == 12 * 15
    assert [child.tokens.total for child in tree.children] == [45] * 4


@nr.step
async def mixed_reports(_: Any, ctx: nr.Context) -> nr.TokenUsage:
    def say(**usage: Any) -> Any:
        return nr.call_model("m", "usage_of_setting", settings={"usage": [usage]})

    paths = [say(input_tokens=1, cached_tokens=0), say(input_tokens=2), say()]
    await ctx.run(nr.in_parallel("p", paths), "hi")
    return ctx.tokens


def test_unreported_and_cached_figures_roll_up_as_such(talk: Talk) -> None:
    run = talk.start(mixed_reports)
    expected = nr.TokenUsage(3, 0, 3, 0, unreported=1)
    assert run.result() == run.usage == run.tree().tokens == expected
