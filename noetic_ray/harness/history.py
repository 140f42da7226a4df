"""What the journal knows of one run, read once and kept up to date."""

from __future__ import annotations

from typing import Any

from noetic_ray.items import Item
from noetic_ray.journal.events import Event
from noetic_ray.journal.fold import ContextRow, ContextTree, TreeFold
from noetic_ray.journal.paging import read_items
from noetic_ray.journal.reader import JournalReader

PAGE = 2_000
POLL_SECONDS = 10.0


class Place:
    """Where a reader of events stands."""

    __slots__ = ("cursor", "ended", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.cursor = 0
        self.ended = False


class RunHistory:
    """Reads a run's events for its tree and its logs. Belongs to the driver's loop."""

    def __init__(self, run_id: str, reader: JournalReader) -> None:
        self._run_id = run_id
        self._reader = reader
        self._fold = TreeFold(run_id)
        self._folded = Place(0)
        self._windows: dict[str, dict[str, Any]] = {}
        self._origins: dict[str, list[tuple[str, int]]] = {}

    async def page(self, place: Place, deltas: bool, wait: float = POLL_SECONDS) -> list[Event]:
        """The next events for a reader; moves its place."""
        page = await self._reader.read(
            self._run_id, place.since, PAGE, wait=wait, deltas=deltas, cursor=place.cursor
        )
        place.since, place.cursor, place.ended = page.since, page.cursor, page.ended
        return [Event.of(self._run_id, entry) for entry in page.entries]

    async def tree(self) -> ContextTree:
        """The tree of contexts now."""
        await self._catch_up()
        return self._fold.tree()

    async def rows(self) -> list[ContextRow]:
        """The contexts as a flat list."""
        await self._catch_up()
        return self._fold.rows()

    async def window(self, context_id: str) -> dict[str, Any] | None:
        """The last window a context put together, with its model's name."""
        await self._catch_up()
        return self._windows.get(context_id)

    async def items(self, context_id: str, since: int) -> list[Item]:
        """A context's log, what it inherited included."""
        await self._catch_up()
        items: list[Item] = []
        for owner, count in self._origins.get(context_id, ()):
            items += await read_items(self._reader, self._run_id, owner, 0, count)
        if since < len(items):
            return items[since:] + await read_items(self._reader, self._run_id, context_id, 0, None)
        own = since - len(items)
        return await read_items(self._reader, self._run_id, context_id, own, None)

    async def _catch_up(self) -> None:
        place = self._folded
        while not place.ended:
            before = place.since
            for event in await self.page(place, deltas=False, wait=0.0):
                self._take(event)
            if place.since == before:
                return

    def _take(self, event: Event) -> None:
        self._fold.feed(event)
        if event.type == "model.started" and "window" in event.data:
            self._windows[event.context_id] = {**event.data["window"], "model": event.data["model"]}
        if event.type == "context.started" and "inherited" in event.data:
            pairs = event.data["inherited"]
            self._origins[event.context_id] = [(owner, count) for owner, count in pairs]
