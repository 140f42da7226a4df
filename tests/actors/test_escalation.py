"""Bodies that do not want to end, and loops that are held up."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.fleet import alive, fleet, pids, wait_all_free, wait_gone
from tests.support.marks import add, beats, mark, marked, text_of, wait_for
from tests.support.wait import stays, wait_until


@nr.step
async def says_pid(_: Any, ctx: nr.Context) -> int:
    return os.getpid()


@pytest.fixture(scope="module")
def own(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """Contexts have processes of their own."""
    request.getfixturevalue("ray_cluster")
    with nr.Harness(f"escalation-own-{os.getpid()}", kill_after=2.0) as harness:
        yield harness


@pytest.fixture(scope="module", params=["shared", "inline"])
def crowded(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """Contexts share a process: an actor's, or this one."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    name = f"escalation-{request.param}-{os.getpid()}"
    with nr.Harness(name, kill_after=2.0, placement=request.param) as harness:
        yield harness


@nr.step
async def refuses_to_end(folder: str, ctx: nr.Context) -> None:
    """Swallow every cancellation, and try to have effects after the end."""
    mark(folder, "pid", os.getpid())
    while not (marked(folder, "append-refused") and marked(folder, "send-refused")):
        try:
            await asyncio.sleep(0.02)
            await has_effects(folder, ctx)
        except BaseException:
            add(folder, "cancels")


async def has_effects(folder: str, ctx: nr.Context) -> None:
    if not ctx.aborted:
        return
    box = nr.channel("escalation-late", str, mode="queue")
    try:
        ctx.item_log.append(nr.assistant_message("late"))
    except nr.Cancelled:
        mark(folder, "append-refused")
    try:
        await ctx.send(box, "late", timeout=0)
    except nr.Cancelled:
        mark(folder, "send-refused")


def test_a_body_that_never_ends_is_killed_with_its_own_process(
    own: nr.Harness, tmp_path: Path
) -> None:
    harness = own
    run = harness.start(refuses_to_end, str(tmp_path))
    wait_for(tmp_path, "pid")
    report = run.abort("enough")
    assert (report.reached, report.killed, report.abandoned) == (1, 1, 0)
    assert report.contexts == ((run.id, "killed"),)
    assert 1.9 < report.elapsed < 5
    wait_gone(int(text_of(tmp_path, "pid")))
    with pytest.raises(nr.Cancelled, match="enough"):
        run.result()
    assert run.status == run.tree().status == "cancelled"
    assert harness.run(says_pid) != int(text_of(tmp_path, "pid"))
    wait_all_free(harness)


@nr.step
async def beats_until_told(folder: str, ctx: nr.Context) -> int:
    mark(folder, "neighbour", os.getpid())
    while not marked(folder, "enough"):
        add(folder, "neighbour-beats")
        await asyncio.sleep(0.01)
    return os.getpid()


def test_one_that_shares_its_process_is_abandoned_and_what_it_does_later_is_refused(
    crowded: nr.Harness, tmp_path: Path
) -> None:
    harness = crowded
    neighbour = harness.start(beats_until_told, str(tmp_path))
    run = harness.start(refuses_to_end, str(tmp_path))
    wait_for(tmp_path, "pid", "neighbour")
    assert text_of(tmp_path, "pid") == text_of(tmp_path, "neighbour")
    report = run.abort("enough")
    assert report.contexts == ((run.id, "abandoned"),)
    assert (report.reached, report.killed, report.abandoned) == (1, 0, 1)
    assert report.elapsed < 5
    items = len(run.items())
    wait_for(tmp_path, "append-refused", "send-refused")
    assert len(run.items()) == items
    assert run.tree().status == "cancelled"
    mark(tmp_path, "enough")
    assert str(neighbour.result(20)) == text_of(tmp_path, "neighbour")


@nr.step
async def never_ends_at_all(folder: str, ctx: nr.Context) -> None:
    mark(folder, "stubborn", os.getpid())
    while True:
        try:
            await asyncio.sleep(0.05)
        except BaseException:
            add(folder, "cancels")


@nr.step
async def hosts_it_inline(folder: str, ctx: nr.Context) -> str:
    paths = nr.in_parallel("race", [returns_when_stubborn, never_ends_at_all], mode="race",
                           placement="inline")  # fmt: skip
    await ctx.run(paths, folder)
    return f"still in {os.getpid()}"


@nr.step
async def returns_when_stubborn(folder: str, ctx: nr.Context) -> None:
    while not marked(folder, "stubborn"):
        await asyncio.sleep(0.01)


def test_a_process_is_not_killed_for_a_child_it_hosts_inline(
    own: nr.Harness, tmp_path: Path
) -> None:
    harness = own
    pid = int(str(harness.run(hosts_it_inline, str(tmp_path))).split()[-1])
    assert int(text_of(tmp_path, "stubborn")) == pid
    wait_gone(pid)  # nobody lives there any more but what was abandoned
    assert harness.run(says_pid) != pid
    wait_all_free(harness)


@nr.step
async def spins(folder: str, ctx: nr.Context) -> None:
    await asyncio.sleep(0)
    mark(folder, "spins", os.getpid())
    while True:
        pass


def test_a_spinning_body_is_stopped_and_its_neighbours_go_on(
    crowded: nr.Harness, tmp_path: Path
) -> None:
    harness = crowded
    neighbour = harness.start(beats_until_told, str(tmp_path))
    wait_for(tmp_path, "neighbour")
    run = harness.start(spins, str(tmp_path))
    wait_for(tmp_path, "spins")
    report = run.abort("stop spinning")
    assert report.contexts == ((run.id, "settled"),)
    assert report.elapsed < 3
    with pytest.raises(nr.Cancelled, match="stop spinning"):
        run.result()
    before = len(text_of(tmp_path, "neighbour-beats"))
    wait_until(lambda: len(text_of(tmp_path, "neighbour-beats")) > before + 5)
    mark(tmp_path, "enough")
    assert str(neighbour.result(20)) == text_of(tmp_path, "spins")


@nr.step
async def blocks_for_good(folder: str, ctx: nr.Context) -> None:
    ctx.detach(beats_for_ever, folder)
    while not marked(folder, "child"):
        await asyncio.sleep(0.01)
    mark(folder, "blocked", os.getpid())
    time.sleep(300)


@nr.step
async def beats_for_ever(folder: str, ctx: nr.Context) -> None:
    mark(folder, "child", os.getpid())
    try:
        while True:
            await asyncio.sleep(0.01)
            add(folder, "child-beats")
    finally:
        mark(folder, "child-reason", ctx.abort_reason)


def test_a_loop_that_is_never_given_back_is_killed_and_its_children_end(
    own: nr.Harness, tmp_path: Path
) -> None:
    harness = own
    run = harness.start(blocks_for_good, str(tmp_path))
    wait_for(tmp_path, "blocked")
    report = run.abort("stuck")
    assert report.contexts == ((run.id, "killed"),)
    assert report.elapsed < 7
    wait_gone(int(text_of(tmp_path, "blocked")))
    assert text_of(tmp_path, "child-reason") == "parent lost"
    wait_all_free(harness)


@nr.step
async def holds_the_loop(folder: str, ctx: nr.Context) -> str:
    """Give the loop back only when the abort can be seen, or after a long time."""
    mark(folder, "there")
    until = time.monotonic() + 20
    while not ctx.aborted and time.monotonic() < until:
        time.sleep(0.01)
    mark(folder, "seen")
    return "seen"


def test_a_held_loop_delays_neither_status_nor_abort(own: nr.Harness, tmp_path: Path) -> None:
    harness = own
    run = harness.start(holds_the_loop, str(tmp_path))
    wait_for(tmp_path, "there")
    started = time.monotonic()
    assert run.status == "running"
    run.tree()
    harness.runs()
    assert time.monotonic() - started < 0.5
    report = run.abort("look up")
    assert report.elapsed < 0.5
    assert report.settled == 1
    assert marked(tmp_path, "seen")


@nr.tool
def slow_tool(folder: str) -> str:
    """Sleep in a thread."""
    mark(folder, "there")
    time.sleep(1.5)
    mark(folder, "slept")
    return "slept"


def test_a_sleeping_tool_delays_no_answer_and_its_context_settles_after_it(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(nr.invoke_tool("slow", slow_tool), {"folder": str(tmp_path)})
    wait_for(tmp_path, "there")
    started = time.monotonic()
    assert run.status == "running"
    assert run.tree().status in ("pending", "running")  # events travel for some milliseconds
    assert run.items() == []
    assert time.monotonic() - started < 0.5
    report = run.abort("no time")
    assert marked(tmp_path, "slept")
    assert report.settled == 1
    assert report.elapsed < 2.5
    with pytest.raises(nr.Cancelled):
        run.result()


@nr.step
async def heartbeat(given: tuple[str, int], ctx: nr.Context) -> None:
    folder, number = given
    while True:
        add(folder, f"leaf-{number}")
        await asyncio.sleep(0.03)


@nr.step
async def ten_leaves(given: tuple[str, int], ctx: nr.Context) -> None:
    folder, first = given
    leaves = [ctx.spawn(heartbeat, (folder, first + n)) for n in range(10)]
    await asyncio.gather(*leaves)


@nr.step
async def fifty_leaves(folder: str, ctx: nr.Context) -> None:
    await asyncio.gather(*(ctx.spawn(ten_leaves, (folder, 10 * n)) for n in range(5)))


@pytest.mark.parametrize("after", [0.001, 0.03, 0.1, "all"])
def test_nothing_lives_on_after_the_abort_of_a_wide_tree(
    own: nr.Harness, tmp_path: Path, after: Any
) -> None:
    run = own.start(fifty_leaves, str(tmp_path))
    if after == "all":
        wait_until(lambda: len(list(tmp_path.iterdir())) == 50, 60)
    else:
        threading.Event().wait(after)
    report = run.abort("fell the tree")
    left = beats(tmp_path)
    assert report.settled == report.reached >= 1
    if after == "all":
        assert report.reached == 56
    assert stays(lambda: beats(tmp_path) == left, 0.4)
    assert {each.status for each in run.tree().walk()} == {"cancelled"}
    wait_all_free(own)


def test_actors_stay_usable_after_their_contexts_were_aborted(own: nr.Harness) -> None:
    expected = pids(own)
    assert expected
    found = set(own.map(says_pid, range(60)))
    assert found <= pids(own)
    assert all(alive(pid) for pid in expected)
    assert not any(each["tainted"] for each in fleet(own))
