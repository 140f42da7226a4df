"""Nothing a body starts outlives it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.wait import wait_until


def _queue(name: str) -> nr.Channel[Any]:
    return nr.channel(name, str, mode="queue", external=True)


@nr.step
async def leaves_a_task(folder: str, ctx: nr.Context) -> str:
    async def heartbeat() -> None:
        try:
            while True:
                Path(folder, "beat").touch()
                await asyncio.sleep(0.001)
        finally:
            Path(folder, "ended").touch()

    ctx.state["task"] = None
    asyncio.create_task(heartbeat())  # noqa: RUF006
    while not Path(folder, "beat").exists():
        await asyncio.sleep(0)
    return "done"


@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: nr.spawn("s", step)])
def test_a_task_left_behind_is_cancelled_at_the_body_s_end(
    harness: nr.Harness, tmp_path: Path, wrap: Any
) -> None:
    assert harness.run(wrap(leaves_a_task), str(tmp_path)) == "done"
    assert (tmp_path / "ended").exists()  # before the result is there
    (tmp_path / "beat").unlink()
    harness.run(nr.spawn("s", nr.run_code("other", lambda _: None)))
    assert not (tmp_path / "beat").exists()


@nr.step
async def leaves_nested_tasks(folder: str, ctx: nr.Context) -> None:
    running = asyncio.Event()

    async def inner() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            Path(folder, "inner").touch()

    async def outer() -> None:
        asyncio.create_task(inner())  # noqa: RUF006
        await asyncio.Event().wait()

    asyncio.create_task(outer())  # noqa: RUF006
    await running.wait()


def test_tasks_of_tasks_are_cancelled_too(harness: nr.Harness, tmp_path: Path) -> None:
    harness.run(leaves_nested_tasks, str(tmp_path))
    assert (tmp_path / "inner").exists()


@nr.step
async def leaves_a_spawn(names: tuple[str, str], ctx: nr.Context) -> str:
    asyncio.create_task(ctx.spawn(writes_when_told, names))  # noqa: RUF006
    await ctx.recv(_queue(names[0]), timeout=60)
    return "parent done"


@nr.step
async def writes_when_told(names: tuple[str, str], ctx: nr.Context) -> None:
    """Say that it runs; much later, write."""
    await ctx.send(_queue(names[0]), "here")
    await ctx.recv(_queue(names[0] + " later"), timeout=60)
    Path(names[1]).touch()


def test_a_spawn_nobody_awaited_is_aborted_at_the_body_s_end(
    harness: nr.Harness, tmp_path: Path
) -> None:
    names = (unique("here"), str(tmp_path / "effect"))
    run = harness.start(leaves_a_spawn, names)
    assert run.result(timeout=30) == "parent done"
    assert [each.status for each in run.tree().walk()] == ["completed", "cancelled"]
    harness.channel(_queue(names[0] + " later")).send("now")
    assert not (tmp_path / "effect").exists()


@nr.step
async def gives_up_on_a_child(names: tuple[str, str], ctx: nr.Context) -> str:
    waiting = asyncio.create_task(ctx.spawn(writes_when_told, names))
    await ctx.recv(_queue(names[0]), timeout=60)
    try:
        await asyncio.wait_for(waiting, 0.01)
    except TimeoutError:
        # The child has ended when the wait is over: what it waits for comes too late.
        await ctx.send(_queue(names[0] + " later"), "now")
        return await ctx.spawn(nr.run_code("next", lambda _: "gave up"))
    return "it ended"


def test_a_cancelled_spawn_aborts_its_child_and_its_effect(
    harness: nr.Harness, tmp_path: Path
) -> None:
    names = (unique("here"), str(tmp_path / "effect"))
    run = harness.start(gives_up_on_a_child, names)
    assert run.result(timeout=30) == "gave up"
    given_up, after = run.tree().children
    assert (given_up.status, after.status) == ("cancelled", "completed")
    assert not (tmp_path / "effect").exists()


@nr.step
async def gives_up_on_paths(names: tuple[str, str], ctx: nr.Context) -> str:
    paths = nr.in_parallel("p", [writes_when_told, writes_when_told])
    waiting = asyncio.create_task(ctx.run(paths, names))
    for _ in range(2):
        await ctx.recv(_queue(names[0]), timeout=60)
    try:
        async with asyncio.timeout(0.01):
            await waiting
    except TimeoutError:
        await ctx.send_many(_queue(names[0] + " later"), ["now", "now"])
        return "gave up"
    return "they ended"


def test_a_cancelled_in_parallel_aborts_its_paths(harness: nr.Harness, tmp_path: Path) -> None:
    names = (unique("here"), str(tmp_path / "effect"))
    run = harness.start(gives_up_on_paths, names)
    assert run.result(timeout=30) == "gave up"
    assert [each.status for each in run.tree().children] == ["cancelled"] * 2
    assert run.status == "completed"
    assert not (tmp_path / "effect").exists()


@nr.step
async def uses_a_task_group(_: Any, ctx: nr.Context) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.spawn(nr.run_code("n", lambda n: n), n)) for n in range(5)]
    return [task.result() for task in tasks]


def test_children_in_a_task_group(harness: nr.Harness) -> None:
    assert harness.run(uses_a_task_group) == [0, 1, 2, 3, 4]


@nr.step
async def one_of_a_group_fails(_: Any, ctx: nr.Context) -> Any:
    async def broken() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("no")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.spawn(nr.run_code("never", _never)))
            group.create_task(broken())
    except ExceptionGroup as several:
        return [str(each) for each in several.exceptions]
    return []


async def _never(_: Any) -> None:
    await asyncio.Event().wait()


def test_a_failure_in_a_task_group_aborts_the_other_children(harness: nr.Harness) -> None:
    run = harness.start(one_of_a_group_fails)
    assert run.result(timeout=30) == ["no"]
    assert [each.status for each in run.tree().children] == ["cancelled"]


@nr.step
def ends_when_told(names: tuple[str, str], ctx: nr.Context) -> None:
    Path(names[1], "started").touch()
    while not Path(names[1], "go").exists():
        threading.Event().wait(0.005)
    Path(names[1], "ended").touch()


@nr.step
async def stops_waiting_for_a_thread(names: tuple[str, str], ctx: nr.Context) -> str:
    waiting = asyncio.create_task(ctx.run(ends_when_told, names))
    while not Path(names[1], "started").exists():
        await asyncio.sleep(0.001)
    waiting.cancel()
    await asyncio.wait([waiting])
    await ctx.send(_queue(names[0]), "stopped waiting")
    return "done"


@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: nr.spawn("s", step)])
def test_a_context_settles_after_its_threads(
    harness: nr.Harness, tmp_path: Path, wrap: Any
) -> None:
    names = (unique("said"), str(tmp_path))
    run = harness.start(wrap(stops_waiting_for_a_thread), names)
    stream = harness.channel(_queue(names[0])).stream()
    assert next(iter(stream)) == "stopped waiting"
    with pytest.raises(TimeoutError):
        run.result(timeout=0.1)
    assert run.status == "running"
    (tmp_path / "go").touch()
    assert run.result(timeout=30) == "done"
    assert (tmp_path / "ended").exists()


@nr.step
async def leaves_a_stubborn_task(folder: str, ctx: nr.Context) -> str:
    """A background task that takes every exception for a hiccup."""

    async def stubborn() -> None:
        while not Path(folder, "stop").exists():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                Path(folder, "ignored").touch()

    asyncio.create_task(stubborn())  # noqa: RUF006
    await asyncio.sleep(0)
    return "done"


@pytest.mark.parametrize("wrap", [lambda step: step, lambda step: nr.spawn("s", step)])
def test_a_task_that_ignores_its_cancel_holds_up_the_result_for_a_while_only(
    harness: nr.Harness, tmp_path: Path, wrap: Any
) -> None:
    run = harness.start(wrap(leaves_a_stubborn_task), str(tmp_path))
    try:
        assert run.result(timeout=30) == "done"
        wait_until(lambda: run.status == "completed", 30)
        assert (tmp_path / "ignored").exists()
    finally:
        (tmp_path / "stop").touch()
