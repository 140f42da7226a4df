"""What one app holds: the harness, the agents, the runs it started, and its own end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from noetic_ray.channels import Channel
from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.harness.harness import Harness
from noetic_ray.harness.report import AbortReport
from noetic_ray.harness.run import Run
from noetic_ray.serve.agents import Agents
from noetic_ray.serve.problems import closing, unknown_run
from noetic_ray.steps import Step

T = TypeVar("T")
log = logging.getLogger("noetic_ray")
#: So many ended runs are known by their ids, the newest.
KEEP_ENDED = 1_000
_SWEEP_EVERY = 100
#: So long the end of a server waits for runs to settle.
CLOSE_SECONDS = 2.0
_LIVE = ("pending", "running")
SHUTDOWN = "the server is shutting down"


@dataclass(slots=True)
class Entry:
    """A run this app started; `created_at` in seconds since the epoch."""

    run: Run[Any]
    agent: str
    created_at: float = field(default_factory=time.time)

    @property
    def over(self) -> bool:
        """Whether all of it has settled."""
        return self.run.status not in _LIVE


class Service:
    """Belongs to the event loop of the server."""

    def __init__(
        self,
        harness: Harness,
        agents: Agents,
        channels: Iterable[Channel[Any]],
        max_body: int,
        close_harness: bool,
        keep: int = KEEP_ENDED,
    ) -> None:
        self.harness = harness
        self.agents = agents
        self.channels = _by_name(channels)
        self.max_body = max_body
        self.started_at = int(time.time())
        self.closing = asyncio.Event()
        self._close_harness = close_harness
        self._keep = keep
        self._entries: dict[str, Entry] = {}
        self._unswept = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- runs ------------------------------------------------------------------------------------

    async def start(self, agent: str, step: Step[Any, Any], input: Any, **options: Any) -> Entry:
        """Start a run. When the wait is cancelled, the run is aborted as soon as it is there.

        `options` are those of `Harness.start`.
        """
        if self.closing.is_set():
            raise closing()
        starting = self._own(self.harness.astart(step, input, **options))
        try:
            run = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._own(self._abort_once_there(starting))
            raise
        entry = self._entries[run.id] = Entry(run, agent)
        self._sweep()
        if self.closing.is_set():
            self.abort_soon(run, SHUTDOWN)
        return entry

    async def _abort_once_there(self, starting: asyncio.Task[Run[Any]]) -> None:
        run = await starting
        await run.aabort("client disconnected")

    def entry(self, run_id: str) -> Entry:
        """A run by its id. Raises Problem 404."""
        found = self._entries.get(run_id)
        if found is None:
            raise unknown_run(run_id)
        return found

    def entries(self) -> list[Entry]:
        """The known runs, oldest first."""
        return list(self._entries.values())

    def _sweep(self) -> None:
        """Forget the oldest ended runs; now and then, as it looks at all."""
        self._unswept += 1
        if len(self._entries) <= self._keep or self._unswept < min(_SWEEP_EVERY, self._keep):
            return
        self._unswept = 0
        ended = [id for id, entry in self._entries.items() if entry.over]
        for id in ended[: max(0, len(ended) - self._keep)]:
            del self._entries[id]

    async def abort(self, run: Run[Any], reason: str | None) -> AbortReport:
        """Abort a run to its end, whether or not somebody waits for it."""
        return await asyncio.shield(self._own(run.aabort(reason)))

    def abort_soon(self, run: Run[Any], reason: str) -> None:
        """Abort a run nobody waits for any more."""
        self._own(self._abort_quietly(run, reason))

    async def _abort_quietly(self, run: Run[Any], reason: str) -> None:
        try:
            await run.aabort(reason)
        except NoeticError as error:  # the harness was closed meanwhile, which aborts as well
            log.debug("run %s was not aborted: %s", run.id, error)

    # -- the end ---------------------------------------------------------------------------------

    def begin_to_close(self) -> None:
        """Let every open answer come to its end, abort what runs, and start nothing more."""
        if self.closing.is_set():
            return
        self.closing.set()
        for entry in self._entries.values():
            if not entry.over:
                self.abort_soon(entry.run, SHUTDOWN)

    async def aclose(self) -> None:
        """End what is open, bounded, and close the harness if it is ours to close."""
        self.begin_to_close()
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._tasks and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(tuple(self._tasks), timeout=left)
        for task in tuple(self._tasks):  # the abort itself goes on in the harness
            task.cancel()
        if self._close_harness:
            await self.harness.aclose()

    def _own(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coro)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits has it; nobody waits for what was left behind


def _by_name(channels: Iterable[Channel[Any]]) -> dict[str, Channel[Any]]:
    from noetic_ray.channels import expect_channel

    found: dict[str, Channel[Any]] = {}
    for channel in channels:
        expect_channel(channel, "serve")
        if not channel.external:
            raise ConfigError(
                "CHANNEL_NOT_EXTERNAL",
                f"channel {channel.name!r} is for contexts only",
                "make it with external=True to use it from outside",
            )
        found[channel.name] = channel
    return found
