"""The sessions of one harness, one per thread id."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future as ThreadFuture
from typing import Any

from noetic_ray.canonical import clean_text
from noetic_ray.errors import ConfigError
from noetic_ray.harness.run import _wait_for
from noetic_ray.harness.session import Session
from noetic_ray.harness.session_turns import SessionHome, TurnLine, closed
from noetic_ray.steps.base import Step


class _Entry:
    __slots__ = ("line", "loading", "session")

    def __init__(self, line: TurnLine) -> None:
        self.line = line
        self.session = Session(line)
        self.loading: ThreadFuture[None] = line.home.backend.thread.submit(line.load())


class SessionTable:
    """Makes sessions, and ends them with the harness. Any thread may call, except `aclose`."""

    def __init__(self, home: SessionHome) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._closed = False

    def get(self, thread_id: str, agent: Step[Any, Any] | None = None) -> Session:
        """The session of a thread, with its history read back from the store.

        Raises ConfigError SESSION_CONFLICT for another agent than the thread has here, NO_AGENT
        when none is given for a new one, INVALID_THREAD_ID.
        """
        entry = self._entry(thread_id, agent)
        if not entry.loading.done() and self._home.backend.thread.inside():
            raise ConfigError(
                "BLOCKING_CALL_ON_LOOP",
                "a session was opened on the harness's own event loop",
                "use asession, and await it",
            )
        entry.loading.result()
        return entry.session

    async def aget(self, thread_id: str, agent: Step[Any, Any] | None = None) -> Session:
        """`get`, awaited."""
        entry = self._entry(thread_id, agent)
        await _wait_for(entry.loading)
        entry.loading.result()
        return entry.session

    def _entry(self, thread_id: str, agent: Step[Any, Any] | None) -> _Entry:
        _check(thread_id, agent)
        with self._lock:
            if self._closed:
                raise closed(f"session {thread_id!r}")
            entry = self._entries.get(thread_id)
            if entry is not None and not _broken(entry):
                _expect_same(entry.line, agent)
                return entry
            if agent is None:
                raise ConfigError(
                    "NO_AGENT",
                    f"thread {thread_id!r} has no session yet",
                    "Give the step its turns are to run: session(thread_id, agent=step).",
                )
            entry = self._entries[thread_id] = _Entry(TurnLine(self._home, thread_id, agent))
            return entry

    def close(self) -> None:
        """Let no turn begin any more; what runs is the harness's to abort."""
        with self._lock:
            self._closed = True
        for thread_id, entry in self._entries.items():
            entry.line.close(closed(f"session {thread_id!r}"))

    async def aclose(self, seconds: float) -> None:
        """End the sessions' tasks, once the runs have ended; streams end when they are read."""
        await asyncio.gather(*(entry.line.aclose(seconds) for entry in self._entries.values()))

    def let_go(self) -> None:
        """After the loop has stopped: nobody waits for what it left undone."""
        for thread_id, entry in self._entries.items():
            entry.line.let_go(closed(f"session {thread_id!r}"))


def _check(thread_id: object, agent: object) -> None:
    if not isinstance(thread_id, str) or not thread_id or clean_text(thread_id) != thread_id:
        raise ConfigError("INVALID_THREAD_ID", f"thread_id is {thread_id!r}", "Give a text.")
    if agent is not None and not isinstance(agent, Step):
        hint = "; make one of it with @nr.step" if callable(agent) else ""
        raise TypeError(f"a session's agent is a step, not {type(agent).__name__}{hint}")


def _broken(entry: _Entry) -> bool:
    """Whether the history could not be read; the next to ask tries again."""
    loading = entry.loading
    return loading.done() and (loading.cancelled() or loading.exception() is not None)


def _expect_same(line: TurnLine, agent: Step[Any, Any] | None) -> None:
    if agent is not None and agent is not line.agent:
        raise ConfigError(
            "SESSION_CONFLICT",
            f"thread {line.thread_id!r} has a session with agent {line.agent.id!r}",
            f"its agent stays the same; {agent.id!r} needs a thread, or a harness, of its own",
        )
