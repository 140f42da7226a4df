"""The newest events of a session's turns, kept for readers who come late or read slowly."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from noetic_ray.engine.tasks import LoopThread
from noetic_ray.journal.events import Stored

KEEP = 10_000


class Entry(NamedTuple):
    """One event of one turn, or a piece of a streamed answer."""

    run_id: str
    event: Stored


class Batch(NamedTuple):
    """Entries in order, the first of which is number `first`. Empty at the end of the session."""

    first: int
    entries: list[Entry]


class Place:
    """Where a reader stands: at number `cursor`, which is None until it has joined."""

    __slots__ = ("cursor", "left")

    def __init__(self) -> None:
        self.cursor: int | None = None
        self.left = False

    def pass_over(self, batch: Batch) -> int:
        """Go on behind a batch that was received; how many entries were dropped before it."""
        missed = max(0, batch.first - (self.cursor or 0)) if batch.entries else 0
        if batch.entries:
            self.cursor = batch.first + len(batch.entries)
        return missed


class Feed:
    """Entries from the session's first on, at most `keep`, until the last reader leaves.

    From then on nothing is kept until somebody reads again. Belongs to the loop of `thread`; only
    `closed`, and `ahead` once that is true, are for other threads.
    """

    def __init__(self, thread: LoopThread, keep: int = KEEP) -> None:
        self.thread = thread
        self.closed = False
        self._entries: deque[Entry] = deque(maxlen=keep)
        self._first = 0
        self._start = 0
        self._readers: set[Place] = set()
        self._deserted = False
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry) -> None:
        """Show an entry to all who read."""
        if self._deserted:
            return
        if len(self._entries) == self._entries.maxlen:
            self._first += 1
        self._entries.append(entry)
        self._wake()

    def join(self, place: Place) -> None:
        """A reader is here, and begins where the entries begin."""
        if not place.left:
            place.cursor = self._start
            self._deserted = False
            self._readers.add(place)

    def leave(self, place: Place) -> None:
        """A reader is gone. With the last one everything is."""
        place.left = True
        if place in self._readers:
            self._readers.discard(place)
            self._deserted = not self._readers
            self._wake()
        if self._deserted:
            self._first += len(self._entries)
            self._start = self._first
            self._entries.clear()

    async def page(self, place: Place) -> Batch:
        """Wait for what comes after a place; cancelling the wait loses nothing."""
        while True:
            batch = self.ahead(place)
            if batch.entries or place.left or self.closed:
                return batch
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)

    def ahead(self, place: Place) -> Batch:
        """What is there after a place now."""
        if place.cursor is None and self.closed:  # it came too late to join
            place.cursor = self._start
        if place.cursor is None or place.left:
            return Batch(0, [])
        entries = self._entries
        at = max(place.cursor - self._first, 0)
        if at == 0:
            return Batch(self._first, list(entries))
        return Batch(self._first + at, [entries[index] for index in range(at, len(entries))])

    def close(self) -> None:
        """Nothing comes any more; readers get what is left."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
