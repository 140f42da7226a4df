from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.items import user_message
from noetic_ray.journal import core as core_module
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.events import Row
from noetic_ray.journal.local import LocalJournal
from noetic_ray.journal.sqlite import SqliteStore
from noetic_ray.journal.store import CONFLICT, StoreWriter

from .conftest import MakeSender


class SlowStore:
    """Takes rows when it may, and fails when told to."""

    def __init__(self) -> None:
        self.groups: list[list[Row]] = []
        self.may = threading.Event()
        self.may.set()
        self.entered = threading.Event()
        self.failure: NoeticError | None = None
        self.refused_run = ""

    def write(self, rows: Sequence[Row]) -> None:
        self.entered.set()
        self.may.wait(60)
        if self.failure is not None:
            raise self.failure
        if any(row[0] == self.refused_run for row in rows):
            raise ConfigError(CONFLICT, "taken")
        self.groups.append(list(rows))


def _rows(*numbers: int, run: str = "r") -> list[Row]:
    return [(run, n, "t", "c", 0.0, b"{}") for n in numbers]


def _writer(store: Any, lag: float = 60.0) -> StoreWriter:
    return StoreWriter(store, lag)


async def test_a_commit_takes_all_that_waits() -> None:
    store = SlowStore()
    writer = _writer(store)
    for n in range(10):
        ticket = writer.submit(_rows(n))
    async with asyncio.timeout(5):
        await writer.commit(ticket)
    assert store.groups == [_rows(*range(10))]
    assert writer.committed == ticket == 10
    writer.close()


async def test_what_comes_during_a_commit_goes_with_the_next() -> None:
    store = SlowStore()
    store.may.clear()
    writer = _writer(store)
    first = asyncio.create_task(writer.commit(writer.submit(_rows(1))))
    await asyncio.to_thread(store.entered.wait, 5)
    waits = [asyncio.create_task(writer.commit(writer.submit(_rows(n)))) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    store.may.set()
    async with asyncio.timeout(5):
        await asyncio.gather(first, *waits)
    assert store.groups == [_rows(1), _rows(2, 3, 4)]
    writer.close()


async def test_rows_are_written_though_nobody_waits() -> None:
    store = SlowStore()
    writer = _writer(store, lag=0.001)
    writer.submit(_rows(1))
    assert await asyncio.to_thread(store.entered.wait, 5)
    writer.close()
    assert store.groups == [_rows(1)]


async def test_a_failure_reaches_who_waits_and_the_rows_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SlowStore()
    store.failure = ConfigError("STORE_FULL", "full", "make room")
    writer = _writer(store)
    ticket = writer.submit(_rows(1))
    for _ in range(2):
        with pytest.raises(ConfigError, match="STORE_FULL"):
            await writer.commit(ticket)
    assert len(caplog.records) == 1
    store.failure = None
    await writer.commit(writer.submit(_rows(2)))
    assert store.groups == [_rows(1, 2)]
    writer.close()


async def test_a_run_that_somebody_else_writes_does_not_block_the_others() -> None:
    store = SlowStore()
    store.refused_run = "theirs"
    writer = _writer(store)
    writer.submit(_rows(1, run="theirs"))
    ticket = writer.submit(_rows(1, 2))
    with pytest.raises(ConfigError, match=CONFLICT):
        await writer.commit(ticket)
    assert store.groups == [_rows(1, 2)]
    await writer.commit(ticket)
    await writer.commit(writer.submit(_rows(3)))
    writer.close()


async def test_a_closed_writer_takes_nothing() -> None:
    store = SlowStore()
    writer = _writer(store)
    ticket = writer.submit(_rows(1))
    writer.close()
    assert store.groups == [_rows(1)]
    await writer.commit(ticket)
    with pytest.raises(ConfigError, match="STORE_CLOSED"):
        writer.submit(_rows(2))
    with pytest.raises(ConfigError, match="STORE_CLOSED"):
        await writer.commit(ticket + 1)


async def test_a_waiter_that_leaves_does_no_harm() -> None:
    store = SlowStore()
    store.may.clear()
    writer = _writer(store)
    waiting = asyncio.create_task(writer.commit(writer.submit(_rows(1))))
    await asyncio.to_thread(store.entered.wait, 5)
    waiting.cancel()
    await asyncio.wait([waiting])
    store.may.set()
    async with asyncio.timeout(5):
        await writer.commit(writer.submit(_rows(2)))
    assert waiting.cancelled()
    writer.close()


# The core with a store.


async def _fill(journal: LocalJournal, make_sender: MakeSender, run: str, count: int) -> Any:
    sender = make_sender(journal.transport, f"sender of {run}")
    sender.emit(run, "run.started", run, {"step": "main"})
    for n in range(count):
        sender.item(run, run, user_message(f"{n}"))
    return sender


def _end(run: str) -> Any:
    return (run, "run.ended", run, 2e9, b'{"status":"completed"}')


async def test_flush_returns_when_the_store_has_it(tmp_path: Path, make_sender: MakeSender) -> None:
    core = JournalCore(SqliteStore(tmp_path / "a.db"))
    sender = await _fill(LocalJournal(core), make_sender, "r", 5)
    await sender.flush()
    other = SqliteStore(tmp_path / "a.db")
    assert len(other.events("r")) == 6
    other.close()
    await core.aclose()


async def test_a_finished_run_is_read_by_the_next_journal(
    tmp_path: Path, make_sender: MakeSender
) -> None:
    core = JournalCore(SqliteStore(tmp_path / "a.db"))
    journal = LocalJournal(core)
    sender = await _fill(journal, make_sender, "r", 5)
    await journal.end_run("r", sender.mark(), _end("r"))
    seen = [event async for event in journal.follow("r")]
    await core.aclose()
    assert os.listdir(tmp_path) == ["a.db"]

    again = JournalCore(SqliteStore(tmp_path / "a.db"))
    reopened = LocalJournal(again)
    assert [event async for event in reopened.follow("r")] == seen
    assert [event.seq async for event in reopened.follow("r", since=5)] == [6, 7]
    assert (await reopened.items("r", "r", since=3)).total == 5
    assert len((await reopened.items("r", "r", since=3)).items) == 2
    assert [run.status for run in await reopened.runs()] == ["completed"]
    assert await reopened.has_run("r")
    assert not await reopened.has_run("unknown")
    assert (await reopened.read("unknown")).entries == []
    await again.aclose()


async def test_a_stored_run_goes_on_with_the_next_number(
    tmp_path: Path, make_sender: MakeSender
) -> None:
    core = JournalCore(SqliteStore(tmp_path / "a.db"))
    journal = LocalJournal(core)
    sender = await _fill(journal, make_sender, "r", 5)
    await journal.end_run("r", sender.mark(), _end("r"))
    await core.aclose()

    again = LocalJournal(JournalCore(SqliteStore(tmp_path / "a.db")))
    second = await _fill(again, make_sender, "r", 2)
    await second.flush()
    page = await again.read("r")
    assert [entry[0] for entry in page.entries] == list(range(1, 11))
    assert not page.ended
    assert (await again.items("r", "r")).total == 7
    assert await again.end_run("r", second.mark(), _end("r")) == 11
    assert [event.seq async for event in again.follow("r")] == list(range(1, 12))
    assert [event.seq async for event in again.follow("r", since=9)] == [10, 11]
    await again.aclose()


async def test_old_ended_runs_leave_the_memory_but_not_the_journal(
    tmp_path: Path, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module, "_KEEP_ENDED", 2)
    core = JournalCore(SqliteStore(tmp_path / "a.db"))
    journal = LocalJournal(core)
    for n in range(6):
        sender = await _fill(journal, make_sender, f"r{n}", 3)
        await journal.end_run(f"r{n}", sender.mark(), _end(f"r{n}"))
    assert set(core._runs) == {"r4", "r5"}
    for n in range(6):
        assert len([event async for event in journal.follow(f"r{n}")]) == 5
    assert len(await journal.runs()) == 6
    late = make_sender(journal.transport, "late")
    late.emit("r0", "t", "r0", {})
    await late.flush()
    assert core._runs["r0"].last_seq == 6
    page = await journal.read("r0")
    assert page.ended
    assert page.since == 5
    await core.aclose()


async def test_a_store_that_cannot_write_is_heard_of_in_flush_and_end(
    tmp_path: Path, make_sender: MakeSender
) -> None:
    store = SqliteStore(tmp_path / "a.db")
    core = JournalCore(store)
    journal = LocalJournal(core)
    sender = await _fill(journal, make_sender, "r", 5)
    await sender.flush()
    assert store._writing is not None
    store._writing.execute("PRAGMA query_only = 1")
    sender.emit("r", "t", "r", {})
    with pytest.raises(ConfigError, match="STORE_READ_ONLY"):
        await sender.flush()
    with pytest.raises(ConfigError, match="STORE_READ_ONLY"):
        await journal.end_run("r", sender.mark(), _end("r"))
    assert (await journal.read("r", since=5)).ended
    store._writing.execute("PRAGMA query_only = 0")
    await sender.flush()
    assert store.extent("r") == (8, 8)
    await core.aclose()
