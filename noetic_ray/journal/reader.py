"""The reading end of the journal, the same wherever the journal lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, cast

from noetic_ray.journal.events import Event, ItemPage, Page, Record, RunInfo, Selection, SpanPage

_POLL_SECONDS = 10.0


class JournalReader(ABC):
    """Asks a `JournalCore`; see there for what the answers are.

    Every method raises NoeticError when the journal is gone.
    """

    @abstractmethod
    async def _ask(self, method: str, **arguments: Any) -> Any:
        """Call a method of the core. Cancelling the wait must leave nothing behind."""

    async def hello(self) -> None:
        """Return when the journal works; raises ConfigError when its store does not open."""
        await self._ask("hello")

    async def read(
        self,
        run_id: str,
        since: int = 0,
        limit: int = 1_000,
        wait: float = 0.0,
        deltas: bool = False,
        cursor: int = 0,
    ) -> Page:
        """Events of a run after number `since`; waits up to `wait` seconds for the first."""
        answer = await self._ask(
            "read",
            run_id=run_id,
            since=since,
            limit=limit,
            wait=wait,
            deltas=deltas,
            cursor=cursor,
        )
        return cast(Page, answer)

    async def follow(
        self, run_id: str, since: int = 0, deltas: bool = False
    ) -> AsyncIterator[Event]:
        """All events of a run after number `since`, as they come, to the one that ends it."""
        cursor = 0
        while True:
            page = await self.read(run_id, since, wait=_POLL_SECONDS, deltas=deltas, cursor=cursor)
            for entry in page.entries:
                yield Event.of(run_id, entry)
            since, cursor = page.since, page.cursor
            if page.ended:
                return

    async def items(
        self,
        run_id: str,
        context_id: str,
        since: int = 0,
        limit: int = 1_000,
        wait_for: int | None = None,
        wait: float = 5.0,
    ) -> ItemPage:
        """Items of one context; with `wait_for`, when there are so many or the wait is over."""
        answer = await self._ask(
            "items",
            run_id=run_id,
            context_id=context_id,
            since=since,
            limit=limit,
            wait_for=wait_for,
            wait=wait,
        )
        return cast(ItemPage, answer)

    async def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        return cast(list[RunInfo], await self._ask("runs"))

    async def has_run(self, run_id: str) -> bool:
        """Whether anything is known of a run."""
        return bool(await self._ask("has_run", run_id=run_id))

    async def load(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values, beside the events, of the keys that exist."""
        wanted = list(keys)
        if not wanted:
            return {}
        return cast(dict[str, bytes], await self._ask("load", keys=wanted))

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Write keys, or remove those given as None, all or nothing. Durable with a store."""
        if changes:
            await self._ask("save", changes=dict(changes))

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""
        return cast(list[str], await self._ask("keys", prefix=prefix))

    async def add(self, prefix: str, value: bytes) -> int:
        """Append to the list of values under `prefix`; returns the index."""
        return int(await self._ask("add", prefix=prefix, value=value))

    async def select(
        self,
        run_id: str,
        prefixes: tuple[str, ...],
        since: int = 0,
        marks: Mapping[str, int] | None = None,
    ) -> Selection:
        """All events after number `since` whose type begins with one of `prefixes`.

        Waits, for a while, until what the senders in `marks` had taken has arrived.
        """
        answer = await self._ask(
            "select", run_id=run_id, prefixes=prefixes, since=since, marks=dict(marks or {})
        )
        return cast(Selection, answer)

    async def space(
        self,
        run_id: str,
        context_id: str,
        operation: str,
        arguments: Mapping[str, Any],
        marks: Mapping[str, int],
    ) -> Any:
        """Do something to a run's spaces, behind what the senders in `marks` had taken."""
        return await self._ask(
            "space",
            run_id=run_id,
            context_id=context_id,
            operation=operation,
            arguments=dict(arguments),
            marks=dict(marks),
        )

    async def end_run(
        self, run_id: str, marks: Mapping[str, int], record: Record, timeout: float = 5.0
    ) -> int:
        """Add the event that ends a run behind everything the senders had taken by `marks`."""
        answer = await self._ask(
            "end_run", run_id=run_id, marks=dict(marks), record=record, timeout=timeout
        )
        return int(answer)

    async def read_spans(self, after: int = 0, limit: int = 1_000, wait: float = 0.0) -> SpanPage:
        """Finished spans for the one exporter elsewhere; those up to `after` are let go."""
        answer = await self._ask("read_spans", after=after, limit=limit, wait=wait)
        return cast(SpanPage, answer)

    async def flush_spans(
        self, timeout: float = 5.0, marks: Mapping[str, int] | None = None
    ) -> int | None:
        """Wait until what `marks` count has arrived, and the journal's own exporter has it.

        The number of the last span, or None when that took too long.
        """
        answer = await self._ask("flush_spans", timeout=timeout, marks=dict(marks or {}))
        return cast("int | None", answer)
