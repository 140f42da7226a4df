"""Aborts: who is reached, with what reason, how fast, and what still works afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.marks import add, beats, mark, marked, text_of, wait_for
from tests.support.wait import wait_until

numbers = itertools.count()
quiet = nr.channel("abort-quiet", int, mode="queue", external=True)


@nr.step
async def waits(folder: str, ctx: nr.Context) -> None:
    """Say where it is, then wait, then say why that ended."""
    name = f"{ctx.depth}-{ctx.id}"
    mark(folder, f"at-{name}")
    try:
        await ctx.recv(quiet, timeout=None)
    except nr.Cancelled as cut:
        mark(folder, f"cut-{name}", repr(cut.reason))
        raise


@nr.step
async def passes_down(folder: str, ctx: nr.Context) -> None:
    if ctx.depth < 2:
        try:
            await ctx.spawn(passes_down, folder)
        finally:
            mark(folder, f"cut-{ctx.depth}-{ctx.id}", repr(ctx.abort_reason))
    await ctx.run(waits, folder)


def reasons(folder: Path) -> list[str]:
    """The reasons given to contexts, by depth."""
    return [path.read_text() for path in sorted(folder.glob("cut-*"))]


def at_depth(folder: Path, depth: int) -> bool:
    return any(folder.glob(f"at-{depth}-*"))


def wait_at_depth(folder: Path, depth: int) -> None:
    wait_until(lambda: at_depth(folder, depth), 20)


def outcome(run: Any) -> str | None:
    """The reason an aborted run's result gives."""
    with pytest.raises(nr.Cancelled) as raised:
        run.result(20)
    return raised.value.reason


# -- reasons -----------------------------------------------------------------------------------


def test_everything_below_is_aborted_with_the_reason_before_the_call_returns(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(passes_down, str(tmp_path))
    wait_at_depth(tmp_path, 2)
    report = run.abort("stop")
    assert reasons(tmp_path) == ["'stop'"] * 3
    assert (report.reached, report.settled, report.killed, report.abandoned) == (3, 3, 0, 0)
    assert {kind for _, kind in report.contexts} == {"settled"}
    assert len({id for id, _ in report.contexts}) == 3
    assert report.elapsed < 3
    assert [each.status for each in run.tree().walk()] == ["cancelled"] * 3


def test_without_a_reason_children_are_told_that_their_parent_was_aborted(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(passes_down, str(tmp_path))
    wait_at_depth(tmp_path, 2)
    run.abort()
    assert reasons(tmp_path) == ["None", "'parent context aborted'", "'parent context aborted'"]
    assert outcome(run) == "context aborted"


@nr.step
async def aborts_twice(_: Any, ctx: nr.Context) -> None:
    ctx.abort("first")
    ctx.abort("second")
    await asyncio.sleep(30)


def test_a_context_keeps_the_first_reason_it_gave_itself(harness: nr.Harness) -> None:
    assert outcome(harness.start(aborts_twice)) == "first"


@nr.step
async def lingers(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        mark(folder, "cut", ctx.abort_reason)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.4)
        mark(folder, "reason", ctx.abort_reason)


def test_the_first_reason_stays(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(lingers, str(tmp_path))
    wait_for(tmp_path, "there")
    first = threading.Thread(target=run.abort, args=("first",))
    first.start()
    wait_for(tmp_path, "cut")
    run.abort("second")
    first.join(20)
    assert text_of(tmp_path, "reason") == "first"
    assert outcome(run) == "first"


@nr.step
async def aborts_child_then_itself(folder: str, ctx: nr.Context) -> None:
    child = ctx.detach(lingers, folder)
    while not marked(folder, "there"):
        await asyncio.sleep(0.01)
    child.abort("own")
    while not marked(folder, "cut"):
        await asyncio.sleep(0.01)
    ctx.abort("parent's")


def test_a_child_aborted_earlier_keeps_its_own_reason(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(aborts_child_then_itself, str(tmp_path))
    assert outcome(run) == "parent's"
    run.abort()
    assert text_of(tmp_path, "reason") == "own"


@nr.step
async def starts_and_aborts(folder: str, ctx: nr.Context) -> None:
    for _ in range(3):
        ctx.detach(waits, folder)
    ctx.abort("at once")
    await asyncio.sleep(30)


def test_children_overtaken_by_an_abort_never_run_a_line(
    harness: nr.Harness, tmp_path: Path
) -> None:
    started = time.monotonic()
    run = harness.start(starts_and_aborts, str(tmp_path))
    assert outcome(run) == "at once"
    run.abort()
    assert time.monotonic() - started < 2
    assert not any(tmp_path.iterdir())
    assert [each.status for each in run.tree().walk()] == ["cancelled"] * 4


@nr.step
async def tries_everything_aborted(folder: str, ctx: nr.Context) -> None:
    ctx.abort("too late")
    for name, call in (
        ("spawn", lambda: ctx.spawn(waits, folder)),
        ("run", lambda: ctx.run(waits, folder)),
        ("checkpoint", ctx.checkpoint),
    ):
        try:
            await call()
        except nr.Cancelled as cut:
            mark(folder, name, cut.reason)
    try:
        ctx.detach(waits, folder)
    except nr.Cancelled as cut:
        mark(folder, "detach", cut.reason)


def test_an_aborted_context_starts_nothing_new(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(tries_everything_aborted, str(tmp_path))
    assert outcome(run) == "too late"
    for name in ("spawn", "run", "checkpoint", "detach"):
        assert text_of(tmp_path, name) == "too late"
    assert run.tree().children == []


@nr.step
async def aborts_itself_among_others(folder: str, ctx: nr.Context) -> str:
    if ctx.depth == 0:
        sibling = ctx.detach(returns_when_told, folder)
        with contextlib.suppress(nr.Cancelled):
            await ctx.spawn(aborts_itself_among_others, folder)
        mark(folder, "told")
        return f"{ctx.aborted} {await sibling}"
    child = ctx.detach(waits, folder)
    while not at_depth(Path(folder), 2):
        await asyncio.sleep(0.01)
    ctx.abort("enough")
    await child
    return "not reached"


@nr.step
async def returns_when_told(folder: str, ctx: nr.Context) -> str:
    while not marked(folder, "told"):
        await asyncio.sleep(0.01)
    return str(ctx.aborted)


def test_an_abort_goes_down_only(harness: nr.Harness, tmp_path: Path) -> None:
    assert harness.run(aborts_itself_among_others, str(tmp_path)) == "False False"
    wait_until(lambda: bool(reasons(tmp_path)), 20)  # nobody waits for a detached child
    assert reasons(tmp_path) == ["'enough'"]


# -- what is cut -------------------------------------------------------------------------------


@nr.step
async def in_recv(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    await ctx.recv(quiet, timeout=30)


@nr.step
async def in_endless_recv(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    await ctx.recv(quiet, timeout=None)


@nr.step
async def in_send(folder: str, ctx: nr.Context) -> None:
    full = nr.channel(f"abort-full-{ctx.id}", int, mode="queue", capacity=1)
    await ctx.send(full, 1)
    mark(folder, "there")
    await ctx.send(full, 2)


@nr.step
async def in_subscribe(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    async for _ in ctx.subscribe(quiet):
        pass


@nr.step
async def in_spawn(folder: str, ctx: nr.Context) -> None:
    await ctx.spawn(in_sleep, folder)


@nr.step
async def in_detached_result(folder: str, ctx: nr.Context) -> None:
    await ctx.detach(in_sleep, folder).result()


@nr.step
async def in_sleep(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    await asyncio.sleep(30)


@nr.step
async def in_gather(folder: str, ctx: nr.Context) -> None:
    await asyncio.gather(ctx.run(in_sleep, folder), ctx.recv(quiet, timeout=None))


@nr.step
async def in_model_call(folder: str, ctx: nr.Context) -> None:
    await ctx.run(nr.call_model("asks", "hangs", instructions=folder), "hello")


@nr.step
async def in_parallel_paths(folder: str, ctx: nr.Context) -> None:
    await ctx.run(nr.in_parallel("paths", [in_sleep, in_recv]), folder)


@nr.step(retry=nr.Retry(attempts=3, delay=30.0))
async def in_backoff(folder: str, ctx: nr.Context) -> None:
    add(folder, "attempts")
    mark(folder, "there")
    raise ValueError("again")


WAITING = [
    in_recv,
    in_endless_recv,
    in_send,
    in_subscribe,
    in_spawn,
    in_detached_result,
    in_sleep,
    in_gather,
    in_model_call,
    in_parallel_paths,
    in_backoff,
]


@pytest.mark.parametrize("step", WAITING, ids=lambda step: step.id)
def test_whatever_waits_is_cut_at_once(harness: nr.Harness, tmp_path: Path, step: Any) -> None:
    run = harness.start(step, str(tmp_path))
    wait_for(tmp_path, "there")
    report = run.abort("user pressed stop")
    assert report.elapsed < 0.9
    assert report.settled == report.reached > 0
    assert outcome(run) == "user pressed stop"
    assert run.status == "cancelled"


@nr.step
async def notes_the_error(folder: str, ctx: nr.Context) -> None:
    step = {each.id: each for each in WAITING}[text_of(folder, "step")]
    try:
        await step(folder, ctx)
    except BaseException as error:
        mark(folder, "error", f"{type(error).__name__} {getattr(error, 'reason', '')}")
        raise


@pytest.mark.parametrize(
    "step", [in_recv, in_send, in_subscribe, in_spawn, in_detached_result, in_parallel_paths],
    ids=lambda step: step.id,
)  # fmt: skip
def test_a_context_operation_that_is_cut_raises_cancelled_with_the_reason(
    harness: nr.Harness, tmp_path: Path, step: Any
) -> None:
    mark(tmp_path, "step", step.id)
    run = harness.start(notes_the_error, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort("enough")
    assert text_of(tmp_path, "error") == "Cancelled enough"


@nr.step
async def spawns_a_slow_leaver(folder: str, ctx: nr.Context) -> None:
    try:
        await ctx.spawn(leaves_slowly, folder)
    except BaseException as error:
        mark(folder, "error", type(error).__name__)
        raise


@nr.step
async def leaves_slowly(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    for _ in range(2):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
    mark(folder, "left")


def test_a_parent_waits_for_its_child_and_still_sees_cancelled(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(spawns_a_slow_leaver, str(tmp_path))
    wait_for(tmp_path, "there")
    report = run.abort("slowly")
    assert marked(tmp_path, "left")
    assert text_of(tmp_path, "error") == "Cancelled"
    assert report.settled == 2


@nr.step(id="counts")
async def counts(folder: str, ctx: nr.Context) -> str:
    add(folder, "turns")
    if beats(folder) == 2:
        ctx.abort("second turn")
    return folder


def test_a_loop_stops_with_the_turn_that_aborts(harness: nr.Harness, tmp_path: Path) -> None:
    loop = nr.loop("turns", [counts], until=nr.until.max_steps(10))
    assert outcome(harness.start(loop, str(tmp_path))) == "second turn"
    assert beats(tmp_path) == 2


def test_no_attempt_follows_an_abort_during_the_pause(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(in_backoff, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort()
    assert len(text_of(tmp_path, "attempts")) == 1


@nr.step(retry=nr.Retry(attempts=5, delay=0.0))
async def raises_cancelled(folder: str, ctx: nr.Context) -> None:
    add(folder, "attempts")
    raise nr.Cancelled("of my own")


def test_a_body_that_raises_cancelled_itself_failed_and_is_not_retried(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(raises_cancelled, str(tmp_path))
    assert outcome(run) == "of my own"
    run.abort()
    assert run.status == "failed"
    assert len(text_of(tmp_path, "attempts")) == 1


# -- what the body may still do ----------------------------------------------------------------


@nr.step
async def swallows(folder: str, ctx: nr.Context) -> str:
    mark(folder, "there")
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    return "a value all the same"


@nr.step
async def swallows_cancelled(folder: str, ctx: nr.Context) -> str:
    mark(folder, "there")
    with contextlib.suppress(nr.Cancelled):
        await ctx.recv(quiet, timeout=None)
    return "a value all the same"


@nr.step
async def fails_instead(folder: str, ctx: nr.Context) -> str:
    mark(folder, "there")
    try:
        await asyncio.sleep(30)
    finally:
        raise ValueError("instead")


@pytest.mark.parametrize(
    "step", [swallows, swallows_cancelled, fails_instead], ids=lambda step: step.id
)
def test_an_aborted_context_is_cancelled_whatever_its_body_makes_of_it(
    harness: nr.Harness, tmp_path: Path, step: Any
) -> None:
    run = harness.start(step, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort("done")
    assert outcome(run) == "done"
    assert run.status == run.tree().status == "cancelled"


async def says(folder: str, name: str, seconds: float) -> None:
    await asyncio.sleep(seconds)
    mark(folder, name)


@nr.step
async def cleans_up(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    try:
        await asyncio.sleep(30)
    finally:
        await asyncio.gather(says(folder, "one", 0.2), says(folder, "two", 0.3))
        await asyncio.wait_for(says(folder, "three", 0.1), 5)
        started = time.monotonic()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        mark(folder, "cut", time.monotonic() - started)


def test_cleanup_may_await_and_is_cut_after_a_second(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(cleans_up, str(tmp_path))
    wait_for(tmp_path, "there")
    report = run.abort()
    assert all(marked(tmp_path, name) for name in ("one", "two", "three"))
    assert float(text_of(tmp_path, "cut")) <= 1.1
    assert report.settled == 1


@nr.step
async def talks_when_aborted(folder: str, ctx: nr.Context) -> None:
    box = nr.channel(text_of(folder, "box"), int, mode="queue", capacity=2, external=True)
    await ctx.send(box, 1)
    ctx.abort("quiet now")
    for name, call in (
        ("send", lambda: ctx.send(box, 2)),
        ("full", lambda: ctx.send(box, 3)),
        ("recv", lambda: ctx.recv(box)),
        ("try_recv", lambda: ctx.try_recv(box)),
    ):
        try:
            mark(folder, name, await call())
        except nr.Cancelled as cut:
            mark(folder, name, f"cut: {cut.reason}")
        except asyncio.CancelledError:
            mark(folder, name, "interrupted")


@nr.step
async def drains(name: str, ctx: nr.Context) -> list[int]:
    box = nr.channel(name, int, mode="queue", capacity=2, external=True)
    found = []
    while (value := await ctx.try_recv(box)) is not None:
        found.append(value)
    return found


def test_on_an_aborted_context_only_what_need_not_wait_works(
    harness: nr.Harness, tmp_path: Path
) -> None:
    name = f"abort-box-{next(numbers)}"
    mark(tmp_path, "box", name)
    run = harness.start(talks_when_aborted, str(tmp_path))
    assert outcome(run) == "quiet now"
    said = {each: text_of(tmp_path, each) for each in ("send", "full", "recv", "try_recv")}
    first = "interrupted" if said["send"] == "interrupted" else "None"
    assert said == {
        "send": first,
        "full": "cut: quiet now",
        "recv": "cut: quiet now",
        "try_recv": "1",
    }
    assert harness.run(drains, name) == [2]


@nr.step
async def parks_a_send(folder: str, ctx: nr.Context) -> None:
    box = nr.channel(text_of(folder, "box"), int, mode="queue", capacity=1, external=True)
    await ctx.send(box, 1)
    mark(folder, "there")
    await ctx.send(box, 2, timeout=None)


@nr.step
async def drains_one(name: str, ctx: nr.Context) -> list[int]:
    box = nr.channel(name, int, mode="queue", capacity=1, external=True)
    found = []
    while (value := await ctx.try_recv(box)) is not None:
        found.append(value)
    return found


def test_the_value_of_a_parked_send_is_dropped_with_its_sender(
    harness: nr.Harness, tmp_path: Path
) -> None:
    name = f"abort-box-{next(numbers)}"
    mark(tmp_path, "box", name)
    run = harness.start(parks_a_send, str(tmp_path))
    wait_for(tmp_path, "there")
    run.abort("producer cancelled")
    assert outcome(run) == "producer cancelled"
    assert harness.run(drains_one, name) == [1]


@nr.step
async def one_of_two_receivers(given: tuple[str, str], ctx: nr.Context) -> Any:
    folder, name = given
    box = nr.channel(name, int, mode="queue", external=True)
    if ctx.depth == 1:
        mark(folder, ctx.id)
        return await ctx.recv(box, timeout=30)
    one = ctx.detach(one_of_two_receivers, given)
    while not marked(folder, one.id):
        await asyncio.sleep(0.01)
    other = ctx.detach(one_of_two_receivers, given)
    while not marked(folder, other.id):
        await asyncio.sleep(0.01)
    one.abort("not you")
    try:
        await one
    except nr.Cancelled as cut:
        await ctx.send(box, 7)
        return cut.reason, await other
    return "not reached"


def test_a_value_goes_to_the_receiver_that_is_left(harness: nr.Harness, tmp_path: Path) -> None:
    given = (str(tmp_path), f"abort-pair-{next(numbers)}")
    assert harness.run(one_of_two_receivers, given) == ("not you", 7)


# -- detached children, and what is over -------------------------------------------------------


@nr.step
async def leaves_a_child(folder: str, ctx: nr.Context) -> str:
    ctx.detach(waits, folder)
    while not at_depth(Path(folder), 1):
        await asyncio.sleep(0.01)
    return "gone ahead"


def test_a_detached_child_is_reached_after_its_parent_has_a_result(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(leaves_a_child, str(tmp_path))
    assert run.result(20) == "gone ahead"
    assert run.status == "running"
    report = run.abort("the rest too")
    assert reasons(tmp_path) == ["'the rest too'"]
    assert run.status == "completed"
    assert report.settled == report.reached == 2
    assert [each.status for each in run.tree().children] == ["cancelled"]


@nr.step
async def spawns_some_and_waits(folder: str, ctx: nr.Context) -> None:
    await ctx.spawn(returns_at_once, 1)
    with contextlib.suppress(nr.StepFailed):
        await ctx.spawn(fails_at_once, 1)
    await ctx.run(nr.in_parallel("some", [returns_at_once] * 3), 1)
    await ctx.detach(returns_at_once, 1)
    await ctx.run(waits, folder)


@nr.step
async def returns_at_once(given: Any, ctx: nr.Context) -> Any:
    return given


@nr.step
async def fails_at_once(given: Any, ctx: nr.Context) -> Any:
    raise ValueError(given)


def test_children_that_have_settled_are_no_longer_reached(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(spawns_some_and_waits, str(tmp_path))
    wait_at_depth(tmp_path, 0)
    report = run.abort("only me")
    assert report.contexts == ((run.id, "settled"),)
    assert [each.status for each in run.tree().children].count("completed") == 5


def test_an_abort_after_the_end_changes_nothing(harness: nr.Harness) -> None:
    run = harness.start(returns_at_once, 5)
    assert run.result(20) == 5
    run.abort("while it settles")
    report = run.abort("too late")
    assert (report.reached, report.contexts) == (0, ())
    assert run.status == "completed"
    assert run.result() == 5


# -- threads -----------------------------------------------------------------------------------


@nr.step
def aborts_in_a_thread(folder: str, ctx: nr.Context) -> None:
    ctx.abort("from a thread")
    mark(folder, "flag", ctx.aborted)
    try:
        ctx.sync.recv(quiet, timeout=None)
    except nr.Cancelled as cut:
        mark(folder, "recv", cut.reason)
    mark(folder, "try_recv", ctx.sync.try_recv(quiet, default=-1))


def test_a_thread_sees_the_flag_it_raised_at_once(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(aborts_in_a_thread, str(tmp_path))
    assert outcome(run) == "from a thread"
    said = [text_of(tmp_path, name) for name in ("flag", "recv", "try_recv")]
    assert said == ["True", "from a thread", "-1"]


@nr.step
def blocked_recv(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    ctx.sync.recv(quiet, timeout=None)


@nr.step
def blocked_spawn(folder: str, ctx: nr.Context) -> None:
    ctx.sync.spawn(in_sleep, folder)


@nr.step
def blocked_run(folder: str, ctx: nr.Context) -> None:
    ctx.sync.run(in_sleep, folder)


@nr.step
def polls_the_flag(folder: str, ctx: nr.Context) -> None:
    mark(folder, "there")
    while True:
        ctx.raise_if_aborted()
        time.sleep(0.01)


@pytest.mark.parametrize(
    "step", [blocked_recv, blocked_spawn, blocked_run, polls_the_flag], ids=lambda step: step.id
)
def test_synchronous_bodies_are_cut_at_once(harness: nr.Harness, tmp_path: Path, step: Any) -> None:
    run = harness.start(step, str(tmp_path))
    wait_for(tmp_path, "there")
    report = run.abort("threads too")
    assert report.elapsed < 0.9
    assert report.settled == report.reached
    assert outcome(run) == "threads too"


# -- a conversation stays usable ---------------------------------------------------------------


@nr.tool
async def works(n: int, ctx: nr.Context) -> str:
    """Return at once for 0; else hang."""
    folder = ctx.state["folder"]
    if n == 0:
        return "zero"
    mark(folder, f"there-{n}")
    await asyncio.sleep(30)
    return "never"


@nr.step
async def asks_for_three(folder: str, ctx: nr.Context) -> None:
    await ctx.run(nr.call_model("asks", "calls_three", tools=[works]), "go")


def test_every_call_of_an_aborted_round_has_an_output(harness: nr.Harness, tmp_path: Path) -> None:
    run = harness.start(asks_for_three, str(tmp_path), state={"folder": str(tmp_path)})
    wait_for(tmp_path, "there-1", "there-2")
    run.abort("in the middle")
    items = run.items()
    calls = [item.call_id for item in items if isinstance(item, nr.FunctionCallItem)]
    outputs = [item for item in items if isinstance(item, nr.FunctionCallOutputItem)]
    assert [item.call_id for item in outputs] == calls
    assert [item.status for item in outputs] == ["completed", "incomplete", "incomplete"]
    assert outputs[0].output == "zero"
    assert all("cancelled" in str(item.output) for item in outputs[1:])
