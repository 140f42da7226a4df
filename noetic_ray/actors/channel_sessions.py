"""What the channel actor knows of each client process: its operations, and who waits for answers.

Everything here happens under the actor's one lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from typing import Any

from noetic_ray.engine.channel_core import ChannelCore
from noetic_ray.engine.channel_lanes import Lane, Subscription, Ticket
from noetic_ray.engine.channel_terms import TIMED_OUT

Result = tuple[int, str, Any]
"""Operation number, status, values or what the status is about."""

Operations = Sequence[tuple[Any, ...]]


class Operation(Ticket):
    """A ticket of a client's operation; its outcome goes to the client's session."""

    __slots__ = ("deadline", "id", "session")

    def __init__(self, session: Session, id: int, owner: str) -> None:
        super().__init__((session.process, session.epoch, owner))
        self.session = session
        self.id = id
        self.deadline: float | None = None
        session.operations[id] = self

    def resolve(self, status: str, values: list[Any]) -> None:
        if not self.entries:
            self.session.operations.pop(self.id, None)
        self.session.answer((self.id, status, values))


class Session:
    """What one client process has under way, from its first call to its loss."""

    def __init__(self, process: str, epoch: int, lock: threading.Lock) -> None:
        self.process = process
        self.epoch = epoch
        self.lost = False
        self.operations: dict[int, Operation] = {}
        self.subscriptions: dict[int, tuple[Lane, Subscription] | dict[str, Any]] = {}
        self._expected = 0
        self._early: dict[int, Operations] = {}
        self._ready: list[Result] = []
        self._bell = threading.Condition(lock)
        self._waiter: object | None = None
        self._planned: float | None = None  # when the waiter looks at the clock by itself
        self._quiet = False

    def arrive(self, number: int, operations: Operations) -> list[tuple[Any, ...]]:
        """Take in a numbered call; what is in turn now, nothing while an earlier one is missing.

        Answers from here to `collect` ride with the call that collects them.
        """
        self._quiet = True
        self._early[number] = operations
        due: list[tuple[Any, ...]] = []
        while self._expected in self._early:
            due += self._early.pop(self._expected)
            self._expected += 1
        return due

    def answer(self, result: Result) -> None:
        self._ready.append(result)
        if not self._quiet and self._waiter is not None:
            self._bell.notify_all()

    def limit(self, operation: Operation, timeout: float | None) -> None:
        """Let `operation` time out, unless it has its answer."""
        if timeout is None or operation.line is None:
            return
        operation.deadline = time.monotonic() + timeout
        sooner = self._planned is None or operation.deadline < self._planned
        if self._waiter is not None and sooner:
            self._bell.notify_all()

    def wait(self, core: ChannelCore) -> None:
        """Wait until there is an answer, or nothing to wait for; a newer call takes over."""
        self._quiet = False
        me = self._waiter = object()
        self._bell.notify_all()
        while not self._ready and not self.lost and self._waiter is me:
            waiting = [each for each in self.operations.values() if each.waiting]
            if not waiting:
                break
            self._planned = min(
                (e.deadline for e in waiting if e.deadline is not None), default=None
            )
            now = time.monotonic()
            if self._planned is None or self._planned > now:
                self._bell.wait(None if self._planned is None else self._planned - now)
            else:
                _expire(core, waiting, now)
        if self._waiter is me:
            self._waiter = None

    def release(self) -> None:
        """Send the waiting call home."""
        self._waiter = None
        self._bell.notify_all()

    def collect(self) -> list[Result]:
        self._quiet = False
        ready, self._ready = self._ready, []
        return ready

    def withdraw(self, core: ChannelCore, ids: Sequence[int]) -> None:
        """Take operations back, whatever they hold."""
        known = [self.operations.pop(each, None) for each in ids]
        core.withdraw([each for each in known if each is not None])
        self._bell.notify_all()

    def settle(self, core: ChannelCore, owner: Hashable) -> None:
        """Forget everything of one owner."""
        core.drop_owner(owner)
        for id in [k for k, each in self.operations.items() if each.owner == owner]:
            del self.operations[id]
        for id in [k for k, each in self.subscriptions.items() if _owner(each) == owner]:
            del self.subscriptions[id]
        self._bell.notify_all()

    def lose(self, core: ChannelCore) -> None:
        """The process is dead, or has started anew."""
        self.lost = True
        place = self.process, self.epoch
        core.drop_owners([each for each in core.owners() if place_of(each) == place])
        self.operations.clear()
        self.subscriptions.clear()
        self.release()


def place_of(owner: Hashable) -> tuple[str, int]:
    """The process and epoch of an owner."""
    return (owner[0], owner[1]) if isinstance(owner, tuple) else ("", 0)


def _owner(subscription: tuple[Lane, Subscription] | dict[str, Any]) -> Hashable:
    return subscription[1].owner if isinstance(subscription, tuple) else None


def _expire(core: ChannelCore, waiting: list[Operation], now: float) -> None:
    for operation in waiting:
        due = operation.deadline is not None and operation.deadline <= now
        if due and core.expire(operation):
            operation.resolve(TIMED_OUT, [])
