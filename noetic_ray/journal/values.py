"""Keys and bytes beside the events: what layers keep from one run to the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from noetic_ray.journal.store import Store

T = TypeVar("T")


class RunsJobs(Protocol):
    """Runs a blocking job in a thread."""

    def __call__(self, job: Callable[[], T], /) -> Awaitable[T]: ...


class ValueTable:
    """In the store, or in memory without one. The store's work is done in threads.

    Saves have one thread: they are done in the order they came, also when somebody who waited for
    one left, and readers do not wait behind them.
    """

    def __init__(self, store: Store | None, in_thread: RunsJobs) -> None:
        self._store = store
        self._in_thread = in_thread
        self._saving: ThreadPoolExecutor | None = None
        self._values: dict[str, bytes] = {}

    async def load(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The values of the keys that exist."""
        store, values = self._store, self._values
        if store is not None:
            return await self._in_thread(lambda: store.load_values(keys))
        return {key: values[key] for key in keys if key in values}

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Write or remove keys, all or nothing; durable on return, with a store."""
        store = self._store
        if store is not None:
            await self._saved(lambda: store.save_values(changes))
            return
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    async def add(self, prefix: str, value: bytes) -> int:
        """Append to the values whose keys are `prefix` and a number; returns the index.

        Durable on return, with a store. Nobody else writes keys that begin with `prefix`.
        """
        store = self._store
        if store is None:
            index = sum(key.startswith(prefix) for key in self._values)
            self._values[f"{prefix}{index:08d}"] = value
            return index

        def append() -> int:
            index = len(store.value_keys(prefix))
            store.save_values({f"{prefix}{index:08d}": value})
            return index

        return await self._saved(append)

    async def _saved(self, job: Callable[[], T]) -> T:
        if self._saving is None:
            self._saving = ThreadPoolExecutor(1, thread_name_prefix="noetic-values")
        return await asyncio.get_running_loop().run_in_executor(self._saving, job)

    async def keys(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, in order."""
        store = self._store
        if store is not None:
            return await self._in_thread(lambda: store.value_keys(prefix))
        return sorted(key for key in self._values if key.startswith(prefix))

    def close(self) -> None:
        """Finish what was asked for. Blocking; belongs before the store's own close."""
        if self._saving is not None:
            self._saving.shutdown()
