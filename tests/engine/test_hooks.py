"""Functions of the harness around every step."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr

Make = Callable[..., nr.Harness]


@nr.step
async def add_one(n: int, ctx: nr.Context) -> int:
    return n + 1


@nr.step
async def fails(_: Any, ctx: nr.Context) -> None:
    raise ValueError("no")


def _before(step: nr.Step[Any, Any], ctx: nr.Context) -> None:
    ctx.item_log.append(nr.developer_message(f"before {step.id} {ctx.depth}"))


async def _after(step: nr.Step[Any, Any], result: Any, ctx: nr.Context) -> None:
    await asyncio.sleep(0)
    ctx.item_log.append(nr.developer_message(f"after {step.id} {result}"))


def _texts(run: nr.Run[Any], id: str | None = None) -> list[str]:
    return [item.content[0].text for item in run.items(id)]  # type: ignore[union-attr]


def test_hooks_run_around_every_step_of_every_context(backend: str, make_harness: Make) -> None:
    harness = make_harness(placement=backend, hooks=nr.Hooks(_before, _after))
    run = harness.start(nr.sequence("s", [add_one, nr.spawn("c", add_one)]), 1)
    assert run.result() == 3
    assert _texts(run) == [
        "before s 0",
        "before add_one 0",
        "after add_one 2",
        "before c 0",
        "after c 3",
        "after s 3",
    ]
    child = run.tree().children[0]
    assert _texts(run, child.id) == ["before add_one 1", "after add_one 3"]


def test_after_step_is_not_called_for_a_failure(make_harness: Make) -> None:
    harness = make_harness(placement="inline", hooks=nr.Hooks(_before, _after))
    run = harness.start(fails)
    with pytest.raises(nr.StepFailed):
        run.result()
    assert _texts(run) == ["before fails 0"]


def test_a_failing_hook_fails_the_step(make_harness: Make) -> None:
    def broken(step: Any, ctx: nr.Context) -> None:
        raise LookupError("hook")

    with pytest.raises(nr.StepFailed) as caught:
        make_harness(placement="inline", hooks=nr.Hooks(before_step=broken)).run(add_one, 1)
    assert (caught.value.step_id, caught.value.cause.type) == ("add_one", "LookupError")

    async def breaks_late(step: Any, result: Any, ctx: nr.Context) -> None:
        raise LookupError("hook")

    with pytest.raises(nr.StepFailed):
        make_harness(placement="inline", hooks=nr.Hooks(after_step=breaks_late)).run(add_one, 1)


def test_a_hook_may_deny_a_step(make_harness: Make) -> None:
    def deny(step: Any, ctx: nr.Context) -> None:
        raise nr.SteeringDenied("not allowed")

    with pytest.raises(nr.SteeringDenied, match="not allowed"):
        make_harness(placement="inline", hooks=nr.Hooks(before_step=deny)).run(add_one, 1)


def test_a_blocking_hook_does_not_hold_up_other_contexts(make_harness: Make) -> None:
    entered, go = threading.Event(), threading.Event()

    def blocks(step: Any, ctx: nr.Context) -> None:
        if step.id == "held":
            entered.set()
            go.wait(60)

    harness = make_harness(placement="inline", hooks=nr.Hooks(before_step=blocks))
    held = harness.start(nr.run_code("held", lambda n: n), 1)
    assert entered.wait(30)
    started = time.monotonic()
    assert harness.run(add_one, 1) == 2
    assert time.monotonic() - started < 10
    go.set()
    assert held.result() == 1


def test_what_a_hook_returns_is_ignored(make_harness: Make) -> None:
    hooks = nr.Hooks(lambda step, ctx: "x", lambda step, result, ctx: "y")  # type: ignore[arg-type,return-value]
    assert make_harness(placement="inline", hooks=hooks).run(add_one, 1) == 2
