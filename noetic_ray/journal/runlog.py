"""The events of one run in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from noetic_ray.journal.events import (
    ITEM_APPENDED,
    RUN_ENDED,
    RUN_STARTED,
    RunInfo,
    Stored,
    unwrap_item,
)
from noetic_ray.journal.fold import SUMMARY_TYPES, summarize


class RunLog:
    """Columns instead of one object per event: about 70 bytes an event beside its JSON.

    Events up to `base` are elsewhere, in the store. `end_seq` is the number of the event that
    ended the run, 0 while it goes on.
    """

    __slots__ = (
        "_contexts",
        "_data",
        "_ids",
        "_info",
        "_items",
        "_times",
        "_types",
        "base",
        "end_seq",
    )

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.end_seq = 0
        self._types: list[str] = []
        self._contexts: list[str] = []
        self._times = array("d")
        self._data: list[bytes] = []
        self._ids: dict[str, str] = {}
        self._items: dict[str, array[int]] = {}
        self._info: tuple[int, RunInfo] | None = None

    @property
    def last_seq(self) -> int:
        return self.base + len(self._types)

    def append(self, type_: str, context_id: str, time: float, data: bytes) -> None:
        """Take one event. Its number is `last_seq` afterwards."""
        ids = self._ids
        context_id = ids.setdefault(context_id, context_id)
        if type_ == ITEM_APPENDED:
            index = self._items.get(context_id)
            if index is None:
                index = self._items[context_id] = array("q")
            index.append(len(self._types))
        self._types.append(type_)
        self._contexts.append(context_id)
        self._times.append(time)
        self._data.append(data)
        if type_ == RUN_ENDED:
            self.end_seq = self.last_seq
        elif type_ == RUN_STARTED:
            self.end_seq = 0

    def read(self, since: int, limit: int) -> list[Stored]:
        """Events after `since`, which is at least `base`, up to the one that ended the run."""
        last = self.end_seq or self.last_seq
        stop = min(last, since + limit)
        begin, end = since - self.base, stop - self.base
        return list(
            zip(
                range(since + 1, stop + 1),
                self._types[begin:end],
                self._contexts[begin:end],
                self._times[begin:end],
                self._data[begin:end],
                strict=True,
            )
        )

    def select(self, prefixes: tuple[str, ...], since: int) -> list[Stored]:
        """Events after `since`, which is at least `base`, of the types that begin so."""
        wanted = {type_ for type_ in set(self._types) if type_.startswith(prefixes)}
        return [
            (self.base + at + 1, type_, self._contexts[at], self._times[at], self._data[at])
            for at, type_ in enumerate(self._types[since - self.base :], since - self.base)
            if type_ in wanted
        ]

    def item_count(self, context_id: str) -> int:
        """How many items of a context are here."""
        index = self._items.get(context_id)
        return 0 if index is None else len(index)

    def items(self, context_id: str, since: int, limit: int) -> list[bytes]:
        """JSON of the items of a context, without its first `since`."""
        index = self._items.get(context_id)
        if index is None:
            return []
        return [unwrap_item(self._data[at]) for at in index[since : since + limit]]

    def info(self, run_id: str) -> RunInfo:
        """One line about the run, made again when it has new events."""
        if self._info is None or self._info[0] != self.last_seq:
            self._info = (self.last_seq, summarize(run_id, self._summary_events()))
        return self._info[1]

    def _summary_events(self) -> Iterator[Stored]:
        for at, type_ in enumerate(self._types):
            if type_ in SUMMARY_TYPES:
                yield (
                    self.base + at + 1,
                    type_,
                    self._contexts[at],
                    self._times[at],
                    self._data[at],
                )
