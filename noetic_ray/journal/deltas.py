"""Pieces of streamed answers, kept only for those who read along."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from noetic_ray.journal.events import MODEL_DELTA, Stored

_KEEP = 10_000


class _Stream:
    """The newest deltas of one run, each with the number of the event it came after."""

    __slots__ = ("first", "parked", "pieces", "seen_at")

    def __init__(self, first: int) -> None:
        self.pieces: deque[tuple[int, str, float, bytes]] = deque(maxlen=_KEEP)
        self.first = first
        self.parked = 0
        self.seen_at = 0.0


class LiveDeltas:
    """Deltas of runs that have a reader. A run without one for `grace` seconds is forgotten."""

    def __init__(self, grace: float = 2.0) -> None:
        self._grace = grace
        self._streams: dict[str, _Stream] = {}
        #: More than any stream ever numbered a piece: a reader's cursor never runs ahead.
        self._offered = 0
        self._timer: asyncio.TimerHandle | None = None

    def live(self) -> tuple[str, ...]:
        """Ids of the runs whose deltas are wanted."""
        return tuple(self._streams)

    def offer(self, run_id: str, after: int, context_id: str, time: float, data: bytes) -> bool:
        """Keep a delta that came after event `after` of its run, if somebody reads them."""
        stream = self._streams.get(run_id)
        if stream is None:
            return False
        self._offered += 1
        if len(stream.pieces) == _KEEP:
            stream.first += 1
        stream.pieces.append((after, context_id, time, data))
        return True

    def pending(self, run_id: str, cursor: int) -> bool:
        """Whether a reader at `cursor` has something to fetch."""
        stream = self._streams.get(run_id)
        return stream is not None and cursor < stream.first + len(stream.pieces)

    def enter(self, run_id: str) -> None:
        """A reader is here."""
        stream = self._streams.get(run_id)
        if stream is None:
            stream = self._streams[run_id] = _Stream(self._offered)
        stream.parked += 1

    def expect(self, run_id: str) -> None:
        """A reader is about to come: keep what he should not miss, for the time of grace."""
        self.enter(run_id)
        self.leave(run_id)

    def leave(self, run_id: str) -> None:
        """A reader has its page; it may come back."""
        stream = self._streams.get(run_id)
        if stream is None:
            return
        loop = asyncio.get_running_loop()
        stream.parked -= 1
        stream.seen_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._grace, self._sweep)

    def merge(
        self, run_id: str, entries: list[Stored], upto: int, cursor: int
    ) -> tuple[list[Stored], int]:
        """Put the deltas from `cursor` on between `entries`, as far as event `upto`."""
        stream = self._streams.get(run_id)
        if stream is None:
            return entries, cursor
        cursor = max(cursor, stream.first)
        merged: list[Stored] = []
        numbered = iter(entries)
        entry = next(numbered, None)
        for after, context_id, time, data in self._from(stream, cursor):
            if after > upto:
                break
            while entry is not None and (entry[0] or 0) <= after:
                merged.append(entry)
                entry = next(numbered, None)
            merged.append((None, MODEL_DELTA, context_id, time, data))
            cursor += 1
        if entry is not None:
            merged.append(entry)
            merged.extend(numbered)
        return merged, cursor

    @staticmethod
    def _from(stream: _Stream, cursor: int) -> Iterator[tuple[int, str, float, bytes]]:
        at, end = cursor - stream.first, len(stream.pieces)
        if at == 0:
            return iter(tuple(stream.pieces))
        return iter([stream.pieces[index] for index in range(at, end)])

    def close(self) -> None:
        """Forget all."""
        self._streams.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        """Forget runs nobody came back to; look again while there are any."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for run_id, stream in list(self._streams.items()):
            if stream.parked == 0 and now - stream.seen_at >= self._grace:
                del self._streams[run_id]
        idle = [s.seen_at for s in self._streams.values() if s.parked == 0]
        self._timer = None
        if idle:
            due = max(0.0, min(idle) + self._grace - now)
            self._timer = loop.call_later(due, self._sweep)
