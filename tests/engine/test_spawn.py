"""Children: isolation, time limits, errors, big results."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr


@nr.step
async def echo(given: Any, ctx: nr.Context) -> Any:
    return given


@nr.step
async def never_ends(_: Any, ctx: nr.Context) -> None:
    await asyncio.Event().wait()


@nr.step
async def fails(_: Any, ctx: nr.Context) -> None:
    raise ValueError("inside the child")


def test_a_spawn_step_runs_its_child_in_a_context_of_its_own(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", echo), {"a": [1]})
    assert run.result() == {"a": [1]}
    tree = run.tree()
    assert (tree.step, tree.depth, tree.id) == ("s", 0, run.id)
    (child,) = tree.children
    assert (child.step, child.depth, child.status) == ("echo", 1, "completed")


def test_a_child_s_error_is_raised_where_it_was_spawned(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", fails))
    with pytest.raises(nr.StepFailed) as caught:
        run.result()
    assert caught.value.step_id == "fails"
    assert [each.status for each in run.tree().walk()] == ["failed", "failed"]


@nr.step
async def catches(_: Any, ctx: nr.Context) -> str:
    try:
        await ctx.spawn(fails)
    except nr.StepFailed as error:
        return error.cause.message
    return ""


def test_a_parent_may_catch_a_child_s_error(harness: nr.Harness) -> None:
    run = harness.start(catches)
    assert run.result() == "inside the child"
    assert [each.status for each in run.tree().walk()] == ["completed", "failed"]


# -- time limits ---------------------------------------------------------------------------------


@nr.step
async def spawns_with_a_limit(_: Any, ctx: nr.Context) -> Any:
    return await ctx.spawn(never_ends, timeout=0.05)


@pytest.mark.parametrize("step", [nr.spawn("s", never_ends, timeout=0.05), spawns_with_a_limit])
def test_a_child_past_its_time_is_aborted(harness: nr.Harness, step: Any) -> None:
    run = harness.start(step)
    with pytest.raises(nr.StepFailed) as caught:
        run.result(timeout=30)
    assert caught.value.cause.type == "TimeoutError"
    assert "0.05" in caught.value.cause.message
    assert run.tree().children[0].status == "cancelled"
    assert run.status == "failed"


@nr.step
async def spawns_at_once(_: Any, ctx: nr.Context) -> Any:
    return await ctx.spawn(echo, 1, timeout=60)


def test_a_child_within_its_time_is_left_alone(harness: nr.Harness) -> None:
    assert harness.run(nr.spawn("s", echo, timeout=60), 1) == 1
    assert harness.run(spawns_at_once) == 1


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_time_limit_is_above_zero(harness: nr.Harness, timeout: float) -> None:
    async def body(_: Any, ctx: nr.Context) -> Any:
        return await ctx.spawn(echo, timeout=timeout)

    with pytest.raises(nr.ConfigError) as at_run:
        harness.run(nr.run_code("body", body))
    with pytest.raises(nr.ConfigError) as at_build:
        nr.spawn("s", echo, timeout=timeout)
    assert at_run.value.code == at_build.value.code == "INVALID_TIMEOUT"


def test_what_is_spawned_must_be_a_step(harness: nr.Harness) -> None:
    async def body(_: Any, ctx: nr.Context) -> Any:
        return await ctx.spawn(len, [1])  # type: ignore[arg-type]

    with pytest.raises(nr.StepFailed) as caught:
        harness.run(nr.run_code("body", body))
    assert caught.value.cause.type == "TypeError"


# -- placement -----------------------------------------------------------------------------------


@nr.step
async def where(_: Any, ctx: nr.Context) -> int:
    import os

    return os.getpid()


@nr.step
async def here_and_there(_: Any, ctx: nr.Context) -> tuple[int, int, int]:
    import os

    there = await ctx.spawn(where, placement="actor")
    return os.getpid(), await ctx.spawn(where, placement="inline"), there


def test_inline_children_share_the_process_of_their_parent(ray_harness: nr.Harness) -> None:
    mine, inline, actor = ray_harness.run(here_and_there)
    assert inline == mine
    assert actor != mine


def test_an_unknown_placement_is_refused(harness: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError):
        nr.spawn("s", echo, placement="nowhere")


# -- values --------------------------------------------------------------------------------------


@nr.step
async def big(size: int, ctx: nr.Context) -> dict[str, Any]:
    return {"nested": [{"bytes": bytes(range(256)) * (size // 256)}], "depth": ctx.depth}


@nr.step
async def passes_on_big(size: int, ctx: nr.Context) -> dict[str, Any]:
    found = await ctx.spawn(big, size)
    for _ in range(20):  # others use the child's process meanwhile
        await ctx.spawn(echo, 1)
    return {"from the child": found}


def test_twenty_megabytes_survive_their_child(harness: nr.Harness) -> None:
    size = 20 * 1024 * 1024
    found = harness.run(nr.spawn("s", passes_on_big), size)
    data = found["from the child"]["nested"][0]["bytes"]
    assert len(data) == size
    assert data[:256] == data[-256:] == bytes(range(256))


@nr.step
async def big_input(data: bytes, ctx: nr.Context) -> int:
    return len(data)


def test_a_big_input_reaches_a_child(harness: nr.Harness) -> None:
    assert harness.run(nr.spawn("s", big_input), b"x" * (8 * 1024 * 1024)) == 8 * 1024 * 1024


@nr.step
async def changes_its_input(given: list[int], ctx: nr.Context) -> list[int]:
    given.append(2)
    return given


@nr.step
async def keeps_its_own(_: Any, ctx: nr.Context) -> tuple[list[int], list[Any]]:
    mine = [1]
    changed = await ctx.run(nr.in_parallel("p", [changes_its_input, changes_its_input]), mine)
    return mine, changed


def test_children_on_ray_get_copies_of_an_input(ray_harness: nr.Harness) -> None:
    assert ray_harness.run(keeps_its_own) == ([1], [[1, 2], [1, 2]])


# -- aborts --------------------------------------------------------------------------------------


@nr.step
async def aborts_itself(reason: str | None, ctx: nr.Context) -> None:
    ctx.abort(reason)
    await asyncio.Event().wait()


@nr.step
async def survives_its_child(_: Any, ctx: nr.Context) -> tuple[str, bool]:
    try:
        await ctx.spawn(aborts_itself, "child's own")
    except nr.Cancelled as error:
        return error.reason, ctx.aborted
    return "", False


def test_an_abort_never_travels_up(harness: nr.Harness) -> None:
    run = harness.start(survives_its_child)
    assert run.result() == ("child's own", False)
    assert [each.status for each in run.tree().walk()] == ["completed", "cancelled"]


@nr.step
async def spawns_when_aborted(path: str, ctx: nr.Context) -> None:
    ctx.abort("first")
    ctx.abort("second")
    try:
        await ctx.spawn(never_ends)
    except nr.Cancelled as error:
        Path(path).write_text(f"{error.reason} {ctx.abort_reason}")


def test_an_aborted_context_starts_no_child(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(spawns_when_aborted, str(tmp_path / "seen"))
    with pytest.raises(nr.Cancelled, match="first"):
        run.result()
    assert (tmp_path / "seen").read_text() == "first first"
    assert run.tree().children == []


def test_an_abort_reaches_the_whole_tree_with_its_reason(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("a", nr.spawn("b", never_ends)))
    started = 0
    for event in run.events():
        started += event.type == "context.started"
        if started == 3:
            break
    begun = time.monotonic()
    report = run.abort("user pressed stop")
    assert time.monotonic() - begun < 5
    assert (report.reached, report.settled, report.killed, report.abandoned) == (3, 3, 0, 0)
    aborted = [event for event in run.events() if event.type == "context.aborted"]
    assert [event.data["reason"] for event in aborted] == ["user pressed stop"] * 3


def test_an_abort_without_a_reason(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("a", never_ends))
    started = 0
    for event in run.events():
        started += event.type == "context.started"
        if started == 2:
            break
    run.abort()
    with pytest.raises(nr.Cancelled, match="context aborted"):
        run.result()
    reasons = {e.context_id: e.data["reason"] for e in run.events() if e.type == "context.aborted"}
    assert reasons.pop(run.id) is None
    assert list(reasons.values()) == ["parent context aborted"]
