"""The actor that owns the channels of a harness.

One call carries everything a client process wants done, in order, and brings back every answer
that is ready for that process. `exchange` never waits. `wait` does, until there is an answer; a
client has one such call out at most, whatever number of its contexts wait, and they have threads
of their own: no number of waiting receivers can keep out the call that would release them. Were
there more waiting processes than threads, the one that waits longest is sent home to ask again.

Calls are numbered per client session, because calls of one caller may overtake each other here.
A call from a process that was declared lost is refused.

The methods are plain functions in threads, under one lock: such a call costs half the CPU of one
to a coroutine method, and the work under the lock takes microseconds.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import ray

from noetic_ray.actors.channel_sessions import Operation, Session, place_of
from noetic_ray.engine.channel_core import ChannelCore
from noetic_ray.engine.channel_lanes import (
    CLOSED,
    FULL,
    OK,
    ChannelSpec,
    Lane,
    QueueLane,
    Ticket,
)
from noetic_ray.engine.channel_terms import TIMED_OUT
from noetic_ray.errors import ConfigError, NoeticError, to_wire

LOST = "lost"
STALE = "stale"
ERROR = "error"
DROPPED = 0
"""The operation number under which a client hears of dropped values."""

WAITING = 256
"""How many processes may wait at once, each in a thread."""

_PLAIN = 64
_MAX_TOMBSTONES = 10_000


class _PlainWait(Ticket):
    """A ticket of plain Ray code: nothing is leased, since nobody would acknowledge."""

    __slots__ = ("bell", "outcome")

    leasing = False

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__("ray.util.queue")
        self.bell = threading.Condition(lock)
        self.outcome: tuple[str, list[Any]] | None = None

    def resolve(self, status: str, values: list[Any]) -> None:
        self.outcome = status, values
        self.bell.notify()


class ChannelActor:
    """See the module. Made by `channel_actor_class()`; one argument and one result per call."""

    def __init__(self, waiting: int = WAITING) -> None:
        self._lock = threading.Lock()
        self._incarnation = time.time_ns()
        self._core = ChannelCore(self._dropped)
        self._sessions: dict[str, Session] = {}
        self._tombstones: dict[str, None] = {}
        self._waiters: dict[object, Session] = {}
        self._limit = waiting - 1
        self._handlers: dict[str, Callable[..., None]] = {
            "send": self._send,
            "post": self._post,
            "recv": self._recv,
            "wake": self._wake,
            "open": self._open,
            "subscribe": self._subscribe,
            "pull": self._pull,
            "unsubscribe": self._unsubscribe,
            "ack": self._ack,
            "withdraw": self._withdraw,
            "settle": self._settle,
            "close_run": self._close_run,
            "close": self._close,
        }

    def exchange(self, payload: bytes) -> bytes:
        """Take in operations of a client: pickled (process, epoch, incarnation, number, ops)."""
        return self._take_in(payload, False)

    @ray.method(concurrency_group="wait")  # type: ignore[untyped-decorator, unused-ignore]
    def wait(self, payload: bytes) -> bytes:
        """Like `exchange`, but answers only when there is an answer."""
        return self._take_in(payload, True)

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator, unused-ignore]
    def owner_lost(self, process: str) -> None:
        """A client process is dead: give back what it held, refuse what still comes from it."""
        with self._lock:
            self._tombstones[process] = None
            if len(self._tombstones) > _MAX_TOMBSTONES:
                del self._tombstones[next(iter(self._tombstones))]
            session = self._sessions.pop(process, None)
            if session is not None:
                session.lose(self._core)

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator, unused-ignore]
    def ping(self) -> int:
        """How many owners wait or hold values."""
        with self._lock:
            return len(self._core.owners())

    @ray.method(concurrency_group="put")  # type: ignore[untyped-decorator, unused-ignore]
    def queue_put(self, payload: bytes) -> str:
        """For plain Ray code: pickled (spec, values, timeout) to a status.

        Several values go in together, at once, or not at all.
        """
        spec, values, timeout = pickle.loads(payload)
        with self._lock:
            lane = self._queue(spec)
            if len(values) != 1 and not lane.closed:
                return OK if lane.offer(values) else FULL
            wait = _PlainWait(self._lock)
            lane.send(wait, values, timeout != 0)
            return self._plain(wait, timeout)[0]

    @ray.method(concurrency_group="get")  # type: ignore[untyped-decorator, unused-ignore]
    def queue_get(self, payload: bytes) -> bytes:
        """For plain Ray code: pickled (spec, count, timeout) to (status, values).

        More than one value comes at once or not at all.
        """
        spec, count, timeout = pickle.loads(payload)
        with self._lock:
            lane = self._queue(spec)
            wait = _PlainWait(self._lock)
            if count == 1:
                lane.receive(wait, 1, timeout != 0)
            else:
                lane.take(wait, count)
            outcome = self._plain(wait, timeout)
        return pickle.dumps(outcome, 5)

    @ray.method(concurrency_group="control")  # type: ignore[untyped-decorator, unused-ignore]
    def queue_size(self, payload: bytes) -> int:
        """For plain Ray code: how many values the channel of this pickled spec holds."""
        with self._lock:
            return self._queue(pickle.loads(payload)).size()

    # -- sessions --------------------------------------------------------------------------------

    def _take_in(self, payload: bytes, wait: bool) -> bytes:
        process, epoch, incarnation, number, operations = pickle.loads(payload)
        with self._lock:
            if incarnation not in (None, self._incarnation):
                return self._reply(STALE, [])
            session = self._session(process, epoch)
            if session is None:
                return self._reply(LOST, [])
            for name, id, *arguments in session.arrive(number, operations):
                self._perform(session, name, id, arguments)
            if wait:
                self._park(session)
            results, state = session.collect(), LOST if session.lost else OK
        return self._reply(state, results)

    def _park(self, session: Session) -> None:
        if len(self._waiters) >= self._limit:
            oldest = next(iter(self._waiters))
            self._waiters.pop(oldest).release()
        me = object()
        self._waiters[me] = session
        session.wait(self._core)
        self._waiters.pop(me, None)

    def _session(self, process: str, epoch: int) -> Session | None:
        if process in self._tombstones:
            return None
        session = self._sessions.get(process)
        if session is None or session.epoch < epoch:
            if session is not None:
                session.lose(self._core)
            session = self._sessions[process] = Session(process, epoch, self._lock)
        return session if session.epoch == epoch else None

    def _dropped(self, name: str, number: int, owner: Hashable) -> None:
        process, epoch = place_of(owner)
        session = self._sessions.get(process)
        if session is not None and session.epoch == epoch:
            session.answer((DROPPED, name, number))

    def _reply(self, state: str, results: list[Any]) -> bytes:
        return pickle.dumps((state, self._incarnation, results), 5)

    # -- operations of a client ------------------------------------------------------------------

    def _perform(self, session: Session, name: str, id: int, arguments: list[Any]) -> None:
        try:
            self._handlers[name](session, id, *arguments)
        except Exception as error:
            session.operations.pop(id, None)
            session.answer((id, ERROR, to_wire(error)))

    def _lane(self, channel: str | tuple[str, str, int, str]) -> Lane:
        """A client sends the whole spec until it was accepted once, then the name."""
        if isinstance(channel, tuple):
            return self._core.open(ChannelSpec(*channel))
        lane = self._core.find(channel)
        if lane is None:
            raise ConfigError("UNKNOWN_CHANNEL", f"channel {channel!r} was never opened here")
        return lane

    def _send(
        self,
        session: Session,
        id: int,
        owner: str,
        channel: Any,
        values: list[bytes],
        timeout: float | None,
    ) -> None:
        lane = self._lane(channel)
        operation = Operation(session, id, owner)
        lane.send(operation, values, timeout != 0)
        session.limit(operation, timeout)

    def _post(
        self, session: Session, id: int, owner: str, channel: Any, values: list[bytes]
    ) -> None:
        self._lane(channel).post(values, (session.process, session.epoch, owner))
        session.answer((id, CLOSED if self._core.closed else OK, []))

    def _recv(
        self,
        session: Session,
        id: int,
        owner: str,
        channel: Any,
        limit: int,
        timeout: float | None,
    ) -> None:
        lane = self._lane(channel)
        operation = Operation(session, id, owner)
        lane.receive(operation, limit, timeout != 0)
        session.limit(operation, timeout)

    def _wake(
        self, session: Session, id: int, owner: str, channel: Any, timeout: float | None
    ) -> None:
        lane = self._lane(channel)
        operation = Operation(session, id, owner)
        lane.listen(operation)
        session.limit(operation, timeout)

    def _open(self, session: Session, id: int, owner: str, channel: Any) -> None:
        self._lane(channel)
        session.answer((id, OK, []))

    def _subscribe(
        self, session: Session, id: int, owner: str, channel: Any, run_id: str | None
    ) -> None:
        try:
            lane = self._lane(channel)
        except NoeticError as error:  # told when the subscription is first read
            session.subscriptions[id] = to_wire(error)
            return
        place = lane.subscribe((session.process, session.epoch, owner), run_id)
        session.subscriptions[id] = lane, place

    def _pull(self, session: Session, id: int, owner: str, stream: int, limit: int) -> None:
        known = session.subscriptions.get(stream)
        if isinstance(known, tuple):
            lane, place = known
            lane.pull(place, Operation(session, id, owner), limit)
        else:
            session.answer((id, ERROR, known) if known else (id, CLOSED, []))

    def _unsubscribe(self, session: Session, id: int, stream: int) -> None:
        known = session.subscriptions.pop(stream, None)
        if isinstance(known, tuple):
            lane, place = known
            lane.unsubscribe(place)
        session.answer((id, OK, []))

    def _ack(self, session: Session, id: int, taken: int | None) -> None:
        operation = session.operations.pop(id, None)
        if operation is not None:
            self._core.acknowledge(operation, taken)

    def _withdraw(self, session: Session, id: int, withdrawn: list[int]) -> None:
        session.withdraw(self._core, withdrawn)
        session.answer((id, OK, []))

    def _settle(self, session: Session, id: int, owner: str) -> None:
        session.settle(self._core, (session.process, session.epoch, owner))
        session.answer((id, OK, []))

    def _close_run(self, session: Session, id: int, run_id: str) -> None:
        self._core.close_run(run_id)
        session.answer((id, OK, []))

    def _close(self, session: Session, id: int) -> None:
        self._core.close()
        session.answer((id, OK, []))

    # -- plain Ray code --------------------------------------------------------------------------

    def _queue(self, spec: tuple[str, str, int, str]) -> QueueLane:
        lane = self._core.open(ChannelSpec(*spec))
        assert isinstance(lane, QueueLane)
        return lane

    def _plain(self, wait: _PlainWait, timeout: float | None) -> tuple[str, list[Any]]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while wait.outcome is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is None or left > 0:
                wait.bell.wait(left)
            elif self._core.expire(wait):
                return TIMED_OUT, []
        return wait.outcome


def channel_actor_class(waiting: int = WAITING) -> Any:
    """The Ray actor class; the caller adds a name, a namespace and where it runs.

    Blocking gets and puts of plain Ray code have threads of their own, so that neither keeps out
    the other. A cluster with more than `waiting` processes that wait at once should raise it, and
    give the actor the same number.
    """
    return ray.remote(
        num_cpus=0,
        max_restarts=0,
        max_task_retries=0,
        enable_task_events=False,
        concurrency_groups={"wait": waiting, "control": 4, "put": _PLAIN, "get": _PLAIN},
    )(ChannelActor)
