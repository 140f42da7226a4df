"""The messages of a session that no turn has taken up yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from contextvars import Context as Variables
from typing import TYPE_CHECKING

from noetic_ray.items import Item

if TYPE_CHECKING:
    from noetic_ray.harness.report import HarnessResponse


class SentMessage:
    """What one `send` brought. `outcome` gets the response of the turn that took it up."""

    __slots__ = ("id", "items", "mode", "number", "outcome", "variables")

    def __init__(self, id: str, items: tuple[Item, ...], mode: str, variables: Variables) -> None:
        self.id = id
        self.items = items
        self.mode = mode
        self.variables = variables
        self.number = 0
        self.outcome: ThreadFuture[HarnessResponse] = ThreadFuture()


class MessageQueue:
    """Interrupts first, then what a turn was offered and did not take, then the others.

    Within each of these in the order they were sent. Not locked: its owner does that.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._urgent: deque[SentMessage] = deque()
        self._left: deque[SentMessage] = deque()
        self._waiting: deque[SentMessage] = deque()
        self._offered: list[SentMessage] = []
        self._taken: list[SentMessage] = []

    def __len__(self) -> int:
        """How many wait, those offered to the running turn and not yet taken included."""
        return len(self._urgent) + len(self._left) + len(self._waiting) + len(self._offered)

    def __iter__(self) -> Iterator[SentMessage]:
        """All whose outcome is open, but for the message the running turn began with."""
        for part in (self._urgent, self._left, self._waiting, self._offered, self._taken):
            yield from part

    def enter(self, message: SentMessage) -> None:
        """Give a message its number in the order of sending."""
        self._sent += 1
        message.number = self._sent

    def add(self, message: SentMessage) -> None:
        """Let it wait for its turn."""
        (self._urgent if message.mode == "interrupt" else self._waiting).append(message)

    def offer(self, message: SentMessage) -> None:
        """The running turn may take it; else it is next."""
        self._offered.append(message)

    def appended(self, item_id: str) -> None:
        """The running turn has logged an item: one that was offered waits no longer."""
        for message in self._offered:
            if message.items[-1].id == item_id:
                self._offered.remove(message)
                self._taken.append(message)
                return

    def end_turn(self, known: Callable[[str], bool]) -> list[SentMessage]:
        """What was offered and not taken is next; returns what was taken.

        `known` says of an item's id whether it was logged.
        """
        taken, self._taken = self._taken, []
        for message in self._offered:
            message.items = tuple(item for item in message.items if not known(item.id))
        self._left.extend(self._offered)
        self._offered = []
        return taken

    def next(self) -> SentMessage | None:
        """The message of the next turn."""
        for part in (self._urgent, self._left, self._waiting):
            if part:
                return part.popleft()
        return None

    def clear(self) -> list[SentMessage]:
        """Drop all that no turn has taken up."""
        dropped = [*self._urgent, *self._left, *self._waiting, *self._offered]
        for part in (self._urgent, self._left, self._waiting, self._offered):
            part.clear()
        return dropped
