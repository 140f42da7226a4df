"""Finished spans on their way to an exporter."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from noetic_ray.journal.events import SpanPage

log = logging.getLogger("noetic_ray")

Span = tuple[Any, ...]
SpanSink = Callable[[list[Span]], None]

_KEEP = 20_000
_CHUNK = 512


class SpanQueue:
    """Spans for a reader elsewhere, kept until it has said that it got them."""

    def __init__(self, keep: int = _KEEP) -> None:
        self._spans: deque[Span] = deque(maxlen=keep)
        self._first = 0
        self._lost = 0

    def put(self, span: Span) -> None:
        """Take one span; a full queue drops its oldest."""
        if len(self._spans) == self._spans.maxlen:
            self._first += 1
            self._lost += 1
        self._spans.append(span)

    @property
    def last(self) -> int:
        """The number of the newest span, counted from 1."""
        return self._first + len(self._spans)

    def pending(self, after: int) -> bool:
        """Whether there are spans after number `after`."""
        return self.last > after

    def read(self, after: int, limit: int) -> SpanPage:
        """Forget the spans up to `after` and show the next ones."""
        while self._spans and self._first < after:
            self._spans.popleft()
            self._first += 1
        spans = list(islice(self._spans, limit))
        return SpanPage(spans, self._first + len(spans), self._lost)


class SpanExport:
    """Gives spans to a function in a thread of its own, so that a slow one delays nobody.

    At most `keep` spans wait; then the oldest are dropped and counted in `lost`; `taken` counts
    all. A function with a method `close` gets that called, in the same thread, at the end.
    """

    def __init__(self, sink: SpanSink, keep: int = _KEEP) -> None:
        self._sink = sink
        self._waiting: deque[Span] = deque(maxlen=keep)
        self._changed = threading.Condition()
        self.taken = 0
        self._exported = 0
        self._closing = False
        self._complained = False
        self._flushes: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.lost = 0
        self._thread: threading.Thread | None = None

    def put(self, span: Span) -> None:
        """Take one span."""
        with self._changed:
            if self._closing:
                self.lost += 1
                return
            if len(self._waiting) == self._waiting.maxlen:
                self.lost += 1
                self._exported += 1
            self._waiting.append(span)
            self.taken += 1
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="noetic-span-export", daemon=True)
        self._thread.start()

    async def flushed(self, timeout: float) -> bool:
        """`flush` for an event loop: no thread waits."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if self._exported >= self.taken:
                return True
            self._flushes.append((self.taken, loop, future))
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            return False
        finally:
            with self._changed:
                self._flushes = [each for each in self._flushes if each[2] is not future]
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until all spans taken so far went through the function; False when late."""
        with self._changed:
            target = self.taken
            return self._changed.wait_for(lambda: self._exported >= target, timeout)

    def close(self, timeout: float) -> None:
        """Export what is there, for at most `timeout` seconds, and stop."""
        deadline = time.monotonic() + timeout
        self.flush(timeout)
        with self._changed:
            self._closing = True
            self.lost += len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            if self._thread is None:  # nothing was ever exported
                self._start()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    break
                chunk = [self._waiting.popleft() for _ in range(min(_CHUNK, len(self._waiting)))]
            self._give(chunk)
            with self._changed:
                self._exported += len(chunk)
                self._changed.notify_all()
                self._tell()
        self._close_sink()

    def _tell(self) -> None:
        for target, loop, future in self._flushes:
            if target <= self._exported:
                with contextlib.suppress(RuntimeError):  # that loop has ended, nobody waits
                    loop.call_soon_threadsafe(_resolve, future)

    def _close_sink(self) -> None:
        close = getattr(self._sink, "close", None)
        if close is None:
            return
        try:
            close()
        except Exception as error:
            log.warning("the span exporter did not close: %r", error)

    def _give(self, chunk: list[Span]) -> None:
        try:
            self._sink(chunk)
        except Exception as error:
            self.lost += len(chunk)
            if not self._complained:
                self._complained = True
                log.warning("spans are lost, the exporter failed: %r", error)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
