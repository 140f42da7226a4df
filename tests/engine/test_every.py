"""A step again and again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique


@nr.step
async def ticks(limit: int, ctx: nr.Context) -> None:
    times = ctx.state.setdefault("times", [])
    times.append(ctx.elapsed)
    if len(times) >= limit:
        ctx.complete(times)


@nr.step
async def fails_then_ends(limit: int, ctx: nr.Context) -> None:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    if ctx.state["n"] >= limit:
        ctx.complete(ctx.state["n"])
        return
    raise ValueError("try again")


def test_the_first_run_is_at_once_and_the_others_follow_the_interval(harness: nr.Harness) -> None:
    times = harness.run(nr.every("e", ticks, interval=0.1), 3)
    assert len(times) == 3
    assert times[0] < 5
    assert times[2] - times[0] >= 0.19


def test_completing_the_context_ends_it(harness: nr.Harness) -> None:
    run = harness.start(nr.every("e", ticks, interval=0.01), 2)
    assert len(run.result()) == 2
    assert run.status == "completed"


def test_it_goes_on_after_errors(harness: nr.Harness) -> None:
    assert harness.run(nr.every("e", fails_then_ends, interval=0.001), 4) == 4


def test_it_may_stop_at_an_error(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.every("e", fails_then_ends, interval=0.001, on_error="raise"), 4)
    assert caught.value.step_id == "fails_then_ends"


@nr.step
async def raises_cancelled(_: Any, ctx: nr.Context) -> None:
    raise nr.Cancelled("mine")


def test_a_cancellation_is_never_passed_over(harness: nr.Harness) -> None:
    with pytest.raises(nr.Cancelled, match="mine"):
        harness.run(nr.every("e", raises_cancelled, interval=0.001))


def _bell(name: str) -> nr.Channel[Any]:
    return nr.channel(name, str, mode="queue", external=True)


@nr.step
async def takes_a_message(name: str, ctx: nr.Context) -> None:
    message = await ctx.try_recv(_bell(name))
    if message is not None:
        ctx.complete((message, ctx.elapsed))


def test_a_send_wakes_it_and_leaves_the_message(harness: nr.Harness) -> None:
    name = unique("bell")
    run = harness.start(nr.every("e", takes_a_message, interval=600, wake=_bell(name)), name)
    for event in run.events():
        if event.type == "step.completed":
            break
    harness.channel(_bell(name)).send("ding")
    message, elapsed = run.result(timeout=30)
    assert message == "ding"
    assert elapsed < 60


@nr.step
async def marks(path: str, ctx: nr.Context) -> None:
    Path(path).touch()


@pytest.mark.parametrize("woken", [False, True])
def test_an_abort_ends_the_wait(harness: nr.Harness, woken: bool, tmp_path: Path) -> None:
    wake = _bell(unique("bell")) if woken else None
    run = harness.start(nr.every("e", marks, interval=600, wake=wake), str(tmp_path / "mark"))
    for event in run.events():
        if event.type == "step.completed":
            break
    begun = time.monotonic()
    assert run.abort("enough").settled == 1
    assert time.monotonic() - begun < 5
    with pytest.raises(nr.Cancelled, match="enough"):
        run.result()


def test_jitter_never_makes_a_wait_negative(harness: nr.Harness) -> None:
    times = harness.run(nr.every("e", ticks, interval=0.01, jitter=5.0 * 0.01), 5)
    assert times == sorted(times)
