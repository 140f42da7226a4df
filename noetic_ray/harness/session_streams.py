"""Iterators over what a session's turns do: texts, thoughts, items, events.

Each begins with the oldest entry the session still has, and ends with its harness. Only what the
conversation itself says is text, thought or item: contexts below the turns' roots are in the
events alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Generic, Literal, TypeVar

from noetic_ray.canonical import from_json
from noetic_ray.errors import ConfigError
from noetic_ray.harness.session_feed import Batch, Entry, Feed, Place
from noetic_ray.items import (
    Item,
    MessageItem,
    OutputText,
    ReasoningItem,
    item_from_json,
    item_text,
)
from noetic_ray.journal.events import (
    ITEM_APPENDED,
    MODEL_DELTA,
    RUN_STARTED,
    Event,
    unwrap_item,
)

T = TypeVar("T")
log = logging.getLogger("noetic_ray")

Project = Callable[[Entry], Iterable[T]]
"""What one kind of reader makes of an entry."""


class _Reader(Generic[T]):
    """What the two kinds of iterator share. `missed` counts the entries it came too late for."""

    def __init__(self, feed: Feed, project: Project[T]) -> None:
        self.missed = 0
        self._feed = feed
        self._project = project
        self._place = Place()
        self._ready: deque[T] = deque()
        if feed.thread.inside():
            feed.join(self._place)
        else:
            self._on_loop(feed.join)

    def __del__(self) -> None:
        if not self._place.left:
            self._on_loop(self._feed.leave)

    def _on_loop(self, do: Callable[[Place], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the session with it
            self._feed.thread.loop.call_soon_threadsafe(do, self._place)

    def _take(self, batch: Batch) -> bool:
        """Keep what a batch holds for this reader. False at the end."""
        missed = self._place.pass_over(batch)
        if missed:
            self.missed += missed
            log.warning("a reader of a session came too late for %d entries", missed)
        for entry in batch.entries:
            self._ready.extend(self._project(entry))
        return bool(batch.entries)


class SessionStream(_Reader[T], Iterator[T]):
    """For one thread. `close`, or dropping it, tells the session that nobody reads here."""

    def __iter__(self) -> SessionStream[T]:
        return self

    def __next__(self) -> T:
        while not self._ready:
            if not self._take(self._page()):
                raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        """Leave; iterating ends here."""
        self._ready.clear()
        self._on_loop(self._feed.leave)

    def __enter__(self) -> SessionStream[T]:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _page(self) -> Batch:
        feed = self._feed
        if feed.closed:
            return feed.ahead(self._place)
        if feed.thread.inside():
            raise ConfigError(
                "BLOCKING_CALL_ON_LOOP",
                "a blocking stream of a session was read on the harness's own event loop",
                "use the twin whose name starts with `a`",
            )
        page = feed.page(self._place)
        try:
            return feed.thread.call(page)
        except (CancelledError, RuntimeError):  # the loop was stopped under the call
            page.close()
            return feed.ahead(self._place)


class AsyncSessionStream(_Reader[T], AsyncIterator[T]):
    """For one task, on whatever loop it runs."""

    def __aiter__(self) -> AsyncSessionStream[T]:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if not self._take(await self._page()):
                raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Leave; iterating ends here."""
        self._ready.clear()
        self._on_loop(self._feed.leave)

    async def __aenter__(self) -> AsyncSessionStream[T]:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    async def _page(self) -> Batch:
        feed = self._feed
        if feed.closed:
            return feed.ahead(self._place)
        page = feed.page(self._place)
        if feed.thread.inside():
            return await page
        try:
            waiting = feed.thread.submit(page)
        except RuntimeError:  # the loop has ended
            page.close()
            return feed.ahead(self._place)
        try:
            return await asyncio.wrap_future(waiting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return feed.ahead(self._place)  # it was the loop that was stopped


# -- what readers make of entries ----------------------------------------------------------------


class Pieces:
    """The text of answers, or of thoughts, piece by piece as models stream it.

    What was not streamed comes whole, when it is logged. Pieces of an attempt that failed are not
    taken back: the next attempt's follow them.
    """

    def __init__(self, kind: Literal["text", "reasoning"]) -> None:
        self._kind = kind
        self._streamed: list[str] = []

    def __call__(self, entry: Entry) -> Iterable[str]:
        """The pieces in one entry."""
        _, type, context_id, _, raw = entry.event
        if context_id != entry.run_id:
            return ()
        if type == MODEL_DELTA:
            return self._piece(from_json(raw))
        if type == ITEM_APPENDED:
            return self._rest(item_from_json(unwrap_item(raw)))
        if type in (RUN_STARTED, "model.retried", "model.failed"):
            self._streamed.clear()
        return ()

    def _piece(self, delta: dict[str, str]) -> Iterable[str]:
        if delta["kind"] != self._kind or not delta["text"]:
            return ()
        self._streamed.append(delta["text"])
        return (delta["text"],)

    def _rest(self, item: Item) -> Iterable[str]:
        """What of a logged item was not streamed: all of it, or what came in after a pause."""
        text = self._text(item)
        if not text:
            return ()
        streamed = "".join(self._streamed)
        self._streamed.clear()
        if streamed.startswith(text):
            self._streamed.append(streamed[len(text) :])
            return ()
        return (text[len(streamed) :],) if text.startswith(streamed) else ()

    def _text(self, item: Item) -> str:
        if self._kind == "reasoning":
            return item_text(item) if isinstance(item, ReasoningItem) else ""
        if not isinstance(item, MessageItem) or item.role != "assistant":
            return ""
        return "".join(part.text for part in item.content if isinstance(part, OutputText))


def items_in(entry: Entry) -> Iterable[Item]:
    """The item an entry adds to the conversation."""
    _, type, context_id, _, raw = entry.event
    if type == ITEM_APPENDED and context_id == entry.run_id:
        return (item_from_json(unwrap_item(raw)),)
    return ()


def events_in(entry: Entry) -> Iterable[Event]:
    """Every event but pieces of streamed answers."""
    return () if entry.event[1] == MODEL_DELTA else deltas_too(entry)


def _is_event(entry: Entry) -> bool:
    """Whether a run recorded it; what was only said stands among the entries too."""
    return entry.event[0] is not None or entry.event[1] == MODEL_DELTA


def deltas_too(entry: Entry) -> Iterable[Event]:
    """Every event."""
    return (Event.of(entry.run_id, entry.event),) if _is_event(entry) else ()
