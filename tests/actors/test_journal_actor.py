from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import ray

from noetic_ray.actors.journal_actor import start_journal_actor
from noetic_ray.actors.journal_client import JournalClient
from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.items import item_from_json, user_message
from noetic_ray.journal.sender import JournalSender
from noetic_ray.journal.sqlite import SqliteStore
from noetic_ray.protocols import KeyValues

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

Start = Callable[..., JournalClient]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Journals that are killed after the test."""
    handles: list[Any] = []

    def start(**options: Any) -> JournalClient:
        handle = start_journal_actor(**options)
        handles.append(handle)
        return JournalClient(handle)

    yield start
    for handle in handles:
        ray.kill(handle)


def _sender(client: JournalClient, sender_id: str = "s", **options: Any) -> JournalSender:
    sender = JournalSender(sender_id, client.transport, **options)
    sender.bind(asyncio.get_running_loop())
    return sender


def _end(run: str, status: str = "completed") -> Any:
    return (run, "run.ended", run, time.time(), b'{"status":"%s"}' % status.encode())


async def test_a_run_from_its_first_event_to_its_last(start: Start) -> None:
    client = start()
    await client.hello()
    sender = _sender(client)
    following = asyncio.create_task(_collect(client, "r"))
    sender.emit("r", "run.started", "r", {"step": "main"})
    items = [user_message(str(n)) for n in range(1_500)]
    for item in items:
        sender.item("r", "r", item)
    await client.end_run("r", sender.mark(), _end("r"))
    async with asyncio.timeout(30):
        events = await following
    assert [event.seq for event in events] == list(range(1, 1_503))
    assert events[-1].data == {"status": "completed"}
    page = await client.items("r", "r", since=1_000)
    assert [item_from_json(raw) for raw in page.items] == items[1_000:]
    assert [(run.id, run.status) for run in await client.runs()] == [("r", "completed")]
    assert await client.has_run("r")
    await sender.aclose()


async def _collect(client: JournalClient, run: str, deltas: bool = False) -> list[Any]:
    return [event async for event in client.follow(run, deltas=deltas)]


async def test_waiting_readers_do_not_hold_up_events(start: Start) -> None:
    client = start()
    sender = _sender(client)
    waiting = [asyncio.create_task(client.read("never", wait=60)) for _ in range(200)]
    following = [asyncio.create_task(_collect(client, "r")) for _ in range(20)]
    for n in range(100):
        sender.emit("r", "t", "c", {"n": n})
    async with asyncio.timeout(30):
        await sender.flush()
        await client.end_run("r", sender.mark(), _end("r"))
        for events in await asyncio.gather(*following):
            assert len(events) == 101
    for task in waiting:
        assert not task.done()
        task.cancel()
    await asyncio.wait(waiting)
    await sender.aclose()


async def test_a_reader_that_goes_away_is_let_go_by_the_actor(start: Start) -> None:
    client = start()
    await client.hello()
    released: list[str] = []
    release = client.handle.release

    class Spy:
        """Hears which waits are given up, and passes them on."""

        class release:
            @staticmethod
            def remote(token: str) -> Any:
                released.append(token)
                return release.remote(token)

    client.handle = Spy
    reading = asyncio.create_task(client.read("r", wait=600))
    await asyncio.wait([reading], timeout=0.5)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert len(released) == 1


async def test_a_wait_in_the_actor_can_be_released(start: Start) -> None:
    client = start()
    arguments = {"run_id": "r", "wait": 600, "token": "mine"}
    asking = client.handle.ask.remote(pickle.dumps(("read", arguments)))
    answer = asyncio.wrap_future(asking.future())
    async with asyncio.timeout(30):
        while not answer.done():
            await client.handle.release.remote("mine")
            await asyncio.wait([answer], timeout=0.05)
    fine, page = pickle.loads(await answer)
    assert fine
    assert page.entries == []


async def test_deltas_reach_a_live_reader_in_their_place(start: Start) -> None:
    client = start()
    sender = _sender(client)
    await client.read("r", deltas=True)
    following = asyncio.create_task(_collect(client, "r", deltas=True))
    sender.emit("r", "model.started", "c", {})
    for text in "abc":
        sender.delta("r", "c", {"text": text})
    await sender.flush()
    assert sender.live("r")
    sender.delta("r", "c", {"text": "d"})
    sender.emit("r", "model.completed", "c", {})
    await client.end_run("r", sender.mark(), _end("r"))
    async with asyncio.timeout(30):
        events = await following
    kinds = [event.seq or event.data["text"] for event in events]
    assert kinds == [1, "a", "b", "c", "d", 2, 3]
    assert len(await _collect(client, "r")) == 3
    await sender.aclose()


async def test_a_killed_journal_hangs_nobody(start: Start) -> None:
    client = start()
    sender = _sender(client)
    sender.emit("r", "t", "c", {})
    await sender.flush()
    reading = asyncio.create_task(client.read("r", since=1, wait=600))
    await asyncio.wait([reading], timeout=0.2)
    ray.kill(client.handle)
    sender.emit("r", "t", "c", {})
    async with asyncio.timeout(60):
        with pytest.raises(NoeticError, match="journal is gone"):
            await sender.flush()
        with pytest.raises(NoeticError, match="does not answer"):
            await reading
        with pytest.raises(NoeticError, match="does not answer"):
            await client.runs()
        with pytest.raises(NoeticError, match="does not answer"):
            await client.aclose()
        sender.emit("r", "t", "c", {})
        await sender.aclose()


async def test_a_journal_without_ray_is_gone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start()
    await client.hello()
    reading = asyncio.create_task(client.read("r", wait=600))
    await asyncio.wait([reading], timeout=0.2)
    with monkeypatch.context() as patch:
        patch.setattr(ray, "is_initialized", lambda: False)
        sender = _sender(client)
        sender.emit("r", "t", "c", {})
        with pytest.raises(NoeticError, match="Ray was shut down"):
            await sender.flush()
        with pytest.raises(NoeticError, match="Ray was shut down"):
            await client.runs()
        with pytest.raises(NoeticError, match="Ray was shut down"):
            await client.aclose()
        reading.cancel()
        await asyncio.wait([reading])
        await sender.aclose()


async def test_a_store_is_written_and_read_again(start: Start, tmp_path: Path) -> None:
    where = tmp_path / "runs.db"
    client = start(store=f"sqlite:///{where}")
    sender = _sender(client)
    sender.emit("r", "run.started", "r", {"step": "main"})
    sender.item("r", "r", user_message("hi"))
    await sender.flush()
    reading = SqliteStore(where)
    assert [run.status for run in reading.runs()] == ["running"]
    await client.end_run("r", sender.mark(), _end("r", "failed"))
    assert [run.status for run in reading.runs()] == ["failed"]
    reading.close()
    await sender.aclose()
    await client.aclose()
    assert os.listdir(tmp_path) == ["runs.db"]
    with pytest.raises(NoeticError, match="closed"):
        await client.runs()

    again = start(store=str(where))
    assert [(run.id, run.status) for run in await again.runs()] == [("r", "failed")]
    assert len(await _collect(again, "r")) == 3
    assert (await again.items("r", "r")).total == 1


async def test_committed_events_survive_a_killed_journal(start: Start, tmp_path: Path) -> None:
    client = start(store=str(tmp_path / "runs.db"))
    sender = _sender(client)
    for n in range(2_000):
        sender.emit("r", "t", "c", {"n": n})
    await sender.flush()
    ray.kill(client.handle)
    store = SqliteStore(tmp_path / "runs.db")
    assert store.extent("r").last_seq == 2_000
    store.close()
    await sender.aclose()


async def test_values_are_kept_beside_the_events(start: Start) -> None:
    values: KeyValues = start()
    large = bytes(range(256)) * 20_000
    await values.save({"a/1": b"1", "a/2": large, "b": b""})
    assert await values.load(key for key in ("a/2", "b", "unknown")) == {"a/2": large, "b": b""}
    await values.save({"a/1": None, "b": b"2", "unknown": None})
    assert await values.keys("a/") == ["a/2"]
    assert await values.keys("") == ["a/2", "b"]
    assert await values.load(["b"]) == {"b": b"2"}


async def test_many_save_values_at_once(start: Start, tmp_path: Path) -> None:
    client = start(store=str(tmp_path / "runs.db"))

    async def save_and_load(name: str) -> None:
        for n in range(3):
            await client.save({name: b"%d" % n})
            assert await client.load([name]) == {name: b"%d" % n}

    async with asyncio.timeout(60):
        await asyncio.gather(*(save_and_load(f"k{n}") for n in range(20)))
    assert len(await client.keys("k")) == 20


async def test_saved_values_survive_a_killed_journal(start: Start, tmp_path: Path) -> None:
    where = str(tmp_path / "runs.db")
    client = start(store=where)
    await client.save({"a": b"1", "b": b"x" * 5_000_000})
    ray.kill(client.handle)
    async with asyncio.timeout(60):
        with pytest.raises(NoeticError, match="does not answer"):
            await client.save({"a": b"2"})
    again = start(store=where)
    found = await again.load(["a", "b"])
    assert found["b"] == b"x" * 5_000_000
    assert found["a"] in (b"1", b"2")  # the last save may have come before the end


async def test_a_store_that_does_not_open_refuses_values_too(start: Start, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database " * 100)
    client = start(store=str(tmp_path / "notes.txt"))
    with pytest.raises(ConfigError, match="STORE_UNREADABLE"):
        await client.save({"a": b"1"})
    with pytest.raises(ConfigError, match="STORE_UNREADABLE"):
        await client.load(["a"])


async def test_a_store_that_does_not_open_is_a_config_error(start: Start, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database " * 100)
    client = start(store=str(tmp_path / "notes.txt"))
    with pytest.raises(ConfigError, match="STORE_UNREADABLE"):
        await client.hello()
    sender = _sender(client)
    sender.emit("r", "t", "c", {})
    with pytest.raises(NoeticError, match="STORE_UNREADABLE"):
        await sender.flush()
    await sender.aclose()


def test_an_unknown_kind_of_store_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="STORE_UNSUPPORTED"):
        start_journal_actor(store="redis://somewhere/0")


async def test_spans_are_fetched_by_the_driver(start: Start) -> None:
    client = start()
    sender = _sender(client)
    waiting = asyncio.create_task(client.read_spans(wait=60))
    for n in range(10):
        sender.span((n, {"name": "step"}))
    await sender.flush()
    async with asyncio.timeout(30):
        page = await waiting
        while page.last < 10:
            page = await client.read_spans(0, wait=60)
    assert page.spans == [(n, {"name": "step"}) for n in range(10)]
    assert (await client.read_spans(page.last)).spans == []
    await sender.aclose()


async def test_spans_are_exported_inside_the_journal(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "spans.txt"

    def factory() -> Any:
        def sink(spans: list[tuple[Any, ...]]) -> None:
            with file.open("a") as out:
                out.writelines(f"{os.getpid()} {span[0]}\n" for span in spans)

        return sink

    client = start(span_sink_factory=factory)
    sender = _sender(client)
    for n in range(5):
        sender.span((n,))
    await sender.flush()
    assert await client.flush_spans()
    lines = [line.split() for line in file.read_text().splitlines()]
    assert [number for _, number in lines] == ["0", "1", "2", "3", "4"]
    assert {int(pid) for pid, _ in lines} != {os.getpid()}
    await sender.aclose()


async def test_an_exporter_that_cannot_be_made_is_a_config_error(start: Start) -> None:
    def factory() -> Any:
        raise ValueError("no endpoint")

    client = start(span_sink_factory=factory)
    with pytest.raises(ConfigError, match="no endpoint"):
        await client.hello()


async def test_a_journal_is_found_by_its_name(start: Start) -> None:
    client = start(name="journal of a test", namespace="tests")
    sender = _sender(client)
    sender.emit("r", "t", "c", {})
    await sender.flush()
    found = JournalClient(ray.get_actor("journal of a test", "tests"))
    assert (await found.read("r")).since == 1
    await sender.aclose()


async def test_many_senders_at_once(start: Start) -> None:
    client = start()
    senders = [_sender(client, f"s{n}", max_delay=0.001) for n in range(50)]
    for n in range(2_000):
        senders[n % 50].emit("r", "t", f"c{n % 50}", {"n": n})
    await asyncio.gather(*(sender.flush() for sender in senders))
    marks = {key: count for sender in senders for key, count in sender.mark().items()}
    assert await client.end_run("r", marks, _end("r")) == 2_001
    by_context: dict[str, list[int]] = {}
    for event in await _collect(client, "r"):
        if event.type == "t":
            by_context.setdefault(event.context_id, []).append(event.data["n"])
    assert by_context == {f"c{n}": list(range(n, 2_000, 50)) for n in range(50)}
    await asyncio.gather(*(sender.aclose() for sender in senders))
