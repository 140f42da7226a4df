"""Entries of text with their vectors, in a layer's storage: written once, searched by meaning."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uuid_utils import uuid7

from noetic_ray.layers.builtin.embedding import Embed, embedded, packed, unpacked
from noetic_ray.layers.storage import LayerStorage
from noetic_ray.until import cosine

PREFIX = "entries/"


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that is like what was asked; `score` from -1 to 1."""

    entry: Mapping[str, Any]
    score: float


class Recollection:
    """What one context has read of a scope's entries so far; lives in the layer's state.

    Each addition has a key of its own, named so that keys sort by age: contexts that share a scope
    do not overwrite each other.
    """

    def __init__(self, storage: LayerStorage) -> None:
        self._storage = storage
        self._parts: dict[str, list[tuple[Mapping[str, Any], Any]]] = {}

    @property
    def size(self) -> int:
        """How many entries are known here."""
        return sum(map(len, self._parts.values()))

    async def refresh(self) -> None:
        """Read what others have added or removed."""
        keys = await self._storage.list(PREFIX)
        for key in [key for key in self._parts if key not in set(keys)]:
            del self._parts[key]
        missing = [key for key in keys if key not in self._parts]
        if missing:
            for key, entries in (await self._storage.get_many(missing)).items():
                self._parts[key] = [(each, unpacked(each["vector"])) for each in entries]

    async def add(
        self,
        embed: Embed | None,
        entries: Sequence[Mapping[str, Any]],
        most: int,
    ) -> None:
        """Write entries, each a dict with `text`; the oldest above `most` are removed."""
        kept = [{**each, "vector": packed(await embedded(embed, each["text"]))} for each in entries]
        if not kept:
            return
        key = f"{PREFIX}{int(time.time() * 1000):013d}-{uuid7()}"
        await self._storage.set(key, kept)
        await self.refresh()
        for old in sorted(self._parts):
            if self.size - len(self._parts[old]) < most or old == key:
                break
            await self._storage.delete(old)
            del self._parts[old]

    async def search(
        self,
        embed: Embed | None,
        query: str,
        top_k: int,
        least: float,
        leave_out: Collection[str] = (),
    ) -> list[Found]:
        """The entries most like `query`, the best first, of equals the newest.

        Those whose `item` is in `leave_out` are passed over.
        """
        await self.refresh()
        if not query.strip() or not self._parts:
            return []
        wanted = unpacked(packed(await embedded(embed, query)))
        return await asyncio.to_thread(self._best, wanted, top_k, least, leave_out)

    def _best(
        self, wanted: Any, top_k: int, least: float, leave_out: Collection[str]
    ) -> list[Found]:
        found: list[Found] = []
        for key in sorted(self._parts, reverse=True):
            for entry, vector in reversed(self._parts[key]):
                if entry.get("item") in leave_out:
                    continue
                score = cosine(wanted, vector)
                if score >= least:
                    found.append(Found(entry, score))
        found.sort(key=lambda each: -each.score)
        return found[:top_k]
