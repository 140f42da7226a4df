"""Children nobody waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.wait import wait_until


@nr.step
async def fails(_: Any, ctx: nr.Context) -> None:
    raise ValueError("detached failure")


def _gate(name: str) -> nr.Channel[Any]:
    return nr.channel(name, str, mode="queue", external=True)


@nr.step
async def waits(name: str, ctx: nr.Context) -> str:
    return await ctx.recv(_gate(name), timeout=60)


@nr.step
async def handles(name: str, ctx: nr.Context) -> dict[str, Any]:
    handle = ctx.detach(waits, name)
    before = handle.status
    try:
        await handle.result(timeout=0.05)
    except TimeoutError:
        after = handle.status
    await ctx.send(_gate(name), "hello")
    first = await handle
    return {
        "before": before,
        "after": after,
        "results": [first, await handle.result(), await asyncio.gather(handle.result())],
        "end": handle.status,
        "id": handle.id,
    }


def test_a_handle_may_be_awaited_again_and_again(harness: nr.Harness) -> None:
    run = harness.start(handles, unique("gate"))
    found = run.result()
    assert (found["before"], found["after"], found["end"]) == ("running", "running", "completed")
    assert found["results"] == ["hello", "hello", ["hello"]]
    (child,) = run.tree().children
    assert (child.id, child.depth) == (found["id"], 1)


@nr.step
async def failure_of_a_handle(_: Any, ctx: nr.Context) -> tuple[str, str, str]:
    handle = ctx.detach(fails)
    said = []
    for _attempt in range(2):
        try:
            await handle
        except nr.StepFailed as error:
            said.append(error.cause.message)
    return handle.status, *said  # type: ignore[return-value]


def test_the_failure_is_raised_by_the_handle(harness: nr.Harness) -> None:
    found = harness.run(failure_of_a_handle)
    assert found == ("failed", "detached failure", "detached failure")


@nr.step
async def leaves_one(step_and_input: tuple[Any, Any], ctx: nr.Context) -> str:
    ctx.detach(*step_and_input)
    return "result"


def test_the_result_is_there_while_a_detached_child_still_runs(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(leaves_one, (waits, gate))
    assert run.result(timeout=30) == "result"
    assert run.status == "running"
    harness.channel(_gate(gate)).send("go")
    wait_until(lambda: run.status == "completed", 30)
    assert [each.status for each in run.tree().walk()] == ["completed", "completed"]
    assert list(run.events())[-1].type == "run.ended"


def test_a_failure_nobody_awaited_shows_in_the_tree_only(harness: nr.Harness) -> None:
    run = harness.start(leaves_one, (fails, None))
    assert run.result() == "result"
    wait_until(lambda: run.status != "running", 30)
    assert run.status == "completed"
    assert [each.status for each in run.tree().walk()] == ["completed", "failed"]


@nr.step
async def spawns_one_that_leaves_one(given: tuple[Any, Any], ctx: nr.Context) -> str:
    return await ctx.spawn(leaves_one, given) + " passed on"


def test_nobody_above_waits_for_a_detached_grandchild(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(spawns_one_that_leaves_one, (waits, gate))
    assert run.result(timeout=30) == "result passed on"
    assert run.status == "running"
    harness.channel(_gate(gate)).send("go")
    wait_until(lambda: run.status == "completed", 30)


def test_aborting_a_run_reaches_what_still_runs_in_it(harness: nr.Harness) -> None:
    run = harness.start(spawns_one_that_leaves_one, (waits, unique("gate")))
    assert run.result(timeout=30) == "result passed on"
    report = run.abort("clean up")
    assert report.settled >= 1
    assert run.tree().children[0].children[0].status == "cancelled"
    assert run.result() == "result passed on"
    assert run.status == "completed"


@nr.step
async def aborts_its_handle(_: Any, ctx: nr.Context) -> tuple[str, str, bool]:
    handle = ctx.detach(never)
    handle.abort("not needed")
    try:
        await handle
    except nr.Cancelled as error:
        return error.reason, handle.status, ctx.aborted
    return "", "", False


@nr.step
async def never(_: Any, ctx: nr.Context) -> None:
    await asyncio.Event().wait()


def test_a_handle_aborts_its_child_only(harness: nr.Harness) -> None:
    assert harness.run(aborts_its_handle) == ("not needed", "cancelled", False)


@nr.step
async def aborted_with_a_detached_child(_: Any, ctx: nr.Context) -> None:
    ctx.detach(never)
    await asyncio.Event().wait()


def test_an_abort_of_the_parent_reaches_a_detached_child(harness: nr.Harness) -> None:
    run = harness.start(aborted_with_a_detached_child)
    started = 0
    for event in run.events():
        started += event.type == "step.started"
        if started == 2:
            break
    assert run.abort("all of it").settled == 2
    reasons = [e.data["reason"] for e in run.events() if e.type == "context.aborted"]
    assert reasons == ["all of it", "all of it"]


@nr.step
async def fails_with_a_detached_child(name: str, ctx: nr.Context) -> None:
    ctx.detach(waits, name)
    raise ValueError("parent failed")


def test_the_failure_of_the_parent_is_there_at_once_too(harness: nr.Harness) -> None:
    gate = unique("gate")
    run = harness.start(fails_with_a_detached_child, gate)
    with pytest.raises(nr.StepFailed, match="parent failed"):
        run.result(timeout=30)
    harness.channel(_gate(gate)).send("go")
    wait_until(lambda: run.status == "failed", 30)
    assert run.tree().children[0].status == "completed"


@nr.step
async def detaches_many(folder: str, ctx: nr.Context) -> int:
    for number in range(30):
        ctx.detach(marks, (folder, number))
    return 30


@nr.step
async def marks(where: tuple[str, int], ctx: nr.Context) -> None:
    Path(where[0], str(where[1])).touch()


def test_many_detached_children_all_run(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(detaches_many, str(tmp_path))
    assert run.result() == 30
    wait_until(lambda: run.status == "completed", 60)
    assert len(list(tmp_path.iterdir())) == 30


def test_closing_the_harness_aborts_them(backend: str, make_harness: Any) -> None:
    harness = make_harness(placement=backend)
    run = harness.start(leaves_one, (never, None))
    assert run.result() == "result"
    harness.close()
    assert run.result() == "result"
    assert run.status == "completed"
