"""The journal as a Ray actor."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
from collections.abc import Callable
from typing import Any

import ray
from ray import cloudpickle

from noetic_ray.errors import ConfigError, NoeticError, to_wire
from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.spans import SpanSink

#: Waiting readers have slots too, and must never hold up an append.
_SLOTS = 100_000
_ANSWERS = frozenset(
    {
        "read",
        "items",
        "runs",
        "has_run",
        "end_run",
        "read_spans",
        "flush_spans",
        "load",
        "save",
        "keys",
        "add",
        "select",
        "space",
    }
)


class JournalActor:
    """A `JournalCore` behind two calls that take and return pickled bytes.

    A store or an exporter that does not open is reported by `hello`, not by a dead actor.
    """

    def __init__(self, store: str | None, span_sink_factory: bytes | None) -> None:
        # Ray makes async actors on the event loop that later runs their default methods.
        self._loop = asyncio.get_running_loop()
        self._core: JournalCore | None = None
        self._failure: NoeticError | None = None
        try:
            self._core = _open_core(store, span_sink_factory)
        except NoeticError as error:
            self._failure = error
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)

    async def append(self, payload: bytes) -> bytes:
        """Take one batch of a sender."""
        try:
            return pickle.dumps((True, await self._opened().handle(payload)))
        except NoeticError as error:
            return pickle.dumps((False, to_wire(error)))

    async def ask(self, payload: bytes) -> bytes:
        """Answer a reader."""
        return await self._answer(payload)

    async def release(self, token: str) -> None:
        """A reader does not wait any more."""
        if self._core is not None:
            self._core.release(token)

    async def close(self, span_timeout: float) -> None:
        """Write what is left and close the store."""
        if self._core is not None:
            await self._core.aclose(span_timeout)

    async def _answer(self, payload: bytes) -> bytes:
        method, arguments = pickle.loads(payload)
        try:
            core = self._opened()
            answer: Any = None
            if method in _ANSWERS:
                answer = await getattr(core, method)(**arguments)
            elif method != "hello":
                raise NoeticError(f"the journal has no answer to {method!r}")
            return pickle.dumps((True, answer), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            return pickle.dumps((False, to_wire(error)), pickle.HIGHEST_PROTOCOL)

    def _opened(self) -> JournalCore:
        if self._core is None:
            raise self._failure or NoeticError("the journal did not open")
        return self._core


def start_journal_actor(
    *,
    store: str | os.PathLike[str] | None = None,
    span_sink_factory: Callable[[], SpanSink] | None = None,
    **options: Any,
) -> Any:
    """Start a journal; returns its handle at once. `JournalClient(handle).hello()` checks it.

    `store` is a path or `sqlite:///path`, taken relative to this process and opened on the
    actor's node. `span_sink_factory` makes, in the actor, the function that exports spans.
    Other `options` (name, lifetime, ...) are Ray's.
    """
    factory = None if span_sink_factory is None else cloudpickle.dumps(span_sink_factory)
    settings = {
        "num_cpus": 0,
        "max_restarts": 0,
        "max_task_retries": 0,
        "enable_task_events": False,
        "max_concurrency": _SLOTS,
    }
    where = None if store is None else _absolute(store)
    return ray.remote(**settings)(JournalActor).options(**options).remote(where, factory)


def _open_core(store: str | None, factory: bytes | None) -> JournalCore:
    sink: SpanSink | None = None
    if factory is not None:
        try:
            sink = cloudpickle.loads(factory)()
        except NoeticError:
            raise
        except Exception as error:
            raise ConfigError(
                "EXPORTER_FAILED",
                f"the exporter could not be made in the journal's process: {error!r}.",
                "Check exporter= and the OTEL_* environment of the workers.",
            ) from error
    if store is None:
        return JournalCore(span_sink=sink)
    from noetic_ray.journal.sqlite import open_store

    return JournalCore(open_store(store), sink)


def _absolute(store: str | os.PathLike[str]) -> str:
    from noetic_ray.journal.sqlite import store_path

    return store_path(store)
