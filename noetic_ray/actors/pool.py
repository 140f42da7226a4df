"""A process's view of the supervisor's actors: leases, and a small list of idle ones."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from ray.exceptions import RayError

from noetic_ray.errors import ConfigError, NoeticError, from_wire
from noetic_ray.placement import Placement

KEEP_IDLE = 2
IDLE_SECONDS = 0.25


class ActorRef:
    """A context actor: its id in the harness and its handle."""

    __slots__ = ("handle", "id", "tainted")

    def __init__(self, id: str, handle: Any) -> None:
        self.id = id
        self.handle = handle
        self.tainted = False


class LocalPool:
    """Leases actors from the supervisor for one holder, and keeps a few for its next children.

    Idle ones go back after a moment without use; released leases of one loop turn go back in one
    call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, supervisor: Any, holder: str) -> None:
        self._loop = loop
        self._supervisor = supervisor
        self._holder = holder
        self._known: dict[str, ActorRef] = {}
        self._idle: dict[Placement, list[ActorRef]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._releases: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- leases ----------------------------------------------------------------------------------

    def take(self, placement: Placement) -> ActorRef | None:
        """An idle actor that this holder has already leased, if there is one."""
        idle = self._idle.get(placement)
        return idle.pop() if idle else None

    async def lease(self, placement: Placement, count: int) -> list[tuple[ActorRef, int]]:
        """Room for `count` contexts as (actor, how many). Raises ConfigError when there is none.

        The lease is not lost when the waiting task is cancelled: it goes back.
        """
        asking = self._spawn(self._ask(placement, count, dict(self._known)))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(self._return_unused)
            raise

    async def _ask(
        self, placement: Placement, count: int, known: dict[str, ActorRef]
    ) -> list[tuple[ActorRef, int]]:
        request = pickle.dumps((self._holder, placement, count, tuple(known)))
        try:
            error, grants = await self._supervisor.lease.remote(request)
        except RayError as gone:
            raise supervisor_lost() from gone
        if error is not None:
            raise from_wire(error)
        # One of `known` may have died while the answer was under way: its calls will say so.
        return [(known.get(id) or self._ref(id, handle), count) for id, handle, count in grants]

    def _ref(self, id: str, handle: Any) -> ActorRef:
        ref = self._known.get(id)
        if ref is None:
            ref = self._known[id] = ActorRef(id, handle)
        return ref

    def _return_unused(self, asking: asyncio.Task[list[tuple[ActorRef, int]]]) -> None:
        if not asking.cancelled() and asking.exception() is None:
            for actor, count in asking.result():
                self.release(actor, count)

    def give_back(self, actor: ActorRef, count: int, placement: Placement, keep: bool) -> None:
        """A call's contexts have settled: keep a lone actor for the next child, or release it."""
        idle = self._idle.setdefault(placement, [])
        good = not actor.tainted and actor.id in self._known
        if keep and count == 1 and len(idle) < KEEP_IDLE and good:
            idle.append(actor)
            self._arm()
        else:
            self.release(actor, count)

    def _arm(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self._loop.call_later(IDLE_SECONDS, self.release_idle)

    def release_idle(self) -> None:
        """Give every idle actor back."""
        idle, self._idle = self._idle, {}
        for actors in idle.values():
            for actor in actors:
                self.release(actor, 1)

    def taint(self, actor: ActorRef) -> None:
        """A body was abandoned there and may still run: use the actor for nothing new."""
        actor.tainted = True
        for idle in self._idle.values():
            for unwanted in [each for each in idle if each is actor]:
                idle.remove(unwanted)
                self.release(unwanted, 1)

    def release(self, actor: ActorRef, count: int) -> None:
        """Give leases back."""
        if not self._releases:
            self._loop.call_soon(self._flush_releases)
        self._releases[actor.id] = self._releases.get(actor.id, 0) + count

    def _flush_releases(self) -> None:
        releases, self._releases = self._releases, {}
        self._spawn(self._release(pickle.dumps((self._holder, list(releases.items())))))

    async def _release(self, payload: bytes) -> None:
        try:
            await self._supervisor.release.remote(payload)
        except RayError:
            return  # with the supervisor every lease is gone

    # -- deaths ----------------------------------------------------------------------------------

    def actor_died(self, id: str) -> None:
        """The supervisor says that an actor is dead: it is no idle one any more."""
        self._known.pop(id, None)
        for idle in self._idle.values():
            idle[:] = [actor for actor in idle if actor.id != id]

    async def death_of(self, actor: ActorRef) -> tuple[float | None, dict[str, int]]:
        """When a dead actor was found dead, once all that it had started elsewhere has settled.

        In seconds since the epoch, None when nobody knows; and how far the journal has to be read
        to have heard of it all.
        """
        self.actor_died(actor.id)
        try:
            found: tuple[float | None, dict[str, int]] = await self._supervisor.death_of.remote(
                actor.id
            )
        except RayError:
            return None, {}
        return found

    async def kill_self(self, alone: bool) -> bool:
        """Have this process killed if nobody else has leased it and `alone` is true."""
        try:
            killed: bool = await self._supervisor.kill.remote(self._holder, alone)
        except RayError:
            return False
        return killed

    async def kill_actor(self, actor: ActorRef) -> None:
        """Have an actor killed whose control does not answer."""
        try:
            await self._supervisor.kill_stuck.remote(actor.id)
        except RayError:
            return

    def kill_stuck(self) -> None:
        """The same for this very process; any thread may call, and nobody waits for it."""
        self._supervisor.kill_stuck.remote(self._holder)

    async def handle_of(self, id: str) -> Any:
        """An actor's handle; None when it is dead or unknown."""
        ref = self._known.get(id)
        if ref is not None:
            return ref.handle
        return await self._supervisor.handle_of.remote(id)

    def _spawn(self, coro: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Give everything idle back and wait for the calls that are out."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.release_idle()
        if self._releases:
            self._flush_releases()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=1.0)


def supervisor_lost() -> NoeticError:
    """What everybody is told who needs a supervisor that is dead."""
    return ConfigError(
        "HARNESS_LOST",
        "the harness's supervisor is gone, so nothing can be started any more",
        "open a new Harness",
    )
