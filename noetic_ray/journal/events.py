"""What the journal keeps, and how it is shown to readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from noetic_ray.canonical import from_json
from noetic_ray.usage import TokenUsage

#: One entry as a sender hands it over: run id, type, context id, seconds since the epoch, JSON.
Record = tuple[str, str, str, float, bytes]
#: One entry as a reader gets it: number in its run (None for a delta), type, context, time, JSON.
Stored = tuple[int | None, str, str, float, bytes]
#: One line of a store: run id, number, type, context id, time, JSON.
Row = tuple[str, int, str, str, float, bytes]

RUN_STARTED = "run.started"
RUN_ENDED = "run.ended"
CONTEXT_STARTED = "context.started"
CONTEXT_ENDED = "context.ended"
USAGE_UPDATED = "usage.updated"
ITEM_APPENDED = "item.appended"
#: Shown to live readers, never numbered within a run, never stored.
MODEL_DELTA = "model.delta"
#: Somebody is about to read the deltas of a run; never numbered, never stored.
FOLLOW = "follow"
#: A finished span among the entries of a batch; its data is the span's tuple, not JSON.
SPAN = "span"

ITEM_PREFIX = b'{"item":'
_ITEM_SKIP = len(ITEM_PREFIX)


def wrap_item(item: bytes) -> bytes:
    """The data of an `item.appended` event, from the item's JSON."""
    return ITEM_PREFIX + item + b"}"


def unwrap_item(data: bytes) -> bytes:
    """The item's JSON out of the data of an `item.appended` event."""
    return data[_ITEM_SKIP:-1]


class Event:
    """One thing that happened in a run.

    `seq` counts from 1 without gaps within a run and is None for `model.delta`; `time` is in
    seconds since the epoch. `data` is decoded when first asked for and is the reader's own.
    """

    __slots__ = ("_data", "_raw", "context_id", "run_id", "seq", "time", "type")
    __match_args__ = ("seq", "type", "run_id", "context_id", "time", "data")

    def __init__(
        self,
        seq: int | None,
        type: str,
        run_id: str,
        context_id: str,
        time: float,
        data: bytes | dict[str, Any],
    ) -> None:
        self.seq = seq
        self.type = type
        self.run_id = run_id
        self.context_id = context_id
        self.time = time
        self._raw: bytes | None = data if isinstance(data, bytes) else None
        self._data: dict[str, Any] | None = None if isinstance(data, bytes) else data

    @classmethod
    def of(cls, run_id: str, stored: Stored) -> Event:
        """The event of one entry of `run_id`."""
        seq, type_, context_id, time, data = stored
        return cls(seq, type_, run_id, context_id, time, data)

    @property
    def data(self) -> dict[str, Any]:
        """What the event says; the keys depend on its type."""
        if self._data is None:
            self._data = from_json(self._raw or b"{}")
            self._raw = None
        return self._data

    def _values(self) -> tuple[Any, ...]:
        return self.seq, self.type, self.run_id, self.context_id, self.time, self.data

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Event) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.run_id, self.seq, self.type, self.context_id, self.time))

    def __reduce__(self) -> tuple[Any, ...]:
        return Event, self._values()

    def __repr__(self) -> str:
        return (
            f"Event(seq={self.seq}, type={self.type!r}, run_id={self.run_id!r}, "
            f"context_id={self.context_id!r}, time={self.time!r}, data={self.data!r})"
        )


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line about a run.

    `tokens` and `cost` (US dollars) cover the whole tree, `contexts` counts those that started;
    times are seconds since the epoch, `ended_at` is None while the run goes on.
    """

    id: str
    status: str
    step: str | None
    started_at: float | None
    ended_at: float | None
    contexts: int
    tokens: TokenUsage
    cost: float


class Page(NamedTuple):
    """One answer to a reader.

    Ask again with `since=page.since` and `cursor=page.cursor`. `ended` means that nothing follows.
    """

    entries: list[Stored]
    since: int
    cursor: int
    ended: bool


class ItemPage(NamedTuple):
    """Items of one context as JSON; `total` is how many the journal has of it."""

    items: list[bytes]
    total: int


class Selection(NamedTuple):
    """Events of some types, in order; `since` is the number of the last event looked at."""

    entries: list[Stored]
    since: int


class SpanPage(NamedTuple):
    """Finished spans in order; ask again with `after=last`, which lets go of these.

    `lost` counts the spans dropped so far because nobody fetched them.
    """

    spans: list[tuple[Any, ...]]
    last: int
    lost: int
