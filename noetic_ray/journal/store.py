"""Where a journal keeps events and values beyond the process, and the thread that writes events."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.journal.events import Row, RunInfo, Stored

log = logging.getLogger("noetic_ray")

#: Code of the ConfigError of an event number that is taken.
CONFLICT = "STORE_CONFLICT"
_RETRY_PAUSE = 1.0


class Extent(NamedTuple):
    """How far a stored run goes.

    `last_seq` is 0 for an unknown run, `end_seq` the number of the event that ended it, else 0.
    """

    last_seq: int
    end_seq: int


class Store(Protocol):
    """A durable, append-only table of events, and one of values. Blocking; for any thread.

    Failures are ConfigErrors that say what to do.
    """

    def write(self, rows: Sequence[Row]) -> None:
        """Add events in one transaction; durable on return. All or nothing."""

    def extent(self, run_id: str) -> Extent:
        """How far a run goes."""
        ...

    def events(self, run_id: str, since: int = 0, limit: int = 1_000) -> list[Stored]:
        """Events of a run with a number above `since`, in order."""
        ...

    def items(
        self, run_id: str, context_id: str, since: int = 0, limit: int = 1_000
    ) -> list[bytes]:
        """JSON of the items of one context, without its first `since`."""
        ...

    def item_count(self, run_id: str, context_id: str) -> int:
        """How many items of one context there are."""
        ...

    def runs(self) -> list[RunInfo]:
        """All runs, oldest first."""
        ...

    def load_values(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of those keys, beside the events, that exist, as they were at one time."""
        ...

    def save_values(self, changes: Mapping[str, bytes | None]) -> None:
        """Write keys, or remove those given as None, in one transaction; durable on return."""

    def value_keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""
        ...

    def close(self) -> None:
        """Let go of files and connections; a second call does nothing."""


class StoreWriter:
    """Commits in groups, in one thread: a commit takes all that came in since the last one.

    Rows wait at most `lag` seconds for company, or not at all when somebody waits for them.
    What could not be written is kept and tried again with the next commit.
    """

    def __init__(self, store: Store, lag: float = 0.05) -> None:
        self._store = store
        self._lag = lag
        self._changed = threading.Condition()
        self._rows: list[Row] = []
        self._submitted = 0
        self._wanted = 0
        self._closing = False
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._complained = False
        self._thread: threading.Thread | None = None
        self.committed = 0

    def submit(self, rows: list[Row]) -> int:
        """Take rows; the number returned is a ticket for `commit`."""
        with self._changed:
            if self._closing:
                raise _closed()
            self._rows.extend(rows)
            self._submitted += len(rows)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="noetic-store-writer", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
            return self._submitted

    async def commit(self, ticket: int) -> None:
        """Return when the rows up to `ticket` are durable; raises why they are not."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if ticket <= self.committed:
                return
            if self._closing:
                raise _closed()
            self._wanted = max(self._wanted, ticket)
            self._waiters.append((ticket, loop, future))
            self._changed.notify_all()
        await future

    async def settle(self) -> None:
        """Make everything durable that was submitted."""
        await self.commit(self._submitted)

    def close(self) -> None:
        """Write what is left and stop. Blocking; a failure is logged."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work)
                if not self._urgent():
                    pause = _RETRY_PAUSE if self._complained else self._lag
                    self._changed.wait_for(self._urgent, pause)
                closing = self._closing
                rows = self._rows
                self._rows = []
                self._wanted = 0
                waiters, self._waiters = self._waiters, []
            failure = self._write(rows)
            for _, loop, future in waiters:
                _tell(loop, future, failure)
            if closing:
                return

    def _has_work(self) -> bool:
        return self._urgent() or bool(self._rows)

    def _urgent(self) -> bool:
        return self._closing or self._wanted > 0

    def _write(self, rows: list[Row]) -> NoeticError | None:
        if not rows:
            return None
        try:
            self._store.write(rows)
        except Exception as error:
            failure = error if isinstance(error, NoeticError) else NoeticError(repr(error))
            self._complain(failure)
            if isinstance(failure, ConfigError) and failure.code == CONFLICT:
                self._write_apart(rows)
                self.committed += len(rows)
            else:
                with self._changed:
                    self._rows[:0] = rows
            return failure
        self.committed += len(rows)
        self._complained = False
        return None

    def _complain(self, failure: NoeticError) -> None:
        if not self._complained:
            self._complained = True
            log.error("the journal's store does not take events: %s", failure)

    def _write_apart(self, rows: list[Row]) -> None:
        """Some run is written by somebody else too: keep its rows from blocking the others."""
        by_run: dict[str, list[Row]] = {}
        for row in rows:
            by_run.setdefault(row[0], []).append(row)
        for run_id, own in by_run.items():
            try:
                self._store.write(own)
            except Exception as error:
                log.error("%d events of run %s are not stored: %s", len(own), run_id, error)


def _closed() -> ConfigError:
    return ConfigError("STORE_CLOSED", "the journal's store is closed.", "Open a new harness.")


def _tell(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[None], error: NoeticError | None
) -> None:
    def tell() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:
        log.debug("nobody is left to hear that the store was written")
