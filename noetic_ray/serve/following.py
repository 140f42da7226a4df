"""Reading along with a run, page by page, at the reader's own speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from noetic_ray.errors import ConfigError
from noetic_ray.harness.history import Place
from noetic_ray.harness.run import Run
from noetic_ray.journal.events import MODEL_DELTA, Event

#: After so many seconds without news a stream says that it is alive.
HEARTBEAT = 15.0
#: The journal keeps pieces of answers only for readers who come back this soon, in seconds.
PATIENCE = 1.0


class Page(NamedTuple):
    """What happened next; no events when nothing did for a while.

    `gap` says that pieces of answers may be missing before or in it.
    """

    events: list[Event]
    gap: bool


async def pages(run: Run[Any], since: int = 0, deltas: bool = False) -> AsyncIterator[Page]:
    """The events of a run after number `since`, to the one that ends it.

    Nothing is read ahead: who is slow is behind, and holds one page.
    """
    place = Place(since)
    left = time.monotonic()
    while not place.ended:
        before = place.cursor
        late = time.monotonic() - left > PATIENCE
        events = await _next(run, place, deltas)
        left = time.monotonic()
        pieces = sum(event.type == MODEL_DELTA for event in events)
        yield Page(events, deltas and (late or place.cursor - before != pieces))


async def is_read(run: Run[Any], since: int) -> bool:
    """Whether an ended run has no events after number `since`."""
    place = Place(since)
    return not await _next(run, place, False) and place.ended


async def _next(run: Run[Any], place: Place, deltas: bool) -> list[Event]:
    try:
        return await run._on_driver(run._history.page(place, deltas, HEARTBEAT))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConfigError("HARNESS_CLOSED", "the harness was closed meanwhile") from None
