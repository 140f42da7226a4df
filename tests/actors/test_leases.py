"""Which process a context gets, and that every lease comes back."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.support.fleet import alive, fleet, pids, wait_all_free
from tests.support.marks import mark, marked, wait_for
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def small(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """At most four processes."""
    request.getfixturevalue("ray_cluster")
    placement = nr.Placement(max_actors=4, warm=1)
    with nr.Harness(f"leases-{os.getpid()}", placement=placement) as harness:
        yield harness


@nr.step
async def says_pid(_: Any, ctx: nr.Context) -> int:
    return os.getpid()


@nr.step
async def grandchild(_: Any, ctx: nr.Context) -> None:
    await asyncio.sleep(0.004)


@nr.step
async def child(number: int, ctx: nr.Context) -> None:
    await ctx.spawn(grandchild)
    await asyncio.sleep(0.002 * number)
    await ctx.spawn(grandchild)


@nr.step
async def three_children(_: Any, ctx: nr.Context) -> None:
    await asyncio.gather(*(ctx.spawn(child, number) for number in range(3)))
    await ctx.spawn(child, 1)


def test_a_hundred_aborts_at_any_moment_leave_no_lease_and_no_broken_actor(
    small: nr.Harness,
) -> None:
    moments = random.Random(7)
    ends: Counter[str] = Counter()
    for _ in range(100):
        run = small.start(three_children)
        threading.Event().wait(moments.uniform(0.0, 0.05))
        report = run.abort("race")
        assert report.reached == report.settled
        assert report.elapsed < 10
        ends[run.status] += 1
        if run.status == "cancelled":
            assert report.reached >= 1
    assert ends["cancelled"] > 20
    assert set(ends) <= {"cancelled", "completed"}
    wait_all_free(small)
    report_of_all = fleet(small)
    assert len(report_of_all) <= 4
    assert not any(each["tainted"] for each in report_of_all)
    assert set(small.map(says_pid, range(40))) == pids(small)
    wait_all_free(small)


@nr.step
async def goes_deeper(levels: int, ctx: nr.Context) -> int:
    if levels == 0:
        return 1
    below = await asyncio.gather(*(ctx.spawn(goes_deeper, levels - 1) for _ in range(2)))
    return 1 + sum(below)


def test_a_deep_tree_shares_four_processes_and_does_not_deadlock(small: nr.Harness) -> None:
    assert small.run(goes_deeper, 6) == 127
    assert len(fleet(small)) <= 4
    wait_all_free(small)


@nr.step
async def one_after_the_other(count: int, ctx: nr.Context) -> list[int]:
    return [await ctx.spawn(says_pid) for _ in range(count)]


def test_processes_are_used_again(small: nr.Harness) -> None:
    first = small.run(one_after_the_other, 5)
    second = small.run(one_after_the_other, 5)
    assert len(set(first)) == 1
    assert set(first) | set(second) <= pids(small)
    assert len(fleet(small)) <= 4
    wait_all_free(small, 3)


@nr.step
async def waits_for(given: tuple[str, str], ctx: nr.Context) -> int:
    folder, name = given
    mark(folder, f"at-{ctx.id}")
    while not marked(folder, name):
        await asyncio.sleep(0.01)
    return os.getpid()


def many_at_once(harness: nr.Harness, folder: Path, count: int) -> list[int]:
    """The processes of contexts that all run at the same time."""
    runs = [harness.start(waits_for, (str(folder), "go")) for _ in range(count)]
    wait_for(folder, *(f"at-{run.id}" for run in runs))
    mark(folder, "go")
    return [run.result(20) for run in runs]


def test_beyond_the_limit_contexts_share(small: nr.Harness, tmp_path: Path) -> None:
    used = Counter(many_at_once(small, tmp_path, 10))
    assert len(used) == 4
    assert max(used.values()) <= 7
    wait_all_free(small)


@nr.step
async def spawns_strictly(given: tuple[str, int], ctx: nr.Context) -> list[Any]:
    folder, count = given
    strict = nr.Placement("strict", max_actors=4)
    children = [ctx.spawn(waits_for, (folder, "go"), placement=strict) for _ in range(count)]
    running = [asyncio.create_task(each) for each in children]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION, timeout=5)
        return [each.exception() for each in running if each.done()]
    finally:
        mark(folder, "go")
        await asyncio.wait(running)


def test_strict_contexts_have_processes_of_their_own_or_fail_at_once(
    small: nr.Harness, tmp_path: Path
) -> None:
    @nr.step
    async def enough(folder: str, ctx: nr.Context) -> list[int]:
        strict = nr.Placement("strict", max_actors=4)
        found = [ctx.spawn(waits_for, (folder, "go"), placement=strict) for _ in range(3)]
        tasks = [asyncio.ensure_future(each) for each in found]
        while len(list(Path(folder).glob("at-*"))) < 3:
            await asyncio.sleep(0.01)
        mark(folder, "go")
        return [os.getpid(), *await asyncio.gather(*tasks)]

    used = small.run(enough, str(tmp_path))
    assert len(set(used)) == 4
    errors = small.run(spawns_strictly, (str(tmp_path), 4))
    assert len(errors) == 4
    assert all(isinstance(each, nr.ConfigError) for each in errors)
    assert {each.code for each in errors} == {"PLACEMENT_INFEASIBLE"}
    assert "4 contexts ask for a process of their own, 3 of max_actors=4" in str(errors[0])
    wait_all_free(small)


def test_what_no_node_can_host_is_refused_at_the_start(make_harness: Any) -> None:
    harness = make_harness(placement=nr.Placement(num_cpus=64, warm=0))
    with pytest.raises(nr.ConfigError, match=r"64 CPU.*2 CPU") as refused:
        harness.run(says_pid)
    assert refused.value.code == "PLACEMENT_INFEASIBLE"
    assert fleet(harness) == []


@nr.step
async def asks_for_too_much(_: Any, ctx: nr.Context) -> list[str]:
    codes = []
    for placement in (nr.Placement(num_gpus=3), nr.Placement(resources={"unobtainium": 1.0})):
        try:
            await ctx.spawn(says_pid, placement=placement)
        except nr.ConfigError as error:
            codes.append(error.code)
    return codes


def test_a_child_that_cannot_be_placed_leaves_no_lease(small: nr.Harness) -> None:
    assert small.run(asks_for_too_much) == ["PLACEMENT_INFEASIBLE"] * 2
    wait_all_free(small)
    assert len(fleet(small)) <= 4


def test_shared_contexts_are_packed(make_harness: Any, tmp_path: Path) -> None:
    placement = nr.Placement("shared", contexts_per_actor=4, warm=0)
    harness = make_harness(placement=placement)
    used = Counter(many_at_once(harness, tmp_path, 10))
    assert sorted(used.values()) == [2, 4, 4]
    wait_all_free(harness)


def test_idle_processes_stay_until_the_harness_closes(make_harness: Any) -> None:
    harness = make_harness(placement=nr.Placement(max_actors=2))
    harness.map(says_pid, range(6))
    mine = pids(harness)
    wait_all_free(harness)
    assert pids(harness) == mine
    harness.close()
    wait_until(lambda: not any(alive(pid) for pid in mine))
