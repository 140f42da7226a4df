from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from noetic_ray.errors import NoeticError
from noetic_ray.items import item_from_json, user_message
from noetic_ray.journal.batch import Ack, Batch
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.events import Record
from noetic_ray.journal.local import LocalJournal

from .conftest import MakeSender, until


def _record(n: int = 0, run: str = "r", type_: str = "t", context: str = "c") -> Record:
    return (run, type_, context, time.time(), b'{"n":%d}' % n)


async def _append(core: JournalCore, sender: str, first: int, *records: Record) -> Ack:
    return await core.append(Batch(sender, first, list(records), False))


async def _until_parked(core: JournalCore, count: int = 1) -> None:
    await until(lambda: len(core._parking) >= count)


async def _data(core: JournalCore, run: str = "r") -> list[bytes]:
    return [entry[4] for entry in (await core.read(run, limit=100_000)).entries]


async def test_each_run_counts_for_itself(core: JournalCore) -> None:
    await _append(core, "s", 0, _record(0, "a"), _record(0, "b"), _record(1, "a"))
    await _append(core, "t", 0, _record(2, "a"))
    assert [entry[0] for entry in (await core.read("a")).entries] == [1, 2, 3]
    assert [entry[0] for entry in (await core.read("b")).entries] == [1]


async def test_what_is_sent_twice_is_kept_once(core: JournalCore) -> None:
    records = [_record(n) for n in range(6)]
    await _append(core, "s", 0, *records[:4])
    assert (await _append(core, "s", 0, *records[:4])).received == 4
    assert (await _append(core, "s", 2, *records[2:])).received == 6
    assert (await _append(core, "s", 0, *records[:2])).received == 6
    assert await _data(core) == [b'{"n":%d}' % n for n in range(6)]


async def test_what_a_sender_gave_up_leaves_no_gap_in_the_run(core: JournalCore) -> None:
    await _append(core, "s", 0, _record(0))
    assert (await _append(core, "s", 10, _record(10))).received == 11
    assert [entry[0] for entry in (await core.read("r")).entries] == [1, 2]


async def test_a_page_says_where_to_go_on(core: JournalCore) -> None:
    await _append(core, "s", 0, *(_record(n) for n in range(25)))
    seen: list[bytes] = []
    since = 0
    while len(seen) < 25:
        page = await core.read("r", since, limit=10)
        assert not page.ended
        seen += [entry[4] for entry in page.entries]
        since = page.since
    assert seen == [b'{"n":%d}' % n for n in range(25)]
    assert await core.read("r", since) == ([], 25, 0, False)


async def test_a_reader_waits_for_the_next_event(core: JournalCore) -> None:
    await _append(core, "s", 0, _record(0))
    reading = asyncio.create_task(core.read("r", since=1, wait=60))
    await _until_parked(core)
    await _append(core, "other", 0, _record(9, run="elsewhere"))
    await asyncio.sleep(0)
    assert not reading.done()
    await _append(core, "s", 1, _record(1))
    async with asyncio.timeout(5):
        assert (await reading).since == 2


async def test_a_reader_may_be_there_before_the_run(core: JournalCore) -> None:
    reading = asyncio.create_task(core.read("r", wait=60))
    await _until_parked(core)
    await _append(core, "s", 0, _record(0))
    async with asyncio.timeout(5):
        assert (await reading).since == 1


async def test_a_wait_ends_with_an_empty_page(core: JournalCore) -> None:
    assert await core.read("r", wait=0.001) == ([], 0, 0, False)
    assert not await core.has_run("r")
    assert await core.runs() == []


async def test_readers_that_leave_leave_nothing(core: JournalCore) -> None:
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(core.read("r", wait=60, deltas=True)) for _ in range(10)
    ]
    tasks.append(asyncio.create_task(core.items("r", "c", wait_for=1, wait=60)))
    tasks.append(asyncio.create_task(core.read_spans(wait=60)))
    await _until_parked(core, 12)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert len(core._parking) == 0
    assert core._runs == {}


async def test_many_followers_see_the_same_history(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport, max_delay=0.001)

    async def follow(since: int) -> list[int | None]:
        return [event.seq async for event in journal.follow("r", since)]

    followers = [asyncio.create_task(follow(0)) for _ in range(20)]
    for n in range(500):
        sender.emit("r", "t", "c", {"n": n})
        if n % 100 == 0:
            await sender.flush()
    await journal.end_run("r", sender.mark(), _record(0, type_="run.ended"))
    async with asyncio.timeout(10):
        assert await asyncio.gather(*followers) == [list(range(1, 502))] * 20
        assert await follow(0) == list(range(1, 502))
        assert await follow(499) == [500, 501]
        assert await follow(501) == []


async def test_a_run_ends_after_everything_its_senders_had(core: JournalCore) -> None:
    await _append(core, "one", 0, _record(0))
    ending = asyncio.create_task(
        core.end_run("r", {"one": 2, "two": 1}, _record(0, type_="run.ended"), timeout=60)
    )
    await _until_parked(core)
    await _append(core, "two", 0, _record(1))
    await _append(core, "one", 1, _record(2))
    async with asyncio.timeout(5):
        assert await ending == 4
    page = await core.read("r")
    assert [entry[1] for entry in page.entries] == ["t", "t", "t", "run.ended"]
    assert page.ended


async def test_a_sender_that_died_does_not_keep_a_run_open(
    core: JournalCore, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(5):
        end = _record(0, type_="run.ended")
        assert await core.end_run("r", {"dead": 5}, end, timeout=0.01) == 1
    assert "before all of its events arrived" in caplog.text
    await _append(core, "dead", 0, _record(0))
    page = await core.read("r")
    assert [entry[1] for entry in page.entries] == ["run.ended"]
    assert page.ended


async def test_a_run_that_is_started_again_goes_on(core: JournalCore) -> None:
    await _append(core, "s", 0, _record(0, type_="run.started"))
    await core.end_run("r", {}, _record(0, type_="run.ended"))
    reading = asyncio.create_task(core.read("r", since=2))
    assert (await reading).ended
    await _append(core, "s", 1, _record(0, type_="run.started"))
    page = await core.read("r")
    assert [entry[0] for entry in page.entries] == [1, 2, 3]
    assert not page.ended


async def test_items_are_paged_per_context(core: JournalCore, make_sender: MakeSender) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    items = [user_message(str(n)) for n in range(10)]
    for n, item in enumerate(items):
        sender.item("r", "ab"[n % 2], item)
    await sender.flush()
    page = await journal.items("r", "a", since=1, limit=3)
    assert [item_from_json(raw) for raw in page.items] == items[2:8:2]
    assert page.total == 5
    assert await journal.items("r", "nobody") == ([], 0)
    assert await journal.items("no run", "a") == ([], 0)


async def test_items_can_be_waited_for(core: JournalCore, make_sender: MakeSender) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    asking = asyncio.create_task(journal.items("r", "a", wait_for=2, wait=60))
    await _until_parked(core)
    sender.item("r", "a", user_message("1"))
    await sender.flush()
    await asyncio.sleep(0)
    assert not asking.done()
    sender.item("r", "a", user_message("2"))
    async with asyncio.timeout(5):
        assert (await asking).total == 2
    assert (await journal.items("r", "a", wait_for=3, wait=0.001)).total == 2


async def test_nobody_waits_for_items_of_an_ended_run(core: JournalCore) -> None:
    asking = asyncio.create_task(core.items("r", "a", wait_for=1, wait=60))
    await _until_parked(core)
    await core.end_run("r", {}, _record(0, type_="run.ended"))
    async with asyncio.timeout(5):
        assert await asking == ([], 0)


async def test_runs_are_listed_with_what_they_used(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    sender.emit("r", "run.started", "r", {"step": "main"})
    sender.emit("r", "context.started", "r", {"step": "main"})
    sender.emit("r", "context.started", "c", {"parent_id": "r"})
    used = {"input": 3, "output": 4, "total": 7, "cached": None}
    sender.emit("r", "usage.updated", "c", {"tokens": used, "cost": 0.5})
    await sender.flush()
    (info,) = await journal.runs()
    assert (info.id, info.status, info.step, info.contexts) == ("r", "running", "main", 2)
    assert (info.tokens.total, info.cost, info.ended_at) == (7, 0.5, None)
    await journal.end_run("r", sender.mark(), ("r", "run.ended", "r", 9.0, b'{"status":"failed"}'))
    (info,) = await journal.runs()
    assert (info.status, info.ended_at) == ("failed", 9.0)
    assert await journal.has_run("r")


async def test_a_closed_journal_says_so_and_sends_readers_home(make_sender: MakeSender) -> None:
    core = JournalCore()
    await _append(core, "s", 0, _record(0))
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(core.read("r", since=1, wait=60)),
        asyncio.create_task(core.items("r", "c", wait_for=1, wait=60)),
    ]
    ending = asyncio.create_task(core.end_run("r", {"s": 9}, _record(), timeout=60))
    await _until_parked(core, 3)
    await core.aclose()
    async with asyncio.timeout(5):
        assert (await tasks[0]).entries == []
        assert (await tasks[1]).total == 0
        with pytest.raises(NoeticError, match="closed"):
            await ending
    await core.aclose()
    sender = make_sender(core.handle)
    sender.emit("r", "t", "c", {})
    with pytest.raises(NoeticError, match="journal is closed"):
        await sender.flush()
    assert (await core.read("r")).since == 1


async def test_a_reader_is_released_by_its_token(core: JournalCore) -> None:
    reading = asyncio.create_task(core.read("r", wait=60, token="k"))
    await _until_parked(core)
    core.release("k")
    async with asyncio.timeout(5):
        assert (await reading).entries == []
