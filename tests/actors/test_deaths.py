"""Processes that are killed: who hears of it, who goes on, what is cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import noetic_ray as nr
from tests.support.fleet import alive, fleet, pids, supervisor, wait_all_free, wait_gone
from tests.support.marks import add, mark, marked, text_of, wait_for
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def mortal(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness whose context actors the tests kill."""
    request.getfixturevalue("ray_cluster")
    with nr.Harness(f"deaths-{os.getpid()}", kill_after=2.0) as harness:
        yield harness


def kill(pid: int | str) -> None:
    os.kill(int(pid), signal.SIGKILL)


@nr.step
async def says_pid(_: Any, ctx: nr.Context) -> int:
    return os.getpid()


@nr.step
async def stays_there(given: tuple[str, str], ctx: nr.Context) -> str:
    """Say where it is and go on until told, or until the end comes."""
    folder, name = given
    mark(folder, f"{name}-id", ctx.id)
    mark(folder, name, os.getpid())
    try:
        while not marked(folder, "go"):
            await asyncio.sleep(0.01)
            add(folder, f"{name}-beats")
    finally:
        mark(folder, f"{name}-end", repr(ctx.abort_reason))
    return name


@nr.step
async def has_children_elsewhere(folder: str, ctx: nr.Context) -> Any:
    mark(folder, "victim-id", ctx.id)
    mark(folder, "victim", os.getpid())
    return await asyncio.gather(
        ctx.spawn(has_a_child_here, (folder, "under")), ctx.spawn(stays_there, (folder, "below"))
    )


@nr.step
async def has_a_child_here(given: tuple[str, str], ctx: nr.Context) -> Any:
    folder, name = given
    mark(folder, name, os.getpid())
    return await ctx.spawn(stays_there, (folder, "deep"))


@nr.step
async def watches_a_victim(folder: str, ctx: nr.Context) -> tuple[str, str, str]:
    sibling = ctx.detach(stays_there, (folder, "sibling"))
    try:
        await ctx.spawn(has_children_elsewhere, folder)
    except nr.ContextLost as lost:
        # What the victim had started has ended before its parent hears of it.
        ended = marked(folder, "below-end") and marked(folder, "deep-end")
        mark(folder, "go")
        return lost.context_id, str(ended), await sibling
    return "", "", "not reached"


def test_a_killed_child_is_lost_its_subtree_aborted_and_its_siblings_go_on(
    mortal: nr.Harness, tmp_path: Path
) -> None:
    run = mortal.start(watches_a_victim, str(tmp_path))
    wait_for(tmp_path, "victim", "below", "deep", "sibling")
    kill(text_of(tmp_path, "victim"))
    lost_id, ended, sibling = run.result(20)
    assert lost_id == text_of(tmp_path, "victim-id")
    assert (ended, sibling) == ("True", "sibling")
    assert text_of(tmp_path, "below-end") == text_of(tmp_path, "deep-end") == "'parent lost'"
    status = {each.id: each.status for each in run.tree().walk()}
    assert status[run.id] == "completed"
    assert status[lost_id] == "lost"
    assert status[text_of(tmp_path, "below-id")] == "cancelled"
    assert status[text_of(tmp_path, "deep-id")] == "cancelled"
    assert status[text_of(tmp_path, "sibling-id")] == "completed"
    wait_all_free(mortal)


def test_a_run_whose_root_is_killed_fails_and_nothing_of_it_goes_on(
    mortal: nr.Harness, tmp_path: Path
) -> None:
    run = mortal.start(has_children_elsewhere, str(tmp_path))
    wait_for(tmp_path, "victim", "below", "deep")
    kill(text_of(tmp_path, "victim"))
    with pytest.raises(nr.ContextLost) as lost:
        run.result(20)
    assert lost.value.context_id == run.id
    assert text_of(tmp_path, "below-end") == text_of(tmp_path, "deep-end") == "'parent lost'"
    wait_until(lambda: run.status == "failed")
    below = [each.status for each in run.tree().walk()][1:]
    assert below == ["cancelled"] * 3
    assert [event.type for event in run.events()][-1] == "run.ended"
    wait_all_free(mortal)


def test_an_actor_that_died_idle_is_not_used_again(mortal: nr.Harness) -> None:
    first = mortal.run(says_pid)
    kill(first)
    wait_gone(first)
    wait_until(lambda: first not in pids(mortal))
    second = mortal.run(says_pid)
    assert second != first
    assert mortal.run(says_pid) in pids(mortal)
    wait_all_free(mortal)


@nr.step
async def kills_its_idle_child_actors(folder: str, ctx: nr.Context) -> list[str]:
    """A lone child's actor is kept for the next child; between them it dies."""
    ends = []
    for _ in range(3):
        pid = await ctx.spawn(says_pid)
        if pid == os.getpid():
            continue
        kill(pid)
        while alive(pid):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.2)  # death is heard of in milliseconds, the idle list kept longer
        ends.append("alive" if alive(await ctx.spawn(says_pid)) else "dead")
    return ends


def test_a_spawn_to_an_actor_that_died_in_the_idle_list_works(
    mortal: nr.Harness, tmp_path: Path
) -> None:
    ends = mortal.run(kills_its_idle_child_actors, str(tmp_path))
    assert ends
    assert set(ends) == {"alive"}
    wait_all_free(mortal)


@nr.step
async def spawns_beside_the_dying(folder: str, ctx: nr.Context) -> list[Any]:
    children = [ctx.detach(stays_there, (folder, f"c{n}")) for n in range(6)]
    ends: list[Any] = []
    for child in children:
        try:
            ends.append(await child)
        except nr.ContextLost as lost:
            ends.append(lost.context_id == child.id)
    return ends


def test_every_victim_is_named_and_the_others_finish(mortal: nr.Harness, tmp_path: Path) -> None:
    run = mortal.start(spawns_beside_the_dying, str(tmp_path))
    wait_for(tmp_path, *(f"c{n}" for n in range(6)))
    wait_until(lambda: run.tree().pid)
    root = run.tree().pid
    places = {f"c{n}": int(text_of(tmp_path, f"c{n}")) for n in range(6)}
    victims = sorted({pid for pid in places.values() if pid != root})[:2]
    for pid in victims:
        kill(pid)
    mark(tmp_path, "go")
    expected = [True if places[f"c{n}"] in victims else f"c{n}" for n in range(6)]
    ends = run.result(20)
    for end, wanted in zip(ends, expected, strict=True):
        assert end in (wanted, True) if wanted is True else end == wanted
    wait_all_free(mortal)


def test_contexts_of_several_levels_in_one_dead_actor_do_not_wait_for_each_other(
    make_harness: Any, tmp_path: Path
) -> None:
    harness = make_harness(placement=nr.Placement("shared", contexts_per_actor=2, max_actors=2))
    run = harness.start(zigzags, (str(tmp_path), 6))
    wait_for(tmp_path, "bottom")
    victims = {int(text_of(tmp_path, f"level-{n}")) for n in range(1, 7)} - {
        int(text_of(tmp_path, "level-6"))
    }
    assert victims
    kill(victims.pop())
    with pytest.raises(nr.ContextLost):
        run.result(15)
    wait_until(lambda: run.status == "failed", 15)
    wait_all_free(harness, 15)


@nr.step
async def zigzags(given: tuple[str, int], ctx: nr.Context) -> None:
    folder, levels = given
    mark(folder, f"level-{levels}", os.getpid())
    if levels:
        await ctx.spawn(zigzags, (folder, levels - 1))
        return
    mark(folder, "bottom")
    await asyncio.sleep(60)


@nr.step
async def flushes(folder: str, ctx: nr.Context) -> str:
    mark(folder, "there")
    while not marked(folder, "go"):
        await asyncio.sleep(0.01)
    try:
        await ctx.checkpoint()
    except nr.NoeticError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def test_without_its_journal_a_harness_says_so_and_nothing_hangs(
    make_harness: Any, tmp_path: Path
) -> None:
    harness = make_harness(placement=nr.Placement(warm=1))
    run = harness.start(flushes, str(tmp_path))
    wait_for(tmp_path, "there")
    ray.kill(ray.get_actor(f"{harness.name}:journal", namespace="noetic-ray"))
    mark(tmp_path, "go")
    assert "journal" in str(run.result(20))
    wait_until(lambda: run.status == "completed")
    with pytest.raises(nr.NoeticError, match="journal"):
        run.tree()
    with pytest.raises(nr.NoeticError, match="journal"):
        harness.run(says_pid)


@nr.step
async def receives(folder: str, ctx: nr.Context) -> str:
    box = nr.channel("deaths-box", int, mode="queue")
    mark(folder, ctx.id)
    try:
        await ctx.recv(box, timeout=None)
    except nr.ChannelClosed as closed:
        return str(closed.channel_name)
    return "not reached"


@nr.step
async def three_receivers(folder: str, ctx: nr.Context) -> list[str]:
    return list(await asyncio.gather(*(ctx.spawn(receives, folder) for _ in range(3))))


def test_receivers_of_a_dead_channel_actor_are_told_which_channel_closed(
    mortal: nr.Harness, tmp_path: Path
) -> None:
    run = mortal.start(three_receivers, str(tmp_path))
    wait_until(lambda: len(list(tmp_path.iterdir())) == 3, 20)
    actor = None
    while actor is None:
        with contextlib.suppress(ValueError):
            actor = ray.get_actor(f"{mortal.name}:channels", namespace="noetic-ray")
    ray.kill(actor)
    assert run.result(10) == ["deaths-box"] * 3


def test_without_its_supervisor_a_harness_is_lost_and_can_be_opened_again(
    make_harness: Any, tmp_path: Path
) -> None:
    harness = make_harness(placement=nr.Placement(warm=1))
    run = harness.start(stays_there, (str(tmp_path), "root"))
    wait_for(tmp_path, "root")
    everything = pids(harness)
    ray.kill(supervisor(harness))
    with pytest.raises((nr.ContextLost, nr.ConfigError)):
        run.result(20)
    wait_until(lambda: run.status == "failed")
    for pid in everything:
        wait_gone(pid)
    with pytest.raises(nr.ConfigError) as lost:
        harness.run(says_pid)
    assert lost.value.code == "HARNESS_LOST"
    harness.close()
    with nr.Harness(harness.name, placement=nr.Placement(warm=1)) as again:
        assert again.run(says_pid) in pids(again)


def test_the_report_of_the_fleet_is_plain_data(mortal: nr.Harness) -> None:
    mortal.run(says_pid)
    wait_all_free(mortal)
    for each in fleet(mortal):
        assert set(each) == {"id", "pid", "node", "ready", "tainted", "load", "leases"}
        assert each["load"] == 0
        assert each["leases"] == {}
