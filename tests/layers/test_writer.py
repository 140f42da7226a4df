from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import pytest

from noetic_ray.errors import ConfigError
from noetic_ray.layers.writer import StateWriter

Changes = dict[str, bytes | None]


class Table:
    """Values whose saves can be held back and made to fail."""

    def __init__(self) -> None:
        self.saves: list[Changes] = []
        self.values: dict[str, bytes] = {}
        self.failures: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()
        self.entered = asyncio.Event()
        self.in_flight = 0
        self.most_in_flight = 0

    async def load(self, keys: Iterable[str]) -> dict[str, bytes]:
        return {key: self.values[key] for key in keys if key in self.values}

    async def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.values if key.startswith(prefix))

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        self.saves.append(dict(changes))
        self.entered.set()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            await self.open.wait()
        finally:
            self.in_flight -= 1
        if self.failures:
            raise self.failures.pop(0)
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value


class Owner:
    """Keeps the tasks it is asked for, and the errors it hears of."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.errors: list[tuple[str, Exception]] = []

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro)
        self.tasks.append(task)
        return task

    def on_error(self, key: str, error: Exception) -> None:
        self.errors.append((key, error))


@pytest.fixture
async def table() -> Table:
    return Table()


@pytest.fixture
async def owner() -> Owner:
    return Owner()


@pytest.fixture
async def writer(table: Table, owner: Owner) -> StateWriter:
    return StateWriter(table, owner.on_error, owner.spawn)


async def _flush(writer: StateWriter) -> None:
    async with asyncio.timeout(10):
        await writer.flush()


async def _held(table: Table, put: Callable[[], None]) -> None:
    """Put something and wait until its save is in flight, where it stays."""
    table.open.clear()
    table.entered.clear()
    put()
    async with asyncio.timeout(10):
        await table.entered.wait()


async def test_the_latest_value_of_each_key_is_written_in_one_request(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    writer.put("a", b"1")
    writer.put("b", b"1")
    writer.put("a", b"2")
    assert table.saves == []
    await _flush(writer)
    assert table.saves == [{"a": b"2", "b": b"1"}]
    assert len(owner.tasks) == 1
    assert owner.tasks[0].done()


async def test_none_removes_a_key(table: Table, writer: StateWriter) -> None:
    writer.put("a", b"1")
    await _flush(writer)
    writer.put("a", b"2")
    writer.put("a", None)
    await _flush(writer)
    assert table.saves == [{"a": b"1"}, {"a": None}]
    assert table.values == {}


async def test_what_comes_during_a_save_goes_with_the_next(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    await _held(table, lambda: writer.put("a", b"1"))
    for n in range(100):
        writer.put("a", b"%d" % n)
        writer.put(f"b{n % 3}", b"%d" % n)
    await asyncio.sleep(0)
    assert table.saves == [{"a": b"1"}]
    table.open.set()
    await _flush(writer)
    assert table.saves[1:] == [{"a": b"99", "b0": b"99", "b1": b"97", "b2": b"98"}]
    assert table.most_in_flight == 1
    assert len(owner.tasks) == 1


async def test_nothing_put_is_nothing_to_wait_for(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    await _flush(writer)
    writer.put("a", b"1")
    await _flush(writer)
    await _flush(writer)
    assert len(table.saves) == 1
    assert len(owner.tasks) == 1


async def test_it_works_again_after_it_was_idle(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    for n in range(3):
        writer.put("a", b"%d" % n)
        await _flush(writer)
    assert table.values == {"a": b"2"}
    assert [task.done() for task in owner.tasks] == [True] * 3


async def test_a_put_in_the_tick_in_which_the_writer_ends_is_written(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    ended: list[bool] = []

    def again(task: asyncio.Task[None]) -> None:
        if not ended:
            ended.append(True)
            writer.put("b", b"2")

    writer.put("a", b"1")
    owner.tasks[0].add_done_callback(again)
    await asyncio.wait(owner.tasks)
    await asyncio.sleep(0)
    await _flush(writer)
    assert table.values == {"a": b"1", "b": b"2"}


async def test_flush_waits_for_what_was_put_before_and_no_longer(
    table: Table, writer: StateWriter
) -> None:
    await _held(table, lambda: writer.put("a", b"0"))
    writer.put("a", b"1")
    flushing = asyncio.create_task(writer.flush())
    later = 0
    save = table.save

    async def and_one_more(changes: Mapping[str, bytes | None]) -> None:
        nonlocal later
        later += 1
        if later < 1_000:
            writer.put("later", b"%d" % later)
        await save(changes)

    table.save = and_one_more  # type: ignore[method-assign]
    await asyncio.sleep(0)
    assert not flushing.done()
    table.open.set()
    async with asyncio.timeout(10):
        await flushing
    assert table.values["a"] == b"1"
    assert later < 10
    await _flush(writer)


async def test_several_may_flush_at_once(table: Table, writer: StateWriter) -> None:
    await _held(table, lambda: writer.put("a", b"1"))
    first = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    writer.put("b", b"1")
    rest = [asyncio.create_task(writer.flush()) for _ in range(3)]
    await asyncio.sleep(0)
    table.open.set()
    async with asyncio.timeout(10):
        await asyncio.gather(first, *rest)
    assert table.values == {"a": b"1", "b": b"1"}


async def test_a_failed_write_is_reported_once_per_key_and_not_tried_again(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    failure = ConfigError("STORE_FULL", "full", "make room")
    table.failures = [failure]
    writer.put("a", b"1")
    writer.put("b", None)
    await _flush(writer)
    assert owner.errors == [("a", failure), ("b", failure)]
    await _flush(writer)
    assert len(table.saves) == 1
    assert table.values == {}


async def test_a_newer_value_is_written_after_a_failure(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    table.failures = [RuntimeError("gone")]
    await _held(table, lambda: writer.put("a", b"1"))
    writer.put("a", b"2")
    table.open.set()
    await _flush(writer)
    assert [key for key, _ in owner.errors] == ["a"]
    assert table.values == {"a": b"2"}
    writer.put("a", b"3")
    await _flush(writer)
    assert table.values == {"a": b"3"}
    assert len(owner.errors) == 1


async def test_who_hears_of_an_error_may_put_again(table: Table, owner: Owner) -> None:
    table.failures = [RuntimeError("gone")]

    def put_again(key: str, error: Exception) -> None:
        again.put(key, b"second")

    again = StateWriter(table, put_again, owner.spawn)
    again.put("a", b"first")
    await _flush(again)
    await _flush(again)
    assert table.values == {"a": b"second"}
    assert table.most_in_flight == 1


async def test_a_cancelled_flush_leaves_the_writer_usable(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    await _held(table, lambda: writer.put("a", b"1"))
    flushing = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    await asyncio.wait([flushing])
    assert flushing.cancelled()
    writer.put("b", b"1")
    table.open.set()
    await _flush(writer)
    assert table.values == {"a": b"1", "b": b"1"}
    assert len(owner.tasks) == 1
    assert not owner.tasks[0].cancelled()


async def test_what_a_cancelled_task_had_in_hand_goes_with_the_next(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    writer.put("b", b"1")
    await _held(table, lambda: writer.put("a", b"1"))
    writer.put("a", b"2")
    owner.tasks[0].cancel()
    await asyncio.wait(owner.tasks)
    assert table.values == {}
    table.open.set()
    await _flush(writer)
    assert table.values == {"a": b"2", "b": b"1"}
    assert owner.errors == []


async def test_a_task_that_is_cancelled_before_it_began_stops_nobody(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    writer.put("a", b"1")
    flushing = asyncio.create_task(writer.flush())
    owner.tasks[0].cancel()
    async with asyncio.timeout(10):
        await flushing
    assert table.values == {"a": b"1"}
    writer.put("a", b"2")
    await _flush(writer)
    assert table.values == {"a": b"2"}


async def test_a_task_cancelled_under_a_flush_is_followed_by_another(
    table: Table, owner: Owner, writer: StateWriter
) -> None:
    await _held(table, lambda: writer.put("a", b"1"))
    flushing = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    owner.tasks[0].cancel()
    table.open.set()
    async with asyncio.timeout(10):
        await flushing
    assert table.values == {"a": b"1"}
    assert len(owner.tasks) == 2


@pytest.mark.filterwarnings("error")
async def test_an_owner_that_takes_no_more_tasks_is_heard_of_and_nothing_is_lost(
    table: Table, owner: Owner
) -> None:
    refusing = True

    def spawn(coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if refusing:
            raise RuntimeError("the group is closed")
        return owner.spawn(coro)

    writer = StateWriter(table, owner.on_error, spawn)
    with pytest.raises(RuntimeError, match="closed"):
        writer.put("a", b"1")
    with pytest.raises(RuntimeError, match="closed"):
        await _flush(writer)
    refusing = False
    await _flush(writer)
    assert table.values == {"a": b"1"}
