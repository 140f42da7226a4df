from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
import time
from typing import Any

import pytest

from noetic_ray.errors import ConfigError, NoeticError, to_wire
from noetic_ray.items import ExtensionItem, assistant_message, parse_item
from noetic_ray.journal import sender as sender_module
from noetic_ray.journal.events import MODEL_DELTA, SPAN, unwrap_item
from noetic_ray.journal.sender import JournalSender
from noetic_ray.protocols import JournalSink

from .conftest import MakeSender, Wire


async def test_the_engine_can_use_it_as_its_journal(make_sender: MakeSender, wire: Wire) -> None:
    sink: JournalSink = make_sender(wire)
    sink.emit("r", "t", "c", {})
    await sink.flush()
    assert sink.mark() == {"s": 1}


async def test_a_lone_event_goes_out_by_itself(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire)
    sender.emit("r", "step.started", "c", {"step": "a"})
    assert wire.batches == []
    async with asyncio.timeout(5):
        await wire.called.wait()
    run_id, type_, context_id, at, data = wire.sent()[0]
    assert (run_id, type_, context_id, data) == ("r", "step.started", "c", b'{"step":"a"}')
    assert at == pytest.approx(time.time(), abs=30)


async def test_a_full_batch_does_not_wait_for_the_timer(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire, max_delay=3_600, max_records=10)
    for n in range(10):
        sender.emit("r", "step.started", "c", {"n": n})
    async with asyncio.timeout(5):
        await wire.called.wait()
    assert len(wire.batches[0].entries) == 10


async def test_events_after_a_pause_set_the_timer_again(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire, max_delay=0.001)
    for n in range(5):
        wire.called.clear()
        sender.emit("r", "t", "c", {"n": n})
        async with asyncio.timeout(5):
            await wire.called.wait()
    assert [batch.first for batch in wire.batches] == [0, 1, 2, 3, 4]


async def test_mutable_data_is_encoded_before_emit_returns(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire)
    data: dict[str, Any] = {"list": [1]}
    sender.emit("r", "t", "c", data)
    data["list"].append(2)
    await sender.flush()
    assert wire.sent()[0][4] == b'{"list":[1]}'


async def test_items_arrive_as_their_json(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire)
    item = assistant_message("hello")
    sender.item("r", "c", item)
    await sender.flush()
    run_id, type_, _, _, data = wire.sent()[0]
    assert (run_id, type_) == ("r", "item.appended")
    assert parse_item(json.loads(data)["item"]) == item
    assert parse_item(json.loads(unwrap_item(data))) == item


async def test_an_item_with_odd_content_is_sent_all_the_same(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire)
    sender.item("r", "c", ExtensionItem(type="x:y", data={"n": float("nan"), "o": object}))
    await sender.flush()
    assert json.loads(wire.sent()[0][4])["item"]["type"] == "x:y"


async def test_one_batch_is_under_way_at_a_time_and_order_holds(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire, max_records=7)
    wire.open.clear()
    for n in range(100):
        sender.emit("r", "t", "c", {"n": n})
    await wire.called.wait()
    assert len(wire.batches) == 1
    wire.open.set()
    await sender.flush()
    assert [json.loads(entry[4])["n"] for entry in wire.sent()] == list(range(100))
    assert wire.most_in_flight == 1
    firsts = [batch.first for batch in wire.batches]
    assert firsts == [sum(len(b.entries) for b in wire.batches[:i]) for i in range(len(firsts))]


async def test_large_data_is_spread_over_several_batches(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire)
    text = "x" * 40_000
    for n in range(6):
        sender.emit("r", "t", "c", {"n": n, "text": text})
    await sender.flush()
    assert [len(batch.entries) for batch in wire.batches] == [2, 2, 2]
    assert [json.loads(entry[4])["n"] for entry in wire.sent()] == list(range(6))


async def test_every_thread_may_emit(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire, max_records=64)

    def work(name: str) -> None:
        for n in range(2_000):
            sender.emit("r", "t", name, {"n": n})

    await asyncio.gather(*(asyncio.to_thread(work, f"c{each}") for each in range(4)))
    assert sender.mark() == {"s": 8_000}
    await sender.flush()
    for each in range(4):
        own = [json.loads(e[4])["n"] for e in wire.sent() if e[2] == f"c{each}"]
        assert own == list(range(2_000))
    assert wire.batches[-1].first + len(wire.batches[-1].entries) == 8_000


async def test_an_event_of_another_thread_wakes_an_idle_loop(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire)
    thread = threading.Thread(target=sender.emit, args=("r", "t", "c", {}))
    thread.start()
    async with asyncio.timeout(5):
        await wire.called.wait()
    thread.join()
    assert len(wire.sent()) == 1


async def test_flush_from_another_loop(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire, max_delay=3_600)

    def elsewhere() -> None:
        async def work() -> None:
            sender.emit("r", "t", "c", {})
            await sender.flush()

        asyncio.run(work())

    await asyncio.to_thread(elsewhere)
    assert len(wire.sent()) == 1


async def test_flush_with_nothing_to_send_calls_nobody(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire)
    await sender.flush()
    sender.emit("r", "t", "c", {})
    await sender.flush()
    await sender.flush()
    assert len(wire.batches) == 1
    assert wire.batches[0].durable


async def test_flush_does_not_wait_for_what_comes_later(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire, max_records=2)
    wire.open.clear()
    sender.emit("r", "t", "c", {})
    waiting = asyncio.create_task(sender.flush())
    await wire.called.wait()
    for _ in range(100):
        sender.emit("r", "t", "c", {})
    wire.open.set()
    async with asyncio.timeout(5):
        await waiting
    assert sender.mark() == {"s": 101}


async def test_what_was_emitted_before_bind_is_sent(wire: Wire) -> None:
    sender = JournalSender("s", wire)
    for n in range(1_500):
        sender.emit("r", "t", "c", {"n": n})
    with pytest.raises(NoeticError, match="bind"):
        await sender.flush()
    sender.bind(asyncio.get_running_loop())
    async with asyncio.timeout(5):
        await wire.called.wait()
    await sender.aclose()
    assert len(wire.sent()) == 1_500


async def test_a_failed_call_is_repeated_unchanged(
    wire: Wire, make_sender: MakeSender, caplog: pytest.LogCaptureFixture
) -> None:
    sender = make_sender(wire)
    wire.failures = [OSError("cut"), TimeoutError()]
    sender.emit("r", "t", "c", {"n": 1})
    await sender.flush()
    assert [batch.first for batch in wire.batches] == [0, 0, 0]
    assert len({batch.entries[0] for batch in wire.batches}) == 1
    assert len(caplog.records) == 1
    assert sender.dropped == 0


async def test_a_cancelled_call_is_repeated(make_sender: MakeSender, wire: Wire) -> None:
    cut = [True]

    async def transport(payload: bytes) -> bytes:
        if cut.pop() if cut else False:
            raise asyncio.CancelledError
        return await wire(payload)

    sender = make_sender(transport)
    sender.emit("r", "t", "c", {})
    async with asyncio.timeout(5):
        await sender.flush()
    assert len(wire.sent()) == 1


async def test_a_dead_journal_is_an_error_of_flush(
    wire: Wire, make_sender: MakeSender, caplog: pytest.LogCaptureFixture
) -> None:
    sender = make_sender(wire, max_records=8, capacity=50)
    wire.failures = [NoeticError("the actor died")]
    sender.emit("r", "t", "c", {})
    with pytest.raises(NoeticError, match=r"journal is gone.*the actor died"):
        await sender.flush()
    with pytest.raises(NoeticError, match="journal is gone"):
        await sender.flush()
    for n in range(1_000):
        sender.emit("r", "t", "c", {"n": n})
    assert sender.mark() == {"s": 1_001}
    assert 1_000 - 50 - 8 <= sender.dropped <= 1_000 - 50
    assert len(wire.batches) == 1
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


async def test_a_journal_that_never_answers_is_given_up(
    make_sender: MakeSender,
) -> None:
    async def refuse(payload: bytes) -> bytes:
        raise ConnectionError("refused")

    sender = make_sender(refuse, give_up_after=0.01)
    sender.emit("r", "t", "c", {})
    async with asyncio.timeout(10):
        with pytest.raises(NoeticError, match="did not answer"):
            await sender.flush()


async def test_the_oldest_events_make_room_while_the_journal_does_not_answer(
    wire: Wire, make_sender: MakeSender
) -> None:
    answers = asyncio.Event()

    async def transport(payload: bytes) -> bytes:
        if not answers.is_set():
            wire.called.set()
            raise ConnectionError("refused")
        return await wire(payload)

    sender = make_sender(transport, max_records=10, capacity=40)
    sender.emit("r", "t", "c", {"n": -1})
    await wire.called.wait()
    for n in range(200):
        sender.emit("r", "t", "c", {"n": n})
    answers.set()
    await sender.flush()
    numbers = [json.loads(entry[4])["n"] for entry in wire.sent()]
    assert numbers[0] == -1
    assert numbers[1:] == list(range(200 - len(numbers) + 1, 200))
    assert 40 <= len(numbers) - 1 <= 50
    assert sender.dropped == 201 - len(numbers)
    last = wire.batches[-1]
    assert sender.mark() == {"s": 201} == {"s": last.first + len(last.entries)}


async def test_a_call_that_hangs_is_repeated(
    wire: Wire, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "_CALL_TIMEOUT", 0.02)
    sender = make_sender(wire)
    wire.open.clear()
    sender.emit("r", "t", "c", {})
    flushing = asyncio.create_task(sender.flush())
    async with asyncio.timeout(5):
        while len(wire.batches) < 2:
            wire.called.clear()
            await wire.called.wait()
        wire.open.set()
        await flushing
    assert wire.batches[0].entries == wire.batches[1].entries


async def test_a_store_that_fails_is_an_error_of_flush(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire)
    wire.error = to_wire(ConfigError("STORE_FULL", "full"))
    sender.emit("r", "t", "c", {})
    with pytest.raises(ConfigError) as caught:
        await sender.flush()
    assert caught.value.code == "STORE_FULL"
    wire.error = None
    await sender.flush()
    assert [len(batch.entries) for batch in wire.batches] == [1, 0]


async def test_deltas_go_out_until_the_journal_says_that_nobody_reads(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire)
    assert sender.live("r")
    sender.delta("r", "c", {"text": "a"})
    await sender.flush()
    assert not sender.live("r")
    sender.delta("r", "c", {"text": "b"})
    assert sender.live("another run")
    wire.live = ("r",)
    sender.emit("r", "t", "c", {})
    await sender.flush()
    assert sender.live("r")
    sender.delta("r", "c", {"text": "c"})
    await sender.flush()
    texts = [json.loads(e[4])["text"] for e in wire.sent() if e[1] == MODEL_DELTA]
    assert texts == ["a", "c"]


async def test_old_news_about_readers_is_not_believed(
    wire: Wire, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(sender_module, "monotonic", lambda: now[0])
    sender = make_sender(wire)
    sender.emit("r", "t", "c", {})
    await sender.flush()
    assert not sender.live("r")
    now[0] += 2
    assert sender.live("r")


async def test_what_is_known_about_readers_stays_small(
    wire: Wire, make_sender: MakeSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(sender_module, "monotonic", lambda: now[0])
    sender = make_sender(wire)
    for n in range(1_000):
        now[0] += 0.1
        sender.emit(f"r{n}", "t", "c", {})
        await sender.flush()
    assert len(sender._heard) < 100


async def test_spans_travel_as_they_are(wire: Wire, make_sender: MakeSender) -> None:
    sender = make_sender(wire)
    sender.span((1, 2, {"a": 3}))
    sender.span((1, threading.Lock()))
    sender.emit("r", "t", "c", {})
    await sender.flush()
    spans = [entry[4] for entry in wire.sent() if entry[1] == SPAN]
    assert spans == [(1, 2, {"a": 3}), None]
    assert len(wire.sent()) == 3


async def test_the_pump_belongs_to_nobody(wire: Wire, make_sender: MakeSender) -> None:
    """A task factory that gives tasks to whoever emits does not see the sender's."""
    seen: list[Any] = []
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    during: list[str] = []

    async def transport(payload: bytes) -> bytes:
        during.append(who.get())
        return await wire(payload)

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        seen.append(coro)
        return asyncio.Task(coro, loop=loop, **options)

    sender = make_sender(transport)
    asyncio.get_running_loop().set_task_factory(factory)
    who.set("a context")
    sender.emit("r", "t", "c", {})
    await sender.flush()
    asyncio.get_running_loop().set_task_factory(None)
    assert seen == []
    assert during == ["nobody"]


async def test_close_sends_the_rest_and_leaves_no_task(wire: Wire) -> None:
    before = asyncio.all_tasks()
    sender = JournalSender("s", wire, max_delay=3_600)
    sender.bind(asyncio.get_running_loop())
    for n in range(1_000):
        sender.emit("r", "t", "c", {"n": n})
    await sender.aclose()
    assert len(wire.sent()) == 1_000
    assert asyncio.all_tasks() == before
    sender.emit("r", "t", "c", {})
    with pytest.raises(NoeticError, match="it was closed"):
        await sender.flush()


async def test_close_does_not_wait_for_a_journal_that_hangs(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    wire.open.clear()
    sender = JournalSender("s", wire)
    sender.bind(asyncio.get_running_loop())
    sender.emit("r", "t", "c", {})
    async with asyncio.timeout(5):
        await sender.aclose(timeout=0.05)
    assert asyncio.all_tasks() == before
    assert "did not take everything" in caplog.text


def test_emitting_after_the_loop_is_gone_does_not_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def transport(payload: bytes) -> bytes:
        raise AssertionError("not called")

    loop = asyncio.new_event_loop()
    sender = JournalSender("s", transport, capacity=100, max_records=10)
    sender.bind(loop)
    loop.close()
    for _ in range(500):
        sender.emit("r", "t", "c", {})
    assert sender.dropped > 0
    assert len(caplog.records) == 1


async def test_what_comes_while_a_batch_is_under_way_goes_out_by_itself(
    wire: Wire, make_sender: MakeSender
) -> None:
    sender = make_sender(wire, max_delay=0.001)
    wire.open.clear()
    sender.emit("r", "t", "c", {"n": 0})
    async with asyncio.timeout(5):
        await wire.called.wait()
        wire.called.clear()
        sender.emit("r", "t", "c", {"n": 1})
        wire.open.set()
        await wire.called.wait()
    assert [batch.first for batch in wire.batches] == [0, 1]
