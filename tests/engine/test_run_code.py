"""Functions as steps: attempts, failures, threads."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import unique
from tests.support.wait import wait_until


@nr.step
async def one_argument(value: int) -> int:
    return value + 1


@nr.step
def synchronous(value: int, ctx: nr.Context) -> tuple[int, bool]:
    return value + ctx.depth, threading.current_thread().name.startswith("noetic-sync")


@nr.step
async def keyword_context(value: int, *, ctx: nr.Context) -> tuple[int, str]:
    return value, ctx.id


def test_a_function_may_leave_the_context_out(harness: nr.Harness) -> None:
    assert harness.run(one_argument, 1) == 2


def test_a_synchronous_function_runs_in_a_thread(harness: nr.Harness) -> None:
    assert harness.run(synchronous, 1) == (1, True)


def test_a_context_may_be_taken_by_keyword(harness: nr.Harness) -> None:
    run = harness.start(keyword_context, 3)
    assert run.result() == (3, run.id)


def test_calling_a_step_calls_its_function() -> None:
    assert asyncio.run(one_argument(1)) == 2


def test_a_lambda_and_a_local_function_are_steps(harness: nr.Harness) -> None:
    factor = 3

    async def times(value: int) -> int:
        return value * factor

    assert harness.run(nr.run_code("lambda", lambda value: value * factor), 2) == 6
    assert harness.run(nr.spawn("s", nr.run_code("local", times)), 2) == 6


# -- attempts ------------------------------------------------------------------------------------


def _attempt(ctx: nr.Context) -> int:
    ctx.state["tries"] = ctx.state.get("tries", 0) + 1
    return int(ctx.state["tries"])


@nr.step(retry=nr.Retry(attempts=3, delay=0.0))
async def third_time(good: int, ctx: nr.Context) -> int:
    tries = _attempt(ctx)
    if tries < good:
        raise ValueError(f"try {tries}")
    return tries


def test_attempts_count_the_first_try(harness: nr.Harness) -> None:
    run = harness.start(third_time, 3)
    assert run.result() == 3
    kinds = [event.type for event in run.events() if event.type.startswith("step.")]
    assert kinds == ["step.started"] * 3 + ["step.completed"]


def test_more_failures_than_attempts_exhaust_the_retries(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(third_time, 4)
    assert caught.value.retries_exhausted
    assert caught.value.step_id == "third_time"
    assert (caught.value.cause.type, caught.value.cause.message) == ("ValueError", "try 3")


@nr.step
async def fails(_: Any) -> None:
    raise ValueError("once")


def test_without_retry_a_failure_exhausts_nothing(harness: nr.Harness) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        harness.run(fails)
    assert not caught.value.retries_exhausted
    assert caught.value.kind == "step_failed"
    assert "in fails" in caught.value.cause.traceback


@nr.step(retry=nr.Retry(attempts=3, delay=0.0))
async def gives_up(_: Any, ctx: nr.Context) -> None:
    _attempt(ctx)
    raise nr.ChannelTimeout("box", 1.5)


@nr.step
async def tries_of(step: nr.Step[Any, Any], ctx: nr.Context) -> tuple[int, str]:
    try:
        await ctx.run(step)
    except nr.NoeticError as error:
        return ctx.state["tries"], error.kind
    raise AssertionError("no failure")


def test_an_error_of_ours_is_retried_and_passes_unchanged(harness: nr.Harness) -> None:
    with pytest.raises(nr.ChannelTimeout) as caught:
        harness.run(gives_up)
    assert (caught.value.channel_name, caught.value.timeout) == ("box", 1.5)
    assert harness.run(tries_of, gives_up) == (3, "channel_timeout")


@nr.step(retry=nr.Retry(attempts=5, delay=0.0))
async def raises_cancelled(_: Any, ctx: nr.Context) -> None:
    _attempt(ctx)
    raise nr.Cancelled("mine")


def test_a_cancellation_is_not_retried(harness: nr.Harness) -> None:
    assert harness.run(tries_of, raises_cancelled) == (1, "cancelled")


def test_a_body_that_raises_cancelled_without_an_abort_has_failed(harness: nr.Harness) -> None:
    run = harness.start(nr.spawn("s", raises_cancelled))
    with pytest.raises(nr.Cancelled, match="mine"):
        run.result()
    tree = run.tree()
    assert (run.status, tree.status, tree.children[0].status) == ("failed", "failed", "failed")


@nr.step(retry=nr.Retry(attempts=3, delay=60.0))
async def slow_to_retry(marks: str, ctx: nr.Context) -> None:
    with open(marks, "a") as out:
        out.write("x")
    raise ValueError("no")


def test_an_abort_ends_the_pause_between_attempts(harness: nr.Harness, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    run = harness.start(slow_to_retry, str(marks))
    wait_until(marks.exists, 30)
    started = time.monotonic()
    report = run.abort("stop it")
    assert time.monotonic() - started < 5
    assert report.settled == 1
    with pytest.raises(nr.Cancelled, match="stop it"):
        run.result()
    assert marks.read_text() == "x"


@nr.step(retry=nr.Retry(attempts=3, delay=0.0))
async def aborts_itself(marks: str, ctx: nr.Context) -> None:
    with open(marks, "a") as out:
        out.write("x")
    ctx.abort("own")
    raise ValueError("no")


def test_an_aborted_body_has_no_second_attempt(harness: nr.Harness, tmp_path: Path) -> None:
    with pytest.raises(nr.Cancelled, match="own"):
        harness.run(aborts_itself, str(tmp_path / "marks"))
    assert (tmp_path / "marks").read_text() == "x"


@nr.step
async def aborts_and_returns(_: Any, ctx: nr.Context) -> str:
    ctx.abort("late")
    return "a value"


def test_an_aborted_context_is_cancelled_even_if_its_body_returned(harness: nr.Harness) -> None:
    run = harness.start(aborts_and_returns)
    with pytest.raises(nr.Cancelled, match="late"):
        run.result()
    assert run.status == "cancelled"


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ("fixed", [2.0, 2.0, 2.0, 2.0]),
        ("linear", [2.0, 4.0, 6.0, 7.0]),
        ("exponential", [2.0, 4.0, 7.0, 7.0]),
    ],
)
def test_delays_between_attempts(backoff: Any, expected: list[float]) -> None:
    retry = nr.Retry(attempts=5, delay=2.0, backoff=backoff, max_delay=7.0)
    assert [retry.delay_for(attempt) for attempt in (1, 2, 3, 4)] == expected


# -- threads -------------------------------------------------------------------------------------


@nr.step
def waits_for_go(names: tuple[str, str], ctx: nr.Context) -> str:
    ready, go = (nr.channel(name, str, mode="queue", external=True) for name in names)
    ctx.sync.send(ready, "ready")
    return str(ctx.sync.recv(go, timeout=60))


@nr.step
async def hundred_threads(names: tuple[str, str], ctx: nr.Context) -> int:
    ready, go = (nr.channel(name, str, mode="queue", external=True) for name in names)
    waiting = [asyncio.create_task(ctx.run(waits_for_go, names)) for _ in range(100)]
    for _ in waiting:
        await ctx.recv(ready)
    await ctx.send_many(go, ["go"] * 100)
    return len(await asyncio.gather(*waiting))


def test_synchronous_bodies_do_not_wait_for_each_other(harness: nr.Harness) -> None:
    assert harness.run(hundred_threads, (unique("ready"), unique("go"))) == 100


@nr.step
def blocks_its_thread(path: str, ctx: nr.Context) -> None:
    Path(path).touch()
    while not ctx.aborted:
        threading.Event().wait(0.01)


def test_a_blocked_thread_leaves_status_log_and_abort_usable(
    harness: nr.Harness, tmp_path: Path
) -> None:
    mark = tmp_path / "started"
    run = harness.start(blocks_its_thread, str(mark))
    wait_until(mark.exists, 30)
    started = time.monotonic()
    assert run.status == "running"
    wait_until(lambda: run.tree().status == "running", 2)
    assert run.items() == []
    assert time.monotonic() - started < 2
    assert run.abort("enough").settled == 1


@nr.step
def returns_a_coroutine(value: int, ctx: nr.Context) -> Any:
    return one_argument(value)


def test_a_synchronous_function_may_return_a_coroutine(harness: nr.Harness) -> None:
    assert harness.run(returns_a_coroutine, 4) == 5
