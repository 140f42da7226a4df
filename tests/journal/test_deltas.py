from __future__ import annotations

import asyncio
import json
from typing import Any

from noetic_ray.journal import deltas as deltas_module
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.deltas import LiveDeltas
from noetic_ray.journal.local import LocalJournal

from .conftest import MakeSender, until


def _texts(entries: list[Any]) -> list[Any]:
    return [entry[0] if entry[0] else json.loads(entry[4])["text"] for entry in entries]


async def test_deltas_stand_between_the_events_they_came_between(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    await journal.read("r", deltas=True)
    sender.emit("r", "model.started", "c", {})
    sender.delta("r", "c", {"text": "a"})
    sender.delta("r", "c", {"text": "b"})
    sender.emit("r", "model.completed", "c", {})
    sender.delta("r", "c", {"text": "c"})
    await sender.flush()
    page = await journal.read("r", deltas=True)
    assert _texts(page.entries) == [1, "a", "b", 2, "c"]
    assert [entry[1] for entry in page.entries][1] == "model.delta"
    again = await journal.read("r", since=page.since, cursor=page.cursor, deltas=True)
    assert again.entries == []
    sender.delta("r", "c", {"text": "d"})
    await sender.flush()
    more = await journal.read("r", since=page.since, cursor=page.cursor, deltas=True)
    assert _texts(more.entries) == ["d"]


async def test_a_short_page_leaves_later_deltas_for_the_next(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    await journal.read("r", deltas=True)
    for n in range(4):
        sender.emit("r", "t", "c", {})
        sender.delta("r", "c", {"text": f"after {n + 1}"})
    await sender.flush()
    seen: list[Any] = []
    since = cursor = 0
    for _ in range(4):
        page = await journal.read("r", since, limit=1, deltas=True, cursor=cursor)
        since, cursor = page.since, page.cursor
        seen += _texts(page.entries)
    assert seen == [1, "after 1", 2, "after 2", 3, "after 3", 4, "after 4"]


async def test_deltas_are_not_events(core: JournalCore, make_sender: MakeSender) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    await journal.read("r", deltas=True)
    sender.delta("r", "c", {"text": "a"})
    sender.emit("r", "t", "c", {})
    await sender.flush()
    page = await journal.read("r")
    assert [entry[:2] for entry in page.entries] == [(1, "t")]


async def test_a_waiting_reader_is_woken_by_a_delta(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    reading = asyncio.create_task(journal.read("r", wait=60, deltas=True))
    await until(lambda: len(core._parking))
    sender.delta("r", "c", {"text": "a"})
    async with asyncio.timeout(5):
        assert _texts((await reading).entries) == ["a"]


async def test_nothing_is_kept_when_nobody_reads(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    sender = make_sender(journal.transport)
    sender.delta("r", "c", {"text": "a"})
    sender.emit("r", "t", "c", {})
    await sender.flush()
    assert core._deltas.live() == ()
    page = await journal.read("r", deltas=True)
    assert _texts(page.entries) == [1]
    assert core._deltas.live() == ("r",)


async def test_a_reader_that_does_not_come_back_is_forgotten() -> None:
    deltas = LiveDeltas(grace=0.01)
    deltas.enter("r")
    deltas.enter("stays")
    deltas.leave("r")
    deltas.offer("r", 0, "c", 0.0, b"{}")
    await until(lambda: "r" not in deltas.live())
    assert deltas.live() == ("stays",)
    assert not deltas.offer("r", 0, "c", 0.0, b"{}")
    deltas.leave("stays")
    await until(lambda: not deltas.live())
    assert deltas._timer is None


async def test_a_slow_reader_gets_the_newest(monkeypatch: Any) -> None:
    monkeypatch.setattr(deltas_module, "_KEEP", 3)
    deltas = LiveDeltas()
    deltas.enter("r")
    for n in range(5):
        deltas.offer("r", 0, "c", float(n), b"{}")
    entries, cursor = deltas.merge("r", [], 0, 1)
    assert [entry[3] for entry in entries] == [2.0, 3.0, 4.0]
    assert cursor == 5
    assert not deltas.pending("r", 5)
    deltas.close()
