"""The journal itself, on one event loop, wherever that loop lives."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import time as seconds
from typing import Any, TypeVar

from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.errors import NoeticError, TraceError, to_wire
from noetic_ray.journal.batch import Ack, Batch, pack_ack, unpack_batch
from noetic_ray.journal.deltas import LiveDeltas
from noetic_ray.journal.events import (
    FOLLOW,
    MODEL_DELTA,
    SPAN,
    ItemPage,
    Page,
    Record,
    Row,
    RunInfo,
    Selection,
    SpanPage,
    Stored,
)
from noetic_ray.journal.parking import Parking
from noetic_ray.journal.runlog import RunLog
from noetic_ray.journal.spaces import SPACE_PREFIX, RunSpaces
from noetic_ray.journal.spans import SpanExport, SpanQueue, SpanSink
from noetic_ray.journal.store import Extent, Store, StoreWriter
from noetic_ray.journal.values import ValueTable

T = TypeVar("T")
log = logging.getLogger("noetic_ray")

#: So many ended runs stay in memory when a store has them too.
_KEEP_ENDED = 64
#: Seconds that whoever asks waits for what its context recorded before.
_PATIENCE = 5.0
_SPANS = "spans"
_ARRIVALS = "arrivals"


class JournalCore:
    """Numbers the events of every run, keeps them, and shows them to readers.

    All methods belong to one event loop. With a `store` events are written behind, in groups;
    runs of the store are readable and go on with the next number when they get new events. With
    a `span_sink` finished spans go there, else they wait for `read_spans`.
    """

    def __init__(
        self,
        store: Store | None = None,
        span_sink: SpanSink | None = None,
        delta_grace: float = 2.0,
    ) -> None:
        self._store = store
        self._writer = None if store is None else StoreWriter(store)
        self._readers: ThreadPoolExecutor | None = None
        self._runs: dict[str, RunLog] = {}
        self._ended: deque[str] = deque()
        self._received: dict[str, int] = {}
        self._ticket = 0
        self._parking = Parking()
        self._deltas = LiveDeltas(delta_grace)
        self._spans = SpanQueue()
        self._export = None if span_sink is None else SpanExport(span_sink)
        self._span_put = self._spans.put if self._export is None else self._export.put
        self._values = ValueTable(store, self._in_thread)
        self._spaces: dict[str, RunSpaces] = {}
        self._closed = False

    # Values beside the events.

    async def load(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of the keys that exist."""
        self._check_open()
        return await self._values.load(keys)

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Write or remove keys, all or nothing; durable on return, with a store."""
        self._check_open()
        await self._values.save(changes)

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""
        self._check_open()
        return await self._values.keys(prefix)

    async def add(self, prefix: str, value: bytes) -> int:
        """Append to the list of values under `prefix`; returns the index. Durable with a store."""
        self._check_open()
        return await self._values.add(prefix, value)

    # Writing.

    async def handle(self, payload: bytes) -> bytes:
        """Take one pickled batch, return the pickled answer: a sender's transport."""
        return pack_ack(await self.append(unpack_batch(payload)))

    async def append(self, batch: Batch) -> Ack:
        """Take a batch. What of it came before is left out, a gap is accepted."""
        self._check_open()
        entries = batch.entries
        expected = self._received.get(batch.sender_id, 0)
        if batch.first < expected:
            entries = entries[expected - batch.first :]
        self._received[batch.sender_id] = received = max(expected, batch.first + len(batch.entries))
        if entries:
            self._take(entries)
            self._parking.wake(_ARRIVALS)
        durable, error = self._writer is None, None
        if batch.durable and self._writer is not None:
            try:
                await self._writer.commit(self._ticket)
                durable = True
            except NoeticError as failure:
                error = to_wire(failure)
        return Ack(received, durable, self._deltas.live(), error)

    async def end_run(
        self, run_id: str, marks: Mapping[str, int], record: Record, timeout: float = 5.0
    ) -> int:
        """Add the event that ends a run, after all that its senders had taken before.

        `marks` are the merged `mark()` of the senders. What has not arrived within `timeout`
        seconds is not waited for. Returns the event's number; durable with a store.
        """
        self._check_open()
        if not await self._arrived(marks, timeout):
            log.warning("run %s ended before all of its events arrived", run_id)
        self._check_open()
        self._take([record])
        self._spaces.pop(run_id, None)
        seq = self._runs[run_id].last_seq
        if self._writer is not None:
            await self._writer.commit(self._ticket)
        self._retire(run_id)
        return seq

    async def space(
        self,
        run_id: str,
        context_id: str,
        operation: str,
        arguments: Mapping[str, Any],
        marks: Mapping[str, int],
    ) -> Any:
        """Do something to a run's spaces, behind what the senders in `marks` had taken before.

        Atomic: nothing else happens to the spaces meanwhile. Raises TraceError.
        """
        self._check_open()
        await self._arrived(marks, _PATIENCE)
        spaces = await self._spaces_of(run_id)
        self._check_open()
        run = self._runs.get(run_id)
        if run is not None and run.end_seq:
            raise TraceError(f"run {run_id} has ended, its spaces are read with run.trace()")
        answer, events = spaces.do(operation, arguments)
        now = seconds()
        self._take([(run_id, type, context_id, now, to_json_bytes(d)) for type, d in events])
        return answer

    async def _spaces_of(self, run_id: str) -> RunSpaces:
        """A run's spaces, made of its events where they are not in memory."""
        spaces = self._spaces.get(run_id)
        if spaces is None:
            spaces = RunSpaces()
            found = await self.select(run_id, (SPACE_PREFIX,), 0)
            spaces.replay((entry[1], from_json(entry[4])) for entry in found.entries)
            spaces = self._spaces.setdefault(run_id, spaces)
        return spaces

    async def _arrived(self, marks: Mapping[str, int], timeout: float) -> bool:
        """Wait until all that the senders in `marks` had taken is here; False when it is not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self._missing(marks):
            left = deadline - loop.time()
            if left <= 0 or self._closed:
                return False
            await self._parking.wait(_ARRIVALS, left)
        return True

    def _missing(self, marks: Mapping[str, int]) -> bool:
        received = self._received
        return any(received.get(sender, 0) < count for sender, count in marks.items())

    def _take(self, entries: Sequence[Record]) -> None:
        rows: list[Row] | None = None if self._writer is None else []
        run: RunLog | None = None
        current = ""
        touched: set[str] = set()
        for run_id, type_, context_id, time, data in entries:
            if type_ == SPAN:
                self._take_span(data)
                continue
            if type_ == FOLLOW:
                self._deltas.expect(run_id)
                continue
            if run_id != current or run is None:
                current, run = run_id, self._run(run_id)
                touched.add(run_id)
            if type_ == MODEL_DELTA:
                self._deltas.offer(run_id, run.last_seq, context_id, time, data)
                continue
            run.append(type_, context_id, time, data)
            if rows is not None:
                rows.append((run_id, run.last_seq, type_, context_id, time, data))
        if rows and self._writer is not None:
            self._ticket = self._writer.submit(rows)
        for run_id in touched:
            self._parking.wake(run_id)

    def _take_span(self, span: Any) -> None:
        if span is not None:
            self._span_put(span)
            self._parking.wake(_SPANS)

    def _run(self, run_id: str) -> RunLog:
        run = self._runs.get(run_id)
        if run is None:
            extent = self._extent(run_id)
            run = self._runs[run_id] = RunLog(extent.last_seq)
            run.end_seq = extent.end_seq
        return run

    def _extent(self, run_id: str) -> Extent:
        """One indexed look-up per run, so that a stored run goes on where it stopped."""
        if self._store is None:
            return Extent(0, 0)
        try:
            return self._store.extent(run_id)
        except NoeticError as error:
            log.error("the journal's store does not say whether it has run %s: %s", run_id, error)
            return Extent(0, 0)

    def _retire(self, run_id: str) -> None:
        """With a store, old ended runs leave the memory."""
        if self._writer is None:
            return
        self._ended.append(run_id)
        while len(self._ended) > _KEEP_ENDED:
            old = self._ended.popleft()
            run = self._runs.get(old)
            if run is None or not run.end_seq or old in self._ended:
                continue
            if self._writer.committed < self._ticket:
                self._ended.append(old)
                return
            del self._runs[old]

    # Reading.

    async def read(
        self,
        run_id: str,
        since: int = 0,
        limit: int = 1_000,
        wait: float = 0.0,
        deltas: bool = False,
        cursor: int = 0,
        token: str | None = None,
    ) -> Page:
        """Events of a run after number `since`; waits up to `wait` seconds for the first.

        With `deltas`, pieces of streamed answers stand between them, from `cursor` on.
        `release(token)` ends the wait early.
        """
        if not deltas:
            return await self._read(run_id, since, limit, wait, None, token)
        self._deltas.enter(run_id)
        try:
            return await self._read(run_id, since, limit, wait, cursor, token)
        finally:
            self._deltas.leave(run_id)

    async def _read(
        self,
        run_id: str,
        since: int,
        limit: int,
        wait: float,
        cursor: int | None,
        token: str | None,
    ) -> Page:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            page = await self._page(run_id, since, limit, cursor)
            left = deadline - loop.time()
            if page.entries or page.ended or left <= 0 or self._closed:
                return page
            if not await self._parking.wait(run_id, left, token):
                return await self._page(run_id, since, limit, cursor)

    async def _page(self, run_id: str, since: int, limit: int, cursor: int | None) -> Page:
        run = self._runs.get(run_id)
        if run is None or since < run.base:
            stored = await self._stored_page(run_id, since, limit)
            return stored._replace(cursor=cursor or 0)
        entries = run.read(since, limit)
        last = max(since, min(since + len(entries), run.end_seq or run.last_seq))
        ended = bool(run.end_seq) and last >= run.end_seq
        if cursor is None:
            return Page(entries, last, 0, ended)
        entries, cursor = self._deltas.merge(run_id, entries, last, cursor)
        return Page(entries, last, cursor, ended)

    async def _stored_page(self, run_id: str, since: int, limit: int) -> Page:
        """A page of what only the store has."""
        store = self._store
        if store is None:
            return Page([], since, 0, False)

        def fetch() -> Page:
            extent = store.extent(run_id)
            entries = store.events(run_id, since, limit)
            if extent.end_seq:
                entries = [entry for entry in entries if (entry[0] or 0) <= extent.end_seq]
            last = (entries[-1][0] or since) if entries else since
            return Page(entries, last, 0, bool(extent.end_seq) and last >= extent.end_seq)

        await self._settle_store()
        return await self._in_thread(fetch)

    async def select(
        self,
        run_id: str,
        prefixes: tuple[str, ...],
        since: int,
        marks: Mapping[str, int] | None = None,
    ) -> Selection:
        """All events after number `since` whose type begins with one of `prefixes`.

        Waits, for a while, until what the senders in `marks` had taken is here.
        """
        if marks:
            await self._arrived(marks, _PATIENCE)
        run = self._runs.get(run_id)
        if run is not None and since >= run.base:
            return Selection(run.select(prefixes, since), run.last_seq)
        store = self._store
        if store is None:
            return Selection([], since)

        def fetch() -> Selection:
            kept: list[Stored] = []
            last = since
            while page := store.events(run_id, last):
                kept += [entry for entry in page if entry[1].startswith(prefixes)]
                last = page[-1][0] or last
            return Selection(kept, last)

        await self._settle_store()
        return await self._in_thread(fetch)

    async def items(
        self,
        run_id: str,
        context_id: str,
        since: int = 0,
        limit: int = 1_000,
        wait_for: int | None = None,
        wait: float = 5.0,
        token: str | None = None,
    ) -> ItemPage:
        """Items of one context, without its first `since`.

        With `wait_for`, waits until there are so many, the run ended, or `wait` seconds passed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            page = await self._items(run_id, context_id, since, limit)
            run = self._runs.get(run_id)
            left = deadline - loop.time()
            enough = page.total >= (wait_for or 0)
            if enough or left <= 0 or self._closed or (run is not None and run.end_seq):
                return page
            if not await self._parking.wait(run_id, left, token):
                return await self._items(run_id, context_id, since, limit)

    async def _items(self, run_id: str, context_id: str, since: int, limit: int) -> ItemPage:
        run = self._runs.get(run_id)
        store = self._store
        if store is None or (run is not None and run.base == 0):
            if run is None:
                return ItemPage([], 0)
            return ItemPage(run.items(context_id, since, limit), run.item_count(context_id))

        def fetch() -> ItemPage:
            total = store.item_count(run_id, context_id)
            return ItemPage(store.items(run_id, context_id, since, limit), total)

        await self._settle_store()
        return await self._in_thread(fetch)

    async def runs(self) -> list[RunInfo]:
        """All runs, oldest first, those of the store included."""
        store = self._store
        if store is not None:
            await self._settle_store()
            return await self._in_thread(store.runs)
        return [run.info(each) for each, run in self._runs.items()]

    async def has_run(self, run_id: str) -> bool:
        """Whether anything is known of a run."""
        store = self._store
        if run_id in self._runs or store is None:
            return run_id in self._runs
        return (await self._in_thread(lambda: store.extent(run_id))).last_seq > 0

    async def read_spans(
        self, after: int = 0, limit: int = 1_000, wait: float = 0.0, token: str | None = None
    ) -> SpanPage:
        """Finished spans for the one exporter elsewhere; those up to `after` are let go."""
        if not self._spans.pending(after) and wait > 0 and not self._closed:
            await self._parking.wait(_SPANS, wait, token)
        return self._spans.read(after, limit)

    async def flush_spans(
        self, timeout: float = 5.0, marks: Mapping[str, int] | None = None
    ) -> int | None:
        """Wait until what the senders in `marks` had taken has arrived, and the sink has it.

        Returns the number of the last span, for who reads them elsewhere; None when that took
        longer than `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if marks and not await self._arrived(marks, timeout):
            return None
        export = self._export
        if export is None:
            return self._spans.last
        return export.taken if await export.flushed(deadline - loop.time()) else None

    def release(self, token: str) -> None:
        """Let the reader that waits under `token` go home with what there is."""
        self._parking.release(token)

    async def aclose(self, span_timeout: float = 5.0) -> None:
        """Send readers home, write everything, hand over the last spans, close the store."""
        if self._closed:
            return
        self._closed = True
        self._parking.close()
        self._deltas.close()
        await asyncio.to_thread(self._close_threads, span_timeout)

    def _close_threads(self, span_timeout: float) -> None:
        if self._export is not None:
            self._export.close(span_timeout)
        if self._writer is not None:
            self._writer.close()
        self._values.close()
        if self._readers is not None:
            self._readers.shutdown()
        if self._store is not None:
            self._store.close()

    def _check_open(self) -> None:
        if self._closed:
            raise NoeticError("the journal is closed; open a new harness")

    async def _settle_store(self) -> None:
        """The store is to have all that the memory had."""
        if self._writer is not None and not self._closed:
            await self._writer.commit(self._ticket)

    async def _in_thread(self, job: Callable[[], T]) -> T:
        self._check_open()
        if self._readers is None:
            self._readers = ThreadPoolExecutor(2, thread_name_prefix="noetic-journal")
        return await asyncio.get_running_loop().run_in_executor(self._readers, job)
