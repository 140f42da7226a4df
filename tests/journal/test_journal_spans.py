from __future__ import annotations

import threading
from typing import Any

import pytest

from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.local import LocalJournal
from noetic_ray.journal.spans import SpanExport, SpanQueue

from .conftest import MakeSender


def test_spans_are_kept_until_the_reader_has_them() -> None:
    queue = SpanQueue()
    for n in range(5):
        queue.put((n,))
    first = queue.read(0, 2)
    assert first.spans == [(0,), (1,)]
    assert queue.read(0, 2) == first
    assert queue.pending(first.last)
    rest = queue.read(first.last, 10)
    assert rest.spans == [(2,), (3,), (4,)]
    assert not queue.pending(rest.last)
    assert queue.read(rest.last, 10).spans == []


def test_a_queue_nobody_reads_keeps_the_newest_and_counts_the_rest() -> None:
    queue = SpanQueue(keep=3)
    for n in range(10):
        queue.put((n,))
    page = queue.read(0, 10)
    assert page.spans == [(7,), (8,), (9,)]
    assert (page.last, page.lost) == (10, 7)


async def test_a_reader_gets_spans_of_all_senders(
    core: JournalCore, make_sender: MakeSender
) -> None:
    journal = LocalJournal(core)
    one, two = make_sender(journal.transport, "1"), make_sender(journal.transport, "2")
    one.span((1, {"a": 1}))
    two.span((2,))
    await one.flush()
    await two.flush()
    page = await journal.read_spans(wait=60)
    assert page.spans == [(1, {"a": 1}), (2,)]
    assert await journal.flush_spans()
    assert (await journal.read("r")).entries == []


async def test_a_sink_gets_spans_in_another_thread(make_sender: MakeSender) -> None:
    seen: list[Any] = []
    threads: set[int] = set()

    def sink(spans: list[tuple[Any, ...]]) -> None:
        threads.add(threading.get_ident())
        seen.extend(spans)

    core = JournalCore(span_sink=sink)
    sender = make_sender(core.handle)
    for n in range(1_000):
        sender.span((n,))
    await sender.flush()
    assert await core.flush_spans()
    assert seen == [(n,) for n in range(1_000)]
    assert threading.get_ident() not in threads
    await core.aclose()


async def test_a_stuck_exporter_delays_no_append(make_sender: MakeSender) -> None:
    stuck, free = threading.Event(), threading.Event()

    def sink(spans: list[tuple[Any, ...]]) -> None:
        stuck.set()
        free.wait(60)

    core = JournalCore(span_sink=sink)
    sender = make_sender(core.handle)
    sender.span((1,))
    await sender.flush()
    stuck.wait(60)
    for n in range(2_000):
        sender.emit("r", "t", "c", {"n": n})
        sender.span((n,))
    await sender.flush()
    assert (await core.read("r", limit=5_000)).since == 2_000
    assert not await core.flush_spans(timeout=0.01)
    free.set()
    assert await core.flush_spans()
    await core.aclose()


def test_a_failing_exporter_is_logged_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def sink(spans: list[tuple[Any, ...]]) -> None:
        raise ValueError("no")

    export = SpanExport(sink)
    for n in range(3):
        export.put((n,))
        assert export.flush(5)
    assert export.lost == 3
    assert len(caplog.records) == 1
    export.close(5)


def test_an_export_has_a_bound() -> None:
    free = threading.Event()
    seen: list[Any] = []
    begun = threading.Event()

    def sink(spans: list[tuple[Any, ...]]) -> None:
        begun.set()
        free.wait(60)
        seen.extend(spans)

    export = SpanExport(sink, keep=4)
    export.put((0,))
    begun.wait(60)
    for n in range(1, 11):
        export.put((n,))
    free.set()
    assert export.flush(5)
    assert seen == [(0,), (7,), (8,), (9,), (10,)]
    assert export.lost == 6
    export.close(5)
    export.put((11,))
    assert export.lost == 7


def test_close_gives_up_on_a_dead_exporter() -> None:
    free = threading.Event()

    def sink(spans: list[tuple[Any, ...]]) -> None:
        free.wait(60)

    export = SpanExport(sink)
    export.put((0,))
    export.put((1,))
    export.close(0.05)
    assert export.flush(0) is False
    free.set()


class ClosingSink:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, spans: list[tuple[Any, ...]]) -> None:
        self.seen += spans

    def close(self) -> None:
        self.seen.append("closed")


@pytest.mark.parametrize("spans", [0, 2])
def test_a_sink_that_can_be_closed_is_closed_after_its_last_span(spans: int) -> None:
    sink = ClosingSink()
    export = SpanExport(sink)
    for n in range(spans):
        export.put((n,))
    export.close(5)
    assert sink.seen == [*((n,) for n in range(spans)), "closed"]


def test_a_sink_that_fails_to_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sink = ClosingSink()
    sink.close = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    SpanExport(sink).close(5)
    assert "did not close" in caplog.text


async def test_a_flush_waits_for_what_the_senders_had_taken(
    core: JournalCore, make_sender: MakeSender
) -> None:
    sender = make_sender(core.handle)
    sender.span((1,))
    marks = {sender.sender_id: 2}
    assert await core.flush_spans(0.01, marks) is None
    sender.span((2,))
    assert await core.flush_spans(60, marks) == 2
