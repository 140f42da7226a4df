"""What was said in a session so far, in memory and, with a store, for later harnesses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.errors import DuplicateItem
from noetic_ray.harness.history import RunHistory
from noetic_ray.items import Item, item_json, parse_item
from noetic_ray.journal.paging import read_items
from noetic_ray.journal.reader import JournalReader
from noetic_ray.usage import TokenUsage

ROOT = "sessions/"
_AT_ONCE = 32


class SessionHistory:
    """The items of a session's turns and seeds, each once. Not locked: its owner does that."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._places

    def since(self, n: int) -> list[Item]:
        """A copy of the items from number `n` on."""
        return self._items[n:]

    def add(self, item: Item) -> bool:
        """Whether it was new; an item whose id is there is left out."""
        if item.id in self._places:
            return False
        self._places[item.id] = len(self._items)
        self._items.append(item)
        return True

    def new_of(self, items: Iterable[Item]) -> tuple[Item, ...]:
        """Those that are not there. Raises DuplicateItem for another item under a known id."""
        fresh: dict[str, Item] = {}
        for item in items:
            place = self._places.get(item.id)
            known = fresh.get(item.id) if place is None else self._items[place]
            if known is None:
                fresh[item.id] = item
            elif item_json(known) != item_json(item):
                raise DuplicateItem(item.id)
        return tuple(fresh.values())


@dataclass(slots=True)
class Record:
    """One turn, or items somebody seeded (`run_id` is None).

    `items` are what the turn began with, `since` how many items its root's log had before those.
    `usage` is None for a turn nobody saw the end of.
    """

    items: Sequence[Item]
    run_id: str | None = None
    since: int = 0
    usage: TokenUsage | None = None

    def dump(self) -> bytes:
        """As JSON."""
        data: dict[str, Any] = {"items": list(self.items)}
        if self.run_id is not None:
            data |= {"run": self.run_id, "since": self.since, "usage": self.usage}
        return to_json_bytes(data)

    @classmethod
    def load(cls, raw: bytes) -> Record:
        """Read what `dump` wrote."""
        data = from_json(raw)
        usage = data.get("usage")
        return cls(
            [parse_item(item) for item in data["items"]],
            data.get("run"),
            data.get("since", 0),
            None if usage is None else TokenUsage(**usage),
        )


@dataclass(slots=True)
class Past:
    """What earlier harnesses left of a session."""

    items: list[Item] = field(default_factory=list)
    usage: TokenUsage = field(default_factory=TokenUsage)


class SessionRecords:
    """A session's records beside the journal's events; the items of turns are read from those.

    Without a store nothing is kept: a session then lives as long as its harness.
    """

    def __init__(self, reader: JournalReader, thread_id: str, stored: bool) -> None:
        self._reader = reader
        self._prefix = f"{ROOT}{quote(thread_id, safe='')}/"
        self._stored = stored
        self._count = 0

    async def add(self, record: Record) -> str:
        """Keep one more record. Returns its key."""
        self._count += 1
        key = f"{self._prefix}{self._count:010d}"
        await self.keep(key, record)
        return key

    async def keep(self, key: str, record: Record) -> None:
        """Write a record, again or for the first time."""
        if self._stored:
            await self._reader.save({key: record.dump()})

    async def load(self) -> Past:
        """Everything that was kept."""
        past = Past()
        if not self._stored:
            return past
        keys = sorted(await self._reader.keys(self._prefix))
        if not keys:
            return past
        self._count = int(keys[-1].rpartition("/")[2])
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            values = await self._reader.load(some)
            records = [Record.load(values[key]) for key in some if key in values]
            for items, usage in await asyncio.gather(*map(self._recall, records)):
                past.items += items
                past.usage.merge(usage)
        return past

    async def _recall(self, record: Record) -> tuple[list[Item], TokenUsage]:
        """A record's items and usage, as far as the journal has them."""
        items = list(record.items)
        if record.run_id is None:
            return items, TokenUsage()
        items += await read_items(self._reader, record.run_id, record.run_id, record.since, None)
        return items, record.usage or await _used(self._reader, record.run_id)


async def _used(reader: JournalReader, run_id: str) -> TokenUsage:
    """What a turn used whose end nobody wrote down."""
    return (await RunHistory(run_id, reader).tree()).tokens
