"""Steps the drivers run."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import noetic_ray as nr
from tests.support.marks import add, mark, marked

PLACEMENT = nr.Placement(max_actors=3, warm=1)


def harness(name: str = "driver", **options: Any) -> nr.Harness:
    """A harness on a Ray of this driver's own."""
    options.setdefault("placement", PLACEMENT)
    return nr.Harness(name, address="local", **options)


@nr.step
async def says_pid(_: Any, ctx: nr.Context) -> int:
    return os.getpid()


@nr.step
async def leaves_a_task(folder: str, ctx: nr.Context) -> str:
    """Return while a task it made goes on for ever."""

    async def beat() -> None:
        while True:
            add(folder, "task-beats")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(beat())
    while not marked(folder, "task-beats"):
        await asyncio.sleep(0.01)
    return f"left {task.done()}"


@nr.step
async def beats(given: tuple[str, int], ctx: nr.Context) -> None:
    folder, number = given
    mark(folder, f"child-{number}")
    try:
        while True:
            add(folder, f"beats-{number}")
            await asyncio.sleep(0.02)
    finally:
        mark(folder, f"end-{number}", ctx.abort_reason)


@nr.step
async def four_children(folder: str, ctx: nr.Context) -> None:
    await asyncio.gather(*(ctx.spawn(beats, (folder, n)) for n in range(4)))


@nr.step
async def thirty_megabytes(number: int, ctx: nr.Context) -> bytes:
    return bytes([number]) * 30_000_000


@nr.step
async def writes_a_long_log(count: int, ctx: nr.Context) -> None:
    for n in range(count):
        ctx.item_log.append(nr.user_message(f"item {n}"))
