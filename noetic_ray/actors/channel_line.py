"""One process's line to the channel actor: what is to be said, what is awaited, what was lost."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pickle
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from functools import partial
from itertools import count
from typing import Any

from noetic_ray.actors.channel_actor import DROPPED, ERROR
from noetic_ray.actors.channel_sessions import Result
from noetic_ray.engine.channel_lanes import OK, ChannelSpec
from noetic_ray.engine.local_channels import OnDropped
from noetic_ray.errors import ChannelClosed, NoeticError, from_wire

ACK_DELAY = 0.02
"""Seconds an acknowledgement waits for a call to ride on."""

ActorFactory = Callable[[], Any]
"""Gives the handle of the channel actor, or an awaitable of it; called on first use."""

Answer = tuple[str, Any]

_MAX_CALLS = 8
_ASK_AGAIN = 0.02
_CONFIRM_SECONDS = 1.0


class _Pending:
    """An operation whose outcome has not come yet."""

    __slots__ = ("channel_name", "future", "owner")

    def __init__(self, future: asyncio.Future[Answer], channel_name: str, owner: str) -> None:
        self.future = future
        self.channel_name = channel_name
        self.owner = owner

    def fail(self, error: Exception | None = None) -> None:
        if not self.future.done():
            known = error if isinstance(error, NoeticError) else ChannelClosed(self.channel_name)
            self.future.set_exception(known)


class ActorLine:
    """Sends operations in order, several a call; at most one call waits at the actor.

    Belongs to one asyncio loop. When the actor dies, everything under way ends with ChannelClosed
    and a new session begins; the actor gives back what the old one held when it sees the new one.
    """

    def __init__(
        self,
        factory: ActorFactory,
        process_id: str,
        loop: asyncio.AbstractEventLoop,
        on_dropped: OnDropped,
    ) -> None:
        self.loop = loop
        self.actor: Any = None
        self.epoch = 0
        self.closed = False
        self._factory = factory
        self._process = process_id
        self._on_dropped = on_dropped
        self._ids = count(1)
        self._opening: asyncio.Task[None] | None = None
        self._flusher: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._start_session()

    def _start_session(self) -> None:
        self.actor = None
        self._incarnation: int | None = None
        self._number = 0
        self._calls = 0
        self._outbox: list[tuple[Any, ...]] = []
        self._pending: dict[int, _Pending] = {}
        self._accepted: dict[str, ChannelSpec] = {}
        self._unsaid: set[str] = set()  # owners with acknowledgements in the outbox
        self._unanswered: set[int] = set()  # operations the actor has taken in and keeps waiting
        self._patient = False  # whether something in the outbox is likely to wait
        self._waiting = False  # whether a waiting call is out
        self._held = False  # whether the outbox goes with the next reply

    def next_id(self) -> int:
        """A number for an operation; acknowledgements and withdrawals name it."""
        return next(self._ids)

    # -- saying things ---------------------------------------------------------------------------

    async def request(
        self, operation: tuple[Any, ...], channel_name: str, owner: str, patient: bool = False
    ) -> Answer:
        """Have an operation done and await its status; a refusal is raised as our error.

        Cancelling withdraws it: what it had received is back in its channel afterwards.
        """
        if self.closed:
            raise ChannelClosed(channel_name)
        future: asyncio.Future[Answer] = self.loop.create_future()
        self._pending[operation[1]] = _Pending(future, channel_name, owner)
        self._patient = self._patient or patient
        self.put(*operation)
        try:
            status, data = await future
        except asyncio.CancelledError:
            await self._withdraw(operation[1])
            raise
        if status == ERROR:
            raise from_wire(data)
        return status, data

    async def confirm(self, name: str, *arguments: Any) -> None:
        """Have something done and wait, within bounds, until the actor says that it is."""
        if self.closed:
            return
        id = self.next_id()
        future: asyncio.Future[Answer] = self.loop.create_future()
        self._pending[id] = _Pending(future, "", "")
        self.put(name, id, *arguments)
        try:
            await asyncio.wait((future,), timeout=_CONFIRM_SECONDS)
        finally:
            self._forget(id)
            if future.done() and not future.cancelled():
                future.exception()  # a dead actor holds nothing, so nothing is left to confirm

    def tell(
        self, operation: tuple[Any, ...], channel_name: str, told: Callable[[Any], None]
    ) -> None:
        """Have an operation done that nobody awaits; `told` gets its finished future."""
        future: asyncio.Future[Answer] = self.loop.create_future()
        future.add_done_callback(told)
        self._pending[operation[1]] = _Pending(future, channel_name, "")
        self.put(*operation)

    def put(self, *operation: Any) -> None:
        """Send with everything else of this turn of the loop."""
        self._outbox.append(operation)
        self._schedule()

    def last(self) -> tuple[Any, ...]:
        """What will be said last, as long as nothing of it was sent."""
        return self._outbox[-1] if self._outbox else ("",)

    def acknowledge(self, id: int, owner: str, taken: int | None) -> None:
        """Say how many values of a delivery were taken (None: all), soon or with the next call."""
        if self.closed:
            return
        self._outbox.append(("ack", id, taken))
        self._unsaid.add(owner)
        if self._flusher is None:
            self._flusher = self.loop.call_later(ACK_DELAY, self._flush)

    def drop_owner(self, owner: str) -> bool:
        """End what `owner` awaits. Whether the actor may still hold something for it."""
        waiting = [id for id, each in self._pending.items() if each.owner == owner]
        for id in waiting:
            pending = self._forget(id)
            if pending is not None:
                pending.fail()
        return bool(waiting) or owner in self._unsaid

    def reference(self, spec: ChannelSpec) -> str | tuple[Any, ...]:
        """How to name a channel to the actor: in full until it was accepted once."""
        return spec.name if self._accepted.get(spec.name) == spec else tuple(spec)

    def accepted(self, spec: ChannelSpec) -> None:
        """The actor knows this channel."""
        self._accepted[spec.name] = spec

    async def aclose(self) -> None:
        """Send what is left to say and stop: operations under way end with ChannelClosed."""
        if self.closed:
            return
        if self.actor is not None and self._outbox:
            await self.confirm("withdraw", ())
        self.closed = True
        if self._flusher is not None:
            self._flusher.cancel()
        if self._opening is not None:
            self._opening.cancel()
        self._lost()

    async def _withdraw(self, id: int) -> None:
        self._forget(id)
        for index, operation in enumerate(self._outbox):
            if operation[1] == id:
                del self._outbox[index]
                return
        if not self.closed:
            await self.confirm("withdraw", (id,))

    def _forget(self, id: int) -> _Pending | None:
        self._unanswered.discard(id)
        return self._pending.pop(id, None)

    # -- calls -----------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._flusher is not None:
            self._flusher.cancel()
            self._flusher = None
        ask = bool(self._unanswered) and all(each[0] == "ack" for each in self._outbox)
        wait = (ask or self._patient) and not self._waiting
        if self.closed or not (self._outbox or wait):
            return
        if self.actor is None:
            self._connect()
        elif self._calls < _MAX_CALLS:
            self._call(wait)
        else:
            self._held = True

    def _call(self, wait: bool) -> None:
        operations, self._outbox = self._outbox, []
        self._unsaid.clear()
        self._held = self._patient = False
        envelope = self._process, self.epoch, self._incarnation, self._number, operations
        self._number += 1
        self._calls += 1
        self._waiting = self._waiting or wait
        method = self.actor.wait if wait else self.actor.exchange
        try:
            reply = method.remote(pickle.dumps(envelope, 5)).future()
        except Exception:  # Ray is shut down, or the handle is of another cluster
            self._lost()
            return
        ids = [operation[1] for operation in operations if operation[0] != "ack"]
        reply.add_done_callback(partial(self._replied, self.epoch, wait, ids))

    def _replied(
        self, epoch: int, waited: bool, ids: list[int], reply: ThreadFuture[bytes]
    ) -> None:
        """Runs in a thread of Ray."""
        with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits any more
            self.loop.call_soon_threadsafe(self._take_reply, epoch, waited, ids, reply)

    def _take_reply(
        self, epoch: int, waited: bool, ids: list[int], reply: ThreadFuture[bytes]
    ) -> None:
        failed = reply.exception()
        if epoch != self.epoch:
            return
        if failed is not None:
            self._lost()
            return
        state, self._incarnation, results = pickle.loads(reply.result())
        self._calls -= 1
        if waited:
            self._waiting = False
        for result in results:
            self._take_result(result)
        if state != OK:
            self._lost()
            return
        self._unanswered.update(id for id in ids if id in self._pending)
        if self._held:
            self._flush()
        elif self._unanswered and not self._waiting:
            if waited and not results:  # sent home, because too many wait there
                self.loop.call_later(_ASK_AGAIN, self._schedule)
            else:  # after those who were just answered: they may have more to ask
                self._schedule()

    def _take_result(self, result: Result) -> None:
        id, status, data = result
        if id == DROPPED:
            self._on_dropped(status, data)
            return
        pending = self._forget(id)
        if pending is not None and not pending.future.done():
            pending.future.set_result((status, data))

    def _connect(self) -> None:
        if self._opening is None:
            # Not create_task: the context that happens to be first must not own, and cancel, it.
            self._opening = asyncio.Task(self._find_actor(), loop=self.loop)

    async def _find_actor(self) -> None:
        error: Exception | None = None
        try:
            actor = self._factory()
            self.actor = await actor if inspect.isawaitable(actor) else actor
        except Exception as failed:
            error = failed
        finally:
            self._opening = None
        if error is not None:
            self._lost(error)
        else:
            self._flush()

    def _lost(self, error: Exception | None = None) -> None:
        pending = self._pending
        self.epoch += 1
        self._start_session()
        for each in pending.values():
            each.fail(error)
