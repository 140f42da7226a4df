"""What the engine asks of the journal and of channels, wherever those live.

The engine runs in the driver (`inline`) or in a context actor; both give it the same two ports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol

from noetic_ray.channels import Channel
from noetic_ray.items import Item


class JournalSink(Protocol):
    """Takes what happens in this process. Every call but `flush` returns at once."""

    def emit(self, run_id: str, type: str, context_id: str, data: Mapping[str, Any]) -> None:
        """Record one event; `data` is encoded before the call returns. Any thread may call."""

    def item(self, run_id: str, context_id: str, item: Item) -> None:
        """Record that a context's log got an item. Items are frozen and may be encoded later."""

    def delta(self, run_id: str, context_id: str, data: Mapping[str, Any]) -> None:
        """Offer a piece of a streamed answer to live readers; it is never stored."""

    def hasten(self) -> None:
        """Bring what was emitted so far to its readers now, not with the next batch."""

    def span(self, record: tuple[Any, ...]) -> None:
        """Hand over one finished span."""

    def live(self, run_id: str) -> bool:
        """Whether somebody reads the deltas of this run now."""
        ...

    def mark(self) -> dict[str, int]:
        """How many records each sender of this process has taken so far."""
        ...

    async def flush(self) -> None:
        """Return when everything emitted so far is acknowledged (durable, with a store)."""


class KeyValues(Protocol):
    """The harness's table of keys and bytes, beside its events; durable with a store."""

    async def load(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values of the keys that exist."""
        ...

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Write keys, or remove those given as None, all or nothing. Durable on return."""

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`."""
        ...

    async def add(self, prefix: str, value: bytes) -> int:
        """Append to the list of values under `prefix`; returns the index. Durable on return."""
        ...


class RunBook(Protocol):
    """What contexts ask of their run's record."""

    async def select(
        self,
        run_id: str,
        prefixes: tuple[str, ...],
        since: int = 0,
        marks: Mapping[str, int] | None = None,
    ) -> tuple[list[tuple[Any, ...]], int]:
        """(events, last number looked at): those of types that begin so, after number `since`.

        Waits until what the senders in `marks` had taken has arrived. An event is (number, type,
        context id, seconds since the epoch, JSON).
        """
        ...

    async def space(
        self,
        run_id: str,
        context_id: str,
        operation: str,
        arguments: Mapping[str, Any],
        marks: Mapping[str, int],
    ) -> Any:
        """Do something to the run's spaces, behind what the senders in `marks` had taken."""
        ...


class ChannelPort(Protocol):
    """Channel operations of contexts. `owner` is the context's id.

    Cancelling a waiting call withdraws it: the value is returned or stays, never both or neither.
    """

    async def send(
        self, channel: Channel[Any], values: Sequence[Any], timeout: float | None, owner: str
    ) -> None:
        """Put values in order. Raises `ChannelTimeout` when a full queue stays full.

        `timeout` 0 fails at once when a value would have to wait; what was taken before stays.
        """

    async def recv(
        self, channel: Channel[Any], max_items: int, timeout: float | None, owner: str
    ) -> list[Any]:
        """Wait for one value and return up to `max_items` that are there."""
        ...

    async def try_recv(self, channel: Channel[Any], owner: str) -> list[Any]:
        """Return one value in a list, or an empty list; never waits."""
        ...

    async def wait_send(self, channel: Channel[Any], timeout: float | None, owner: str) -> bool:
        """Wait until somebody sends, consuming nothing. False when the timeout ran out."""
        ...

    def subscribe(self, channel: Channel[Any], owner: str) -> AsyncIterator[Any]:
        """Iterate over values until the channel closes or the iterator is closed."""
        ...

    async def settle(self, owner: str) -> None:
        """Give back what `owner` still holds and forget it."""
