"""Readers of a run's messages, trace and spaces: all of it, in order, once, whenever they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import noetic_ray as nr
from tests.support.marks import mark, marked, wait_for

Told = list[tuple[int | None, str]]


def told(events: list[nr.Event]) -> Told:
    return [(event.seq, event.type) for event in events]


def expect_whole(events: list[nr.Event]) -> None:
    """Numbers without gaps, from the run's start to its end."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].type == "run.started"
    assert [event.type for event in events].count("run.ended") == 1
    assert events[-1].type == "run.ended"


async def wait_mark(folder: str, name: str) -> None:
    while not marked(folder, name):
        await asyncio.sleep(0.005)


@nr.step
async def works_in_two_parts(folder: str, ctx: nr.Context) -> None:
    await does_a_bit_of_all(ctx, "first")
    mark(folder, "half")
    await wait_mark(folder, "go")
    await does_a_bit_of_all(ctx, "second")
    await ctx.spawn(does_more, "third")


@nr.step
async def does_more(name: str, ctx: nr.Context) -> None:
    await does_a_bit_of_all(ctx, name)


async def does_a_bit_of_all(ctx: nr.Context, name: str) -> None:
    node = ctx.trace.add({"n": name}, label=name).info("line", [1])
    id = ctx.messages.send(f"{name}")
    ctx.messages.append(id, "!")
    ctx.messages.replace(id, "?")
    space = await ctx.trace.create_space(id=name)
    await space.set("k", name)
    await space.delete("k")
    await space.clear()
    await ctx.trace.delete_space(name)
    node.set_output(1).set_metadata("k", 2).fail("no")
    ctx.trace.add(None, label=f"{name} 2").complete("out")


BIT = [
    *("trace.node_started", "trace.log", "message.sent", "message.appended", "message.replaced"),
    *("space.created", "space.set", "space.removed", "space.cleared", "space.deleted"),
    *("trace.node_updated", "trace.node_updated", "trace.log", "trace.node_failed"),
    *("trace.node_started", "trace.node_completed"),
]


def test_readers_get_history_then_what_comes_and_then_the_end(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(works_in_two_parts, str(tmp_path))
    with ThreadPoolExecutor(4) as threads:
        early = threads.submit(lambda: list(run.events()))
        wait_for(tmp_path, "half")
        middle = [threads.submit(lambda: list(run.events())) for _ in range(2)]
        awaited = threads.submit(lambda: asyncio.run(collected(run)))
        mark(tmp_path, "go")
        run.result(30)
        everything = early.result(30)
        expect_whole(everything)
        assert [told(each.result(30)) for each in (*middle, awaited)] == [told(everything)] * 3
    assert list(run.events()) == everything, "who comes late gets the same, and it ends"
    of_client = [event for event in everything if event.type.startswith(("trace", "message", "sp"))]
    of_root = [event.type for event in of_client if event.context_id == run.id]
    assert of_root == BIT * 2
    assert [event.type for event in of_client if event.context_id != run.id] == BIT
    times = [event.time for event in of_client if event.context_id == run.id]
    assert times == sorted(times)


async def collected(run: nr.Run[Any], since: int = 0) -> list[nr.Event]:
    return [event async for event in run.aevents(since)]


def test_a_reader_can_go_on_behind_any_event(harness: nr.Harness, tmp_path: Path) -> None:
    mark(tmp_path, "go")
    run = harness.start(works_in_two_parts, str(tmp_path))
    run.result(30)
    everything = list(run.events())
    for since in (1, 7, len(everything) - 1):
        assert list(run.events(since)) == everything[since:]
        assert asyncio.run(collected(run, since)) == everything[since:]
    assert list(run.events(len(everything))) == []


def test_what_events_say(harness: nr.Harness, tmp_path: Path) -> None:
    mark(tmp_path, "go")
    run = harness.start(works_in_two_parts, str(tmp_path))
    run.result(30)
    mine = [event for event in run.events() if event.context_id == run.id]
    data: dict[str, dict[str, Any]] = {}
    for event in mine:
        data.setdefault(event.type, event.data)
    node_id = data["trace.node_started"]["node_id"]
    assert data["trace.log"] == {
        "node_ids": [node_id],
        "level": "info",
        "message": "line",
        "data": [1],
    }
    assert data["trace.node_updated"] == {"node_id": node_id, "output": 1}
    failed = data["trace.node_failed"]
    assert failed.pop("duration") >= 0
    assert failed == {"node_id": node_id, "status": "failed", "error": "no"}
    completed = data["trace.node_completed"]
    assert completed.pop("duration") >= 0
    assert completed.pop("node_id") != node_id
    assert completed == {"status": "completed", "output": "out"}
    for kind, content in (("sent", "first"), ("appended", "!"), ("replaced", "?")):
        assert data[f"message.{kind}"] == {
            "message_id": "M1",
            "message": {"type": "text", "props": {"content": content}, "message_id": "M1"},
        }
    assert data["space.created"].keys() == {
        *("space_id", "label", "type", "icon", "description", "metadata"),
    }
    assert data["space.set"] == {"space_id": "first", "key": "k", "value": "first"}
    assert data["space.removed"] == {"space_id": "first", "key": "k"}
    assert data["space.cleared"] == data["space.deleted"] == {"space_id": "first"}


@nr.step
async def logs_in_a_burst(given: tuple[str, int], ctx: nr.Context) -> None:
    folder, count = given
    node = ctx.trace.add(None, label="root")
    mark(folder, "there")
    await wait_mark(folder, "go")
    for n in range(count):
        node.info("line", n)


def numbers(events: list[nr.Event]) -> list[int]:
    return [event.data["data"] for event in events if event.type == "trace.log"]


def test_a_burst_while_readers_come_is_neither_lost_nor_doubled(
    harness: nr.Harness, tmp_path: Path
) -> None:
    run = harness.start(logs_in_a_burst, (str(tmp_path), 200))
    wait_for(tmp_path, "there")
    with ThreadPoolExecutor(6) as threads:
        reading = [threads.submit(lambda: list(run.events())) for _ in range(3)]
        mark(tmp_path, "go")
        reading += [threads.submit(lambda: asyncio.run(collected(run))) for _ in range(3)]
        for each in reading:
            events = each.result(30)
            expect_whole(events)
            assert numbers(events) == list(range(200))


def test_a_slow_reader_holds_nobody_up_and_misses_nothing(
    harness: nr.Harness, tmp_path: Path
) -> None:
    mark(tmp_path, "go")
    run = harness.start(logs_in_a_burst, (str(tmp_path), 5000))
    slow: list[nr.Event] = []
    for event in run.events():
        if not slow:
            run.result(30)  # all of it happens while this reader stands at the first event
        slow.append(event)
    expect_whole(slow)
    assert numbers(slow) == list(range(5000))
    assert len(run.trace().nodes[0].logs) == 5000


async def test_readers_on_a_loop_share_it(
    make_harness: Callable[..., nr.Harness], tmp_path: Path
) -> None:
    harness = make_harness(placement="inline")
    run = await harness.astart(logs_in_a_burst, (str(tmp_path), 500))
    readers = [asyncio.ensure_future(collected(run)) for _ in range(3)]
    left = run.aevents()
    assert (await anext(left)).type == "run.started"
    await left.aclose()  # type: ignore[attr-defined]
    await asyncio.to_thread(wait_for, tmp_path, "there")
    mark(tmp_path, "go")
    await run
    first, *others = await asyncio.gather(*readers)
    expect_whole(first)
    assert numbers(first) == list(range(500))
    assert others == [first, first]
    assert [frame["id"] for frame in await run.amessages()] == []
    assert len((await run.atrace()).nodes) == 1
    assert await run.ashown() == []
