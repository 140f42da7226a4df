from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.local import LocalJournal
from noetic_ray.journal.sqlite import SqliteStore
from noetic_ray.protocols import KeyValues

from .conftest import MakeSender, until

LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[LocalJournal]:
    store = SqliteStore(path) if request.param == "sqlite" else None
    made = LocalJournal(JournalCore(store))
    yield made
    await made.aclose()


async def test_what_is_saved_is_loaded_again(journal: LocalJournal) -> None:
    values: KeyValues = journal
    assert await values.load(["a"]) == {}
    await values.save({"a": b"1", "b": b"", "c": b"\x00\xff"})
    assert await values.load(["c", "a", "a", "nobody"]) == {"a": b"1", "c": b"\x00\xff"}
    assert await values.load(key for key in "b") == {"b": b""}
    assert await values.load([]) == {}


async def test_the_latest_value_counts_and_none_removes(journal: LocalJournal) -> None:
    await journal.save({"a": b"1", "b": b"1", "c": b"1"})
    await journal.save({"a": b"2", "b": None, "unknown": None})
    assert await journal.load("abc") == {"a": b"2", "c": b"1"}
    assert await journal.keys("") == ["a", "c"]
    await journal.save({"b": b"3"})
    assert await journal.load("b") == {"b": b"3"}
    await journal.save({})
    assert await journal.keys("") == ["a", "b", "c"]


async def test_keys_are_found_by_the_exact_letters_they_begin_with(journal: LocalJournal) -> None:
    names = ["a%", "a%b", "aXb", "a_", "A", "a", "b", "é", "é\U0010ffffz", "a\x00b", "a'--", "z/"]
    await journal.save(dict.fromkeys(names, b"1"))
    for prefix in ["", "a", "a%", "a_", "A", "é", "é\U0010ffff", "a\x00", "a'", "z/", "y", "zz"]:
        expected = sorted(name for name in names if name.startswith(prefix))
        assert await journal.keys(prefix) == expected


async def test_large_values(journal: LocalJournal) -> None:
    await journal.save({"large": LARGE, "small": b"1"})
    assert await journal.load(["large"]) == {"large": LARGE}
    await journal.save({"large": LARGE[::-1]})
    assert await journal.load(["large"]) == {"large": LARGE[::-1]}
    assert await journal.keys("l") == ["large"]


async def test_many_save_at_once(journal: LocalJournal) -> None:
    async def count(name: str) -> None:
        for n in range(5):
            await journal.save({f"{name}/{n}": b"%d" % n, name: b"%d" % n})
            assert await journal.load([name]) == {name: b"%d" % n}

    await asyncio.gather(*(count(f"k{n:02}") for n in range(20)))
    assert len(await journal.keys("k")) == 120
    assert set((await journal.load(f"k{n:02}" for n in range(20))).values()) == {b"4"}


async def test_saves_are_done_in_the_order_they_came(journal: LocalJournal) -> None:
    saves = [asyncio.create_task(journal.save({"a": b"%d" % n})) for n in range(30)]
    await asyncio.gather(*saves)
    assert await journal.load("a") == {"a": b"29"}


async def test_what_the_caller_does_with_its_dict_later_changes_nothing(
    journal: LocalJournal,
) -> None:
    changes: dict[str, bytes | None] = {"a": b"1"}
    saving = asyncio.create_task(journal.save(changes))
    await asyncio.sleep(0)
    changes["a"] = b"2"
    changes["b"] = b"2"
    await saving
    assert await journal.load("ab") == {"a": b"1"}


async def test_a_closed_journal_says_so(journal: LocalJournal) -> None:
    await journal.save({"a": b"1"})
    await journal.aclose()
    asks: list[Callable[[], Any]] = [
        lambda: journal.load("a"),
        lambda: journal.save({"a": b"2"}),
        lambda: journal.keys(""),
    ]
    for ask in asks:
        with pytest.raises(NoeticError, match="closed"):
            await ask()


async def test_without_a_store_values_live_as_long_as_the_journal() -> None:
    first, second = LocalJournal(JournalCore()), LocalJournal(JournalCore())
    await first.save({"a": b"1"})
    assert await second.load("a") == {}
    await first.aclose()
    await second.aclose()


async def test_with_a_store_the_next_journal_has_them(path: Path) -> None:
    first = LocalJournal(JournalCore(SqliteStore(path)))
    await first.save({"a": b"1", "b": LARGE})
    await first.aclose()
    second = LocalJournal(JournalCore(SqliteStore(path)))
    assert await second.load("ab") == {"a": b"1", "b": LARGE}
    await second.aclose()


async def test_a_save_is_durable_when_it_returns(path: Path) -> None:
    journal = LocalJournal(JournalCore(SqliteStore(path)))
    await journal.save({"a": b"1"})
    elsewhere = SqliteStore(path)
    assert elsewhere.load_values("a") == {"a": b"1"}
    elsewhere.close()
    await journal.aclose()


async def test_values_are_no_events(path: Path, make_sender: MakeSender) -> None:
    journal = LocalJournal(JournalCore(SqliteStore(path)))
    sender = make_sender(journal.transport)
    sender.emit("r", "t", "c", {})
    await journal.save({"r": b"1"})
    await sender.flush()
    assert [entry[0] for entry in (await journal.read("r")).entries] == [1]
    assert [run.id for run in await journal.runs()] == ["r"]
    await journal.aclose()


async def test_a_store_that_cannot_write_is_heard_of_by_who_saves(path: Path) -> None:
    store = SqliteStore(path)
    journal = LocalJournal(JournalCore(store))
    await journal.save({"a": b"1"})
    assert store._writing is not None
    store._writing.execute("PRAGMA query_only = 1")
    with pytest.raises(ConfigError, match="STORE_READ_ONLY"):
        await journal.save({"a": None, "b": b"2"})
    assert await journal.load("ab") == {"a": b"1"}
    store._writing.execute("PRAGMA query_only = 0")
    await journal.save({"a": None, "b": b"2"})
    assert await journal.load("ab") == {"b": b"2"}
    await journal.aclose()


class HeldStore(SqliteStore):
    """Saves when it may, and notes which threads it is called from."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may = threading.Event()
        self.threads: set[str] = set()
        self.saved: list[dict[str, bytes | None]] = []

    def save_values(self, changes: Mapping[str, bytes | None]) -> None:
        self.threads.add(threading.current_thread().name)
        self.saved.append(dict(changes))
        assert self.may.wait(60)
        super().save_values(changes)

    def load_values(self, keys: Sequence[str]) -> dict[str, bytes]:
        self.threads.add(threading.current_thread().name)
        return super().load_values(keys)

    def value_keys(self, prefix: str) -> list[str]:
        self.threads.add(threading.current_thread().name)
        return super().value_keys(prefix)


async def test_the_store_is_never_used_on_the_journal_s_loop(path: Path) -> None:
    store = HeldStore(path)
    store.may.set()
    journal = LocalJournal(JournalCore(store))
    await journal.save({"a": b"1"})
    await journal.load("a")
    await journal.keys("")
    assert store.threads
    assert threading.current_thread().name not in store.threads
    await journal.aclose()


async def test_slow_saves_do_not_hold_up_readers(path: Path) -> None:
    store = HeldStore(path)
    store.write([("old", 1, "t", "c", 1.0, b"{}")])
    journal = LocalJournal(JournalCore(store))
    saves = [asyncio.create_task(journal.save({f"k{n}": b"1"})) for n in range(5)]
    await until(lambda: store.saved)
    async with asyncio.timeout(10):
        assert await journal.load(["k0"]) == {}
        assert await journal.keys("") == []
        assert len((await journal.read("old")).entries) == 1
    assert not any(save.done() for save in saves)
    store.may.set()
    await asyncio.gather(*saves)
    assert len(await journal.keys("k")) == 5
    await journal.aclose()


async def test_a_save_nobody_waits_for_any_more_does_not_overtake_a_later_one(path: Path) -> None:
    store = HeldStore(path)
    journal = LocalJournal(JournalCore(store))
    first = asyncio.create_task(journal.save({"a": b"1"}))
    await until(lambda: store.saved)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(journal.save({"a": b"2"}))
    store.may.set()
    await second
    assert store.saved == [{"a": b"1"}, {"a": b"2"}]
    assert await journal.load("a") == {"a": b"2"}
    await journal.aclose()


async def test_closing_finishes_a_save_that_was_begun(path: Path) -> None:
    store = HeldStore(path)
    journal = LocalJournal(JournalCore(store))
    saving = asyncio.create_task(journal.save({"a": b"1"}))
    await until(lambda: store.saved)
    closing = asyncio.create_task(journal.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    store.may.set()
    await asyncio.gather(saving, closing)
    again = SqliteStore(path)
    assert again.load_values("a") == {"a": b"1"}
    again.close()
