"""The writing end: what happens in one process, on its way to the journal.

An emit is one append to a list. A timer, set by the first entry after a pause, or a full batch
starts the pump, which sends one batch at a time and keeps it until it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from time import monotonic, time
from typing import Any

from noetic_ray.canonical import to_json_bytes
from noetic_ray.errors import NoeticError
from noetic_ray.items import Item, item_json
from noetic_ray.journal.batch import Ack, Batch, pack_batch, unpack_ack
from noetic_ray.journal.events import ITEM_APPENDED, MODEL_DELTA, SPAN, wrap_item

log = logging.getLogger("noetic_ray")

#: Carries one batch to the journal and brings the answer. A NoeticError means that the journal
#: will not come back; any other exception that the same batch may be sent again.
Transport = Callable[[bytes], Awaitable[bytes]]

#: Ray carries arguments of up to 100 KB within the call; larger ones take more than twice as long.
_MAX_BATCH_BYTES = 92_000
#: Where much is waiting, fewer and larger calls are quicker all the same: four batches in one.
_AT_ONCE = 4
_ENTRY_OVERHEAD = 24
#: So many waiting entries are worth encoding while a batch is under way.
_AHEAD = 32
_CALL_TIMEOUT = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
#: For so long an answer of the journal about who reads deltas is believed.
_LIVE_TTL = 1.0
_REMEMBERED_RUNS = 64


class JournalSender:
    """A `JournalSink` on one event loop.

    Before `bind` everything is collected. `dropped` counts entries given up because the journal
    could not be reached and more than `capacity` were waiting.
    """

    def __init__(
        self,
        sender_id: str,
        transport: Transport,
        max_delay: float = 0.02,
        max_records: int = 512,
        *,
        capacity: int = 20_000,
        give_up_after: float = 30.0,
    ) -> None:
        self.sender_id = sender_id
        self.dropped = 0
        self._transport = transport
        self._max_delay = max_delay
        self._max_records = max_records
        self._capacity = max(capacity, 2 * max_records)
        self._give_up_after = give_up_after
        #: Entries not sent yet. Always this list object: other threads append to it.
        self._buffer: list[tuple[Any, ...]] = []
        #: At this length the next emit does more than append: 0 when nothing is under way,
        #: max_records while the timer runs, far off while the pump works.
        self._limit = self._capacity
        self._taken = 0
        self._settled = 0
        #: Re-entrant: a finalizer that runs while it is held may emit.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Tasks and timers start from an empty context, whoever emitted.
        self._context = Context()
        self._timer: asyncio.TimerHandle | None = None
        self._pump_task: asyncio.Task[None] | None = None
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._hasty = False
        self._failing_since: float | None = None
        self._gone: str | None = None
        self._live: frozenset[str] = frozenset()
        self._heard: dict[str, float] = {}

    # What the engine calls, from any thread.

    def emit(self, run_id: str, type: str, context_id: str, data: Mapping[str, Any]) -> None:
        """Record one event; `data` is encoded before the call returns."""
        buffer = self._buffer
        buffer.append((run_id, type, context_id, time(), to_json_bytes(data)))
        if len(buffer) >= self._limit:
            self._wake()

    def item(self, run_id: str, context_id: str, item: Item) -> None:
        """Record that an item was appended. Items are frozen: this one is encoded when sent."""
        buffer = self._buffer
        buffer.append((run_id, ITEM_APPENDED, context_id, time(), item))
        if len(buffer) >= self._limit:
            self._wake()

    def delta(self, run_id: str, context_id: str, data: Mapping[str, Any]) -> None:
        """Offer a piece of a streamed answer; dropped here when nobody reads along."""
        if self.live(run_id):
            self.emit(run_id, MODEL_DELTA, context_id, data)

    def span(self, record: tuple[Any, ...]) -> None:
        """Hand over one finished span."""
        buffer = self._buffer
        buffer.append(("", SPAN, "", 0.0, record))
        if len(buffer) >= self._limit:
            self._wake()

    def hasten(self) -> None:
        """Send what was emitted so far now, from any thread; those who watch wait for it."""
        loop = self._loop
        if loop is None or self._gone is not None:
            return
        self._hasty = True
        if _running_loop() is loop:
            self._start()
            return
        try:
            loop.call_soon_threadsafe(self._start, context=self._context)
        except RuntimeError:
            self._give_up("the event loop of its sender is closed")

    def live(self, run_id: str) -> bool:
        """Whether somebody reads the deltas of this run; True until the journal has said no."""
        if run_id in self._live:
            return True
        heard = self._heard.get(run_id)
        return heard is None or monotonic() - heard > _LIVE_TTL

    def mark(self) -> dict[str, int]:
        """How many entries this sender has taken so far."""
        with self._lock:
            return {self.sender_id: self._taken + len(self._buffer)}

    async def flush(self) -> None:
        """Return when everything emitted so far is acknowledged (durable, with a store).

        Raises NoeticError when the journal is gone, or the store's ConfigError when it cannot
        write.
        """
        loop = self._loop
        if loop is None:
            raise NoeticError("the journal's sender has no event loop yet: bind it first")
        if asyncio.get_running_loop() is loop:
            await self._flush(loop)
        else:
            elsewhere = asyncio.run_coroutine_threadsafe(self._flush(loop), loop)
            await asyncio.wrap_future(elsewhere)

    # Life.

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send from this loop from now on. Called once."""
        self._loop = loop
        self._limit = 0
        if self._buffer:
            self._wake()

    async def aclose(self, timeout: float = 5.0) -> None:
        """Send what is left, for at most `timeout` seconds, and stop. On the sender's loop."""
        try:
            async with asyncio.timeout(timeout):
                await self.flush()
        except (TimeoutError, NoeticError) as error:
            if self._gone is None:
                log.warning("the journal did not take everything before it closed: %r", error)
        self._give_up("it was closed", quietly=True)
        task = self._pump_task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    # The pump; all below runs on the loop, except _wake.

    def _wake(self) -> None:
        """The buffer reached the limit: set the timer, start the pump, or make room."""
        with self._lock:
            loop = self._loop
            if loop is None or self._limit >= self._capacity:
                self._limit = len(self._buffer) + self._max_records
                action = self._trim
            elif self._limit == 0:
                self._limit = self._max_records
                action = self._set_timer
            else:
                self._limit = self._capacity
                action = self._start
        if loop is None or self._gone is not None or _running_loop() is loop:
            action()
            return
        try:
            loop.call_soon_threadsafe(action)
        except RuntimeError:
            self._give_up("the event loop of its sender is closed")

    def _set_timer(self) -> None:
        assert self._loop is not None
        if self._timer is None:
            self._timer = self._loop.call_later(self._max_delay, self._start, context=self._context)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pump_task is not None or self._gone is not None:
            return
        if not self._buffer and not self._flushes:
            self._rest()
            return
        self._limit = self._capacity
        # Not create_task: a context must not adopt, and cancel, the pump.
        self._pump_task = asyncio.Task(
            self._pump(), loop=self._loop, name="noetic-journal", context=self._context
        )

    async def _pump(self) -> None:
        try:
            while True:
                batch = self._take()
                if len(self._buffer) >= _AHEAD and self._loop is not None:
                    self._loop.call_soon(self._encode_ahead, context=self._context)
                ack = await self._deliver(pack_batch(batch))
                if ack is None:
                    return
                self._acknowledged(batch, ack)
                if not self._must_go_on():
                    return
        except Exception as error:
            self._give_up(f"its sender failed: {error!r}")
        finally:
            self._pump_task = None
            self._rest()

    def _must_go_on(self) -> bool:
        """Whether the next batch is due as soon as the last one has arrived."""
        hasty = self._hasty and bool(self._buffer)
        return hasty or bool(self._flushes) or len(self._buffer) >= self._max_records

    def _rest(self) -> None:
        """No pump runs: the next emit is to set the timer, or it is set here."""
        if self._gone is not None:
            self._limit = self._capacity
            return
        self._limit = 0
        if self._buffer:
            self._wake()

    def _take(self) -> Batch:
        """Cut the next batch off the buffer, its items encoded."""
        records, size = self._batch_limits()
        entries = _encoded(self._buffer[:records])
        count = _fitting(entries, size)
        with self._lock:
            first = self._taken
            self._taken += count
            self._buffer[: len(entries)] = entries[count:]
            self._hasty = self._hasty and bool(self._buffer)
        del entries[count:]
        durable = bool(self._flushes) and self._taken >= self._flushes[-1][0]
        return Batch(self.sender_id, first, entries, durable)

    def _batch_limits(self) -> tuple[int, int]:
        """How many records, and bytes, go into one batch now."""
        if len(self._buffer) <= 2 * self._max_records:
            return self._max_records, _MAX_BATCH_BYTES
        return _AT_ONCE * self._max_records, _AT_ONCE * _MAX_BATCH_BYTES

    def _encode_ahead(self) -> None:
        """Make the next batch ready while the journal works on the last one."""
        if self._gone is None:
            entries = _encoded(self._buffer[: self._batch_limits()[0]])
            self._buffer[: len(entries)] = entries

    async def _deliver(self, payload: bytes) -> Ack | None:
        """Send until answered; None when the journal is given up."""
        pause = _FIRST_PAUSE
        while True:
            try:
                async with asyncio.timeout(_CALL_TIMEOUT):
                    ack = unpack_ack(await self._transport(payload))
            except NoeticError as error:
                self._give_up(str(error))
                return None
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling() or not self._still_hoping(error):
                    raise
            except Exception as error:
                if not self._still_hoping(error):
                    return None
            else:
                self._failing_since = None
                return ack
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _still_hoping(self, error: BaseException) -> bool:
        now = monotonic()
        if self._failing_since is None:
            self._failing_since = now
            log.warning("the journal does not answer, trying again: %r", error)
        self._trim()
        if now - self._failing_since < self._give_up_after:
            return True
        self._give_up(f"it did not answer for {self._give_up_after:g} s: {error!r}")
        return False

    def _acknowledged(self, batch: Batch, ack: Ack) -> None:
        now = monotonic()
        self._live = frozenset(ack.live)
        heard = self._heard
        if len(heard) > _REMEMBERED_RUNS:
            self._heard = heard = {r: at for r, at in heard.items() if now - at < _LIVE_TTL}
        for run_id in {entry[0] for entry in batch.entries}:
            heard[run_id] = now
        reached = batch.first + len(batch.entries)
        if ack.durable:
            self._settled = reached
        if batch.durable or ack.durable:
            self._resolve(reached, ack.failure)

    def _resolve(self, reached: int, failure: Callable[[], BaseException | None]) -> None:
        for target, future in self._flushes:
            if target > reached or future.done():
                continue
            error = failure()
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._flushes = [each for each in self._flushes if not each[1].done()]

    async def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._gone is not None:
            raise self._gone_error()
        target = self.mark()[self.sender_id]
        if target <= self._settled:
            return
        future: asyncio.Future[None] = loop.create_future()
        self._flushes.append((target, future))
        self._start()
        await future

    # Without a journal.

    def _give_up(self, why: str, quietly: bool = False) -> None:
        """The journal will not come back."""
        if self._gone is None:
            self._gone = why
            if not quietly:
                log.error("the journal is gone, events are no longer recorded: %s", why)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._limit = self._capacity
        self._trim()
        self._resolve(self._taken + len(self._buffer), self._gone_error)

    def _gone_error(self) -> NoeticError:
        return NoeticError(
            f"the journal is gone ({self._gone}); what happened since is not recorded. "
            "Open a new harness and start the run again; store= keeps what was recorded before."
        )

    def _trim(self) -> None:
        """While the journal does not answer only the newest entries are kept."""
        if self._gone is None and self._failing_since is None:
            return
        with self._lock:
            extra = len(self._buffer) - self._capacity
            if extra > 0:
                del self._buffer[:extra]
                self._taken += extra
                self.dropped += extra
            if self._limit >= self._capacity:
                self._limit = self._capacity + self._max_records


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _encoded(entries: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The same entries with items as JSON; what is JSON already, and spans, as they are."""
    return [
        entry
        if type(entry[4]) is bytes or entry[1] == SPAN
        else (*entry[:4], wrap_item(item_json(entry[4])))
        for entry in entries
    ]


def _fitting(entries: list[tuple[Any, ...]], most: int) -> int:
    """How many of them make a batch that is not too large; at least one."""
    size = 0
    for count, entry in enumerate(entries):
        if entry[1] != SPAN:
            size += len(entry[4]) + _ENTRY_OVERHEAD
            if size > most and count:
                return count
    return len(entries)
