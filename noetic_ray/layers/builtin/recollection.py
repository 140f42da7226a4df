"""Entries of text with their vectors, in a layer's storage: written once, searched by meaning."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from uuid_utils import uuid7

from noetic_ray.canonical import clean_text
from noetic_ray.layers.builtin.embedding import Embed, embedded, packed, unpacked
from noetic_ray.layers.storage import LayerStorage

PREFIX = "entries/"
#: Parts smaller than this are gathered into larger ones as soon as there are `SMALL_PARTS` of them.
PART, SMALL_PARTS = 100, 32

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that is like what was asked; `score` from -1 to 1."""

    entry: Entry
    score: float


@dataclass(frozen=True, slots=True)
class _Known:
    """An entry that was read, its vector apart."""

    entry: Entry
    vector: array[int]
    length: float

    @property
    def age(self) -> tuple[float, str]:
        return _age(self.entry)


class Recollection:
    """What one context has read of a scope's entries so far; lives in the layer's state.

    The newest `limit` entries count. They stand in parts of up to 100, a key each: an addition is
    a part of its own, and small parts are gathered later, so contexts that share a scope do not
    overwrite each other. A part is written before those it replaces go, hence an entry may be there
    twice, never not at all; entries are told apart by their ids. They are read when first searched.

    Travels empty, and works again once a hook has called `at`.
    """

    def __init__(self, storage: LayerStorage | None, limit: int) -> None:
        self._storage = storage
        self._limit = limit
        self._parts: dict[str, int] = {}
        self._read: dict[str, list[str]] = {}
        self._known: dict[str, _Known] = {}

    def __reduce__(self) -> Any:
        return type(self), (None, self._limit)

    def at(self, storage: LayerStorage) -> Recollection:
        """The same, with the storage to work on."""
        self._storage = storage
        return self

    @property
    def size(self) -> int:
        """How many entries there are, as far as is known here."""
        if self._parts.keys() <= self._read.keys():
            return len(self._known)
        return min(sum(self._parts.values()), self._limit)

    async def refresh(self) -> None:
        """Hear of what others have written."""
        self._parts = {key: _count(key) for key in await self._store.list(PREFIX)}

    async def add(self, embed: Embed | None, entries: Sequence[Entry]) -> None:
        """Write entries, each a dict with `text`. Raises ValueError for vectors that do not fit."""
        if not entries:
            return
        addition, now = uuid7(), time.time()
        length = next((len(known.vector) for known in self._known.values()), None)
        kept: list[Entry] = []
        for number, each in enumerate(entries[-self._limit :]):
            text = clean_text(each["text"])
            vector = await embedded(embed, text)
            length = len(vector) if length is None else length
            _check_lengths(length, len(vector))
            id = f"{addition}/{number:06d}"
            own = {"text": text, "id": id, "vector": packed(vector)}
            kept.append({"time": now, **each, **own})
        await self._write(kept)
        await self.refresh()
        await self._tidy()

    async def search(
        self,
        embed: Embed | None,
        query: str,
        top_k: int,
        least: float,
        leave_out: Collection[str] = (),
    ) -> list[Found]:
        """The entries most like `query`, the best first, of equals the newest; a text once.

        Those whose `item`, or whose text, is in `leave_out` are passed over.
        """
        await self._read_all()
        if not query.strip() or not self._known:
            return []
        wanted = unpacked(packed(await embedded(embed, query)))
        entries = list(self._known.values())
        return await asyncio.to_thread(_best, entries, wanted, top_k, least, leave_out)

    # -- the parts -------------------------------------------------------------------------------

    @property
    def _store(self) -> LayerStorage:
        if self._storage is None:
            raise RuntimeError("this memory has travelled and was given no storage yet")
        return self._storage

    async def _write(self, entries: Sequence[Entry]) -> None:
        key = f"{PREFIX}{uuid7()}.{len(entries)}"
        await self._store.set(key, list(entries))
        self._parts[key] = len(entries)
        self._take(key, entries)
        self._trim()

    async def _remove(self, key: str) -> None:
        await self._store.delete(key)
        self._parts.pop(key, None)
        self._read.pop(key, None)

    async def _read_all(self) -> None:
        await self.refresh()
        missing = [key for key in self._parts if key not in self._read]
        if missing:
            for key, entries in (await self._store.get_many(missing)).items():
                self._take(key, entries)
            self._trim()

    def _take(self, key: str, entries: Sequence[Entry]) -> None:
        self._read[key] = [each["id"] for each in entries]
        for each in entries:
            if each["id"] not in self._known:
                vector = unpacked(each["vector"])
                plain = {name: value for name, value in each.items() if name != "vector"}
                self._known[each["id"]] = _Known(plain, vector, _length(vector))

    def _trim(self) -> None:
        """Let go of the oldest above the limit."""
        over = len(self._known) - self._limit
        if over > 0:
            by_age = sorted(self._known.values(), key=lambda known: known.age)
            for known in by_age[:over]:
                del self._known[known.entry["id"]]

    async def _tidy(self) -> None:
        small = sorted(key for key, count in self._parts.items() if count < PART)
        if len(small) > SMALL_PARTS:
            await self._gather(small)
        if sum(self._parts.values()) >= self._limit + min(self._limit, PART):
            await self._forget()

    async def _gather(self, keys: Sequence[str]) -> None:
        found = await self._store.get_many(keys)
        entries = {each["id"]: each for part in found.values() for each in part}
        ordered = sorted(entries.values(), key=_age)
        for start in range(0, len(ordered), PART):
            await self._write(ordered[start : start + PART])
        for key in found:
            await self._remove(key)

    async def _forget(self) -> None:
        """Remove the parts that hold nothing but entries above the limit."""
        await self._read_all()
        for key in sorted(self._parts):
            if not any(id in self._known for id in self._read.get(key, ())) and key in self._read:
                await self._remove(key)


def _age(entry: Entry) -> tuple[float, str]:
    return entry["time"], entry["id"]


def _count(key: str) -> int:
    return int(key.rpartition(".")[2])


def _length(vector: array[int]) -> float:
    return math.sqrt(sum(map(mul, vector, vector)))


def _check_lengths(one: int, other: int) -> None:
    if one != other:
        raise ValueError(
            f"embed gave vectors of {one} and {other} numbers; a layer whose embedding has changed"
            " needs another id"
        )


def _best(
    entries: Sequence[_Known],
    wanted: array[int],
    top_k: int,
    least: float,
    leave_out: Collection[str],
) -> list[Found]:
    length = _length(wanted)
    scored = []
    for known in entries:
        if known.entry.get("item") in leave_out or known.entry["text"] in leave_out:
            continue
        _check_lengths(len(known.vector), len(wanted))
        both = length * known.length
        score = round(sum(map(mul, wanted, known.vector)) / both, 9) if both else 0.0
        if score >= least:
            scored.append((score, known.age, known.entry))
    scored.sort(key=lambda each: each[:2], reverse=True)
    best: dict[str, Found] = {}
    for score, _, entry in scored:
        if len(best) == top_k:
            break
        best.setdefault(entry["text"], Found(entry, score))
    return list(best.values())
