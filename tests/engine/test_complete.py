"""A context that has its result early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr


@nr.step
async def completes(value: Any, ctx: nr.Context) -> str:
    ctx.complete(value)
    return "not this"


@nr.step
async def touches(path: str, ctx: nr.Context) -> str:
    Path(path).touch()
    return path


@nr.step
async def completes_twice(_: Any, ctx: nr.Context) -> Any:
    ctx.complete("first")
    ctx.complete("second")
    return ctx.completed, ctx.completion_value


def test_the_value_is_the_result(harness: nr.Harness) -> None:
    run = harness.start(completes, {"a": 1})
    assert run.result() == {"a": 1}
    assert run.status == "completed"


def test_the_last_value_counts(harness: nr.Harness) -> None:
    assert harness.run(completes_twice) == "second"


def test_nothing_is_a_value_too(harness: nr.Harness) -> None:
    assert harness.run(completes, None) is None


def test_no_step_runs_after_it(harness: nr.Harness, tmp_path: Path) -> None:
    path = tmp_path / "touched"
    step = nr.sequence("s", [completes, touches])
    run = harness.start(step, str(path))
    assert run.result() == str(path)
    assert not path.exists()
    kinds = [(e.type, e.data["step"]) for e in run.events() if e.type.startswith("step.")]
    assert kinds == [
        ("step.started", "s"),
        ("step.started", "completes"),
        ("step.completed", "completes"),
        ("step.completed", "s"),
    ]


def test_a_loop_stops_after_the_iteration_that_completed(harness: nr.Harness) -> None:
    run = harness.start(nr.loop("l", completes, nr.until.max_steps(3)), "v")
    assert run.result() == "v"
    started = [event for event in run.events() if event.type == "step.started"]
    assert len(started) == 2


@nr.step
async def goes_on(path: str, ctx: nr.Context) -> None:
    """What stands after the next step boundary is not reached."""
    ctx.complete("early")
    await ctx.run(touches, path)
    Path(path).touch()


def test_the_body_ends_at_its_next_step(harness: nr.Harness, tmp_path: Path) -> None:
    assert harness.run(goes_on, str(tmp_path / "touched")) == "early"
    assert not (tmp_path / "touched").exists()


@nr.step
async def catches_everything(path: str, ctx: nr.Context) -> str:
    ctx.complete("early")
    try:
        await ctx.run(touches, path)
    except Exception:
        Path(path).touch()
    return "caught"


def test_code_that_catches_exceptions_does_not_stop_it(harness: nr.Harness, tmp_path: Path) -> None:
    assert harness.run(catches_everything, str(tmp_path / "touched")) == "early"
    assert not (tmp_path / "touched").exists()


@nr.step(retry=nr.Retry(attempts=3, delay=0.0))
async def retried(path: str, ctx: nr.Context) -> None:
    with open(path, "a") as out:
        out.write("x")
    ctx.complete("early")
    await ctx.run(touches, path)


def test_it_is_no_failure_to_retry(harness: nr.Harness, tmp_path: Path) -> None:
    path = tmp_path / "marks"
    assert harness.run(retried, str(path)) == "early"
    assert path.read_text() == "x"


@nr.step
async def children_complete(_: Any, ctx: nr.Context) -> Any:
    spawned = await ctx.spawn(completes, "spawned")
    paths = await ctx.run(nr.in_parallel("p", [completes, completes]), "path")
    return spawned, paths, ctx.completed


def test_it_ends_one_context_only(harness: nr.Harness) -> None:
    assert harness.run(children_complete) == ("spawned", ["path", "path"], False)


@nr.step
def completes_in_a_thread(path: str, ctx: nr.Context) -> None:
    ctx.complete("from a thread")
    ctx.sync.run(touches, path)


def test_a_synchronous_body_completes_too(harness: nr.Harness, tmp_path: Path) -> None:
    assert harness.run(completes_in_a_thread, str(tmp_path / "x")) == "from a thread"
    assert not (tmp_path / "x").exists()


@nr.step
async def completes_then_fails(_: Any, ctx: nr.Context) -> None:
    ctx.complete("early")
    raise ValueError("after all")


def test_a_failure_after_it_is_a_failure(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(completes_then_fails)
    assert caught.value.cause.message == "after all"


@nr.step
async def completes_then_aborts(_: Any, ctx: nr.Context) -> None:
    ctx.complete("early")
    ctx.abort("stop")


def test_an_abort_wins_over_it(harness: nr.Harness) -> None:
    with pytest.raises(nr.Cancelled, match="stop"):
        harness.run(completes_then_aborts)


@nr.tool
async def finish(value: str, ctx: nr.Context) -> str:
    ctx.complete(value)
    return "ok"


def test_a_tool_step_completes_its_context(harness: nr.Harness, tmp_path: Path) -> None:
    step = nr.sequence("s", [nr.invoke_tool("f", finish, {"value": "done"}), touches])
    assert harness.run(step, str(tmp_path / "x")) == "done"
    assert not (tmp_path / "x").exists()
