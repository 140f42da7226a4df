"""One channel: who waits for it, what it keeps, and who gets what.

A host brings a `Ticket` to every operation. The lane answers through `Ticket.resolve`, at once or
later, exactly once; `resolve` must not call back into the lane. Nothing here knows a clock, a loop
or a process: `channel_core` says how they are driven.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

OK = "ok"
EMPTY = "empty"  # nothing there, and the ticket would not wait
FULL = "full"  # no room, and the ticket would not wait
CLOSED = "closed"
END = "end"  # a subscription has drained after its close

TOPIC_BUFFER = 1000
"""How many unread values a topic keeps for a subscription before it drops the oldest."""

Entry = tuple[int, Any]
"""A value with its arrival number."""

Dropped = Callable[[str, int, Hashable], None]
"""Called with a channel's name, how many values were dropped, and the owner to tell."""


def arrived(entry: Entry) -> int:
    """The arrival number, to sort by."""
    return entry[0]


class ChannelSpec(NamedTuple):
    """What makes two channel objects the same channel. `schema` is a fingerprint."""

    name: str
    mode: str
    capacity: int
    schema: str


class Ticket(ABC):
    """One operation of an owner: on its way, waiting in a line, or holding leased values."""

    __slots__ = ("entries", "lane", "limit", "line", "owner", "stream", "values")

    leasing = True
    """Whether values taken from a queue wait for an acknowledgement."""

    def __init__(self, owner: Hashable) -> None:
        self.owner = owner
        self.limit = 1
        self.lane: Lane | None = None
        self.line: OrderedDict[Ticket, None] | None = None
        self.entries: list[Entry] = []
        self.values: deque[Any] | None = None
        self.stream: Subscription | None = None

    @property
    def waiting(self) -> bool:
        return self.line is not None

    @abstractmethod
    def resolve(self, status: str, values: list[Any]) -> None:
        """Take the outcome. `values` is what was received, empty for other operations."""
        ...


class Subscription:
    """A reader that keeps its place in a channel until it is closed."""

    __slots__ = ("buffer", "lane", "next", "owner", "remaining", "run_id", "waiting")

    def __init__(self, lane: Lane, owner: Hashable, run_id: str | None) -> None:
        self.lane = lane
        self.owner = owner
        self.run_id = run_id
        self.buffer: deque[Entry] = deque()
        self.next = 0
        self.remaining: int | None = None  # how many values are left once it closes
        self.waiting: Ticket | None = None

    def push(self, values: Iterable[Any]) -> None:
        for value in values:
            self.buffer.append((self.next, value))
            self.next += 1

    def give_back(self, entries: list[Entry]) -> None:
        self.buffer.extendleft(reversed(entries))


class Registry:
    """Who waits, holds or subscribes, by owner."""

    def __init__(self) -> None:
        self.tickets: dict[Hashable, set[Ticket]] = {}
        self.subscriptions: dict[Hashable, set[Subscription]] = {}

    def track(self, ticket: Ticket) -> None:
        held = self.tickets.get(ticket.owner)
        if held is None:
            self.tickets[ticket.owner] = {ticket}
        else:
            held.add(ticket)

    def forget(self, ticket: Ticket) -> None:
        held = self.tickets.get(ticket.owner)
        if held is not None:
            held.discard(ticket)
            if not held:
                del self.tickets[ticket.owner]

    def follow(self, stream: Subscription) -> None:
        self.subscriptions.setdefault(stream.owner, set()).add(stream)

    def unfollow(self, stream: Subscription) -> None:
        held = self.subscriptions.get(stream.owner)
        if held is not None:
            held.discard(stream)
            if not held:
                del self.subscriptions[stream.owner]

    def owners(self) -> set[Hashable]:
        return self.tickets.keys() | self.subscriptions.keys()


class Lane(ABC):
    """One channel: its lines of waiting tickets. Subclasses add what is kept and who gets it."""

    def __init__(self, spec: ChannelSpec, registry: Registry, dropped: Dropped) -> None:
        self.spec = spec
        self.closed = False
        self.receivers: OrderedDict[Ticket, None] = OrderedDict()
        self.listeners: OrderedDict[Ticket, None] = OrderedDict()
        self.streams: dict[Subscription, None] = {}
        self._registry = registry
        self._dropped = dropped

    @abstractmethod
    def send(self, ticket: Ticket, values: Sequence[Any], wait: bool = True) -> None:
        """Put one or more values in order.

        With `wait` False the ticket is FULL when a value would have to wait; what went in stays.
        """
        ...

    @abstractmethod
    def post(self, values: Sequence[Any], owner: Hashable) -> None:
        """Put values from outside: never waits, makes room by dropping the oldest.

        May overtake parked senders. A closed lane takes nothing.
        """
        ...

    @abstractmethod
    def receive(self, ticket: Ticket, limit: int = 1, wait: bool = True) -> None:
        """Take up to `limit` values as soon as there is one."""
        ...

    @abstractmethod
    def _pull(self, stream: Subscription, ticket: Ticket, limit: int) -> bool:
        """Hand `ticket` what `stream` has now; False when that is nothing."""
        ...

    @abstractmethod
    def give_back(self, stream: Subscription | None, entries: list[Entry]) -> None:
        """Take back leased values, sorted by arrival."""
        ...

    def returning(self, ticket: Ticket) -> Subscription | None:
        """Whose place the values of `ticket` go back to: a subscription's, or the lane's."""
        return ticket.stream

    @abstractmethod
    def _left(self, stream: Subscription) -> int:
        """How many values a closing stream may still read."""
        ...

    def _closing(self) -> list[Ticket]:
        """Tickets besides receivers and listeners that a close must answer."""
        return []

    def listen(self, ticket: Ticket) -> None:
        """Resolve at the next send of any kind, taking nothing."""
        if self.closed:
            ticket.resolve(CLOSED, [])
        else:
            self._wait(ticket, self.listeners)

    def subscribe(self, owner: Hashable, run_id: str | None = None) -> Subscription:
        stream = Subscription(self, owner, run_id)
        if self.closed:
            stream.remaining = self._left(stream)
        self.streams[stream] = None
        self._registry.follow(stream)
        return stream

    def pull(self, stream: Subscription, ticket: Ticket, limit: int) -> None:
        """Take up to `limit` values for a subscription; END once it is closed and drained."""
        ticket.stream = stream
        if self._pull(stream, ticket, limit):
            return
        if stream.remaining is not None or stream not in self.streams:
            ticket.resolve(END, [])
            return
        ticket.limit = limit
        stream.waiting = ticket
        self._wait(ticket, self.receivers)

    def unsubscribe(self, stream: Subscription) -> None:
        """Forget a subscription and what is buffered for it alone."""
        if stream not in self.streams:
            return
        del self.streams[stream]
        self._registry.unfollow(stream)
        waiting = stream.waiting
        if waiting is not None:
            self.leave(waiting)
            waiting.resolve(END, [])

    def end(self, stream: Subscription) -> None:
        """Let a subscription drain what is there now, then end."""
        if stream.remaining is None:
            stream.remaining = self._left(stream)
            waiting = stream.waiting
            if waiting is not None:
                self.leave(waiting)
                waiting.resolve(END, [])

    def close(self) -> None:
        """Answer everything that waits with CLOSED; subscriptions drain and end."""
        self.closed = True
        for stream in list(self.streams):
            self.end(stream)
        for ticket in [*self.receivers, *self.listeners, *self._closing()]:
            self.leave(ticket)
            ticket.resolve(CLOSED, [])

    def size(self) -> int:
        """How many values are buffered."""
        return 0

    def _wait(self, ticket: Ticket, line: OrderedDict[Ticket, None]) -> None:
        line[ticket] = None
        ticket.line = line
        ticket.lane = self
        self._registry.track(ticket)

    def leave(self, ticket: Ticket) -> None:
        line = ticket.line
        if line is not None:
            del line[ticket]
            ticket.line = None
            self._registry.forget(ticket)
        stream = ticket.stream
        if stream is not None and stream.waiting is ticket:
            stream.waiting = None

    def _lease(self, ticket: Ticket, entries: list[Entry]) -> None:
        ticket.entries = entries
        ticket.lane = self
        self._registry.track(ticket)
        ticket.resolve(OK, [value for _, value in entries])

    def _wake(self) -> None:
        while self.listeners:
            ticket = next(iter(self.listeners))
            self.leave(ticket)
            ticket.resolve(OK, [])


class QueueLane(Lane):
    """First in, first out, one receiver per value; senders beyond the capacity are parked.

    While a receiver waits the buffer is empty; while a sender is parked it is full. Values that
    were given back may fill it beyond its capacity for a while.
    """

    def __init__(self, spec: ChannelSpec, registry: Registry, dropped: Dropped) -> None:
        super().__init__(spec, registry, dropped)
        self.buffer: deque[Entry] = deque()
        self.parked: OrderedDict[Ticket, None] = OrderedDict()
        self._arrival = 0

    def size(self) -> int:
        return len(self.buffer)

    def send(self, ticket: Ticket, values: Sequence[Any], wait: bool = True) -> None:
        if self.closed:
            ticket.resolve(CLOSED, [])
            return
        if not self.parked and len(self.buffer) + len(values) <= self.spec.capacity:
            self._admit(values)
            ticket.resolve(OK, [])
            if self.receivers:
                self._pump()
        else:
            ticket.values = deque(values)
            self._wait(ticket, self.parked)
            self._pump()
            if not wait and ticket.line is not None:
                self.leave(ticket)
                ticket.resolve(FULL, [])
        if self.listeners:
            self._wake()

    def offer(self, values: Sequence[Any]) -> bool:
        """Put all values, or none when they do not fit now or a sender is parked."""
        if self.parked or len(self.buffer) + len(values) > self.spec.capacity:
            return False
        self._admit(values)
        self._pump()
        self._wake()
        return True

    def post(self, values: Sequence[Any], owner: Hashable) -> None:
        if self.closed:
            return
        dropped = 0
        for value in values:
            if len(self.buffer) >= self.spec.capacity:
                self.buffer.popleft()
                dropped += 1
            self._admit((value,))
            if self.receivers:
                self._pump()
        if dropped:
            self._dropped(self.spec.name, dropped, owner)
        self._wake()

    def receive(self, ticket: Ticket, limit: int = 1, wait: bool = True) -> None:
        if self.closed:
            ticket.resolve(CLOSED, [])
        elif self.buffer:
            self._deliver(ticket, limit)
        elif wait:
            ticket.limit = limit
            self._wait(ticket, self.receivers)
        else:
            ticket.resolve(EMPTY, [])

    def take(self, ticket: Ticket, count: int) -> None:
        """Take exactly `count` values now, or resolve EMPTY and take none."""
        if self.closed:
            ticket.resolve(CLOSED, [])
        elif count > len(self.buffer):
            ticket.resolve(EMPTY, [])
        else:
            self._deliver(ticket, count)

    def _pull(self, stream: Subscription, ticket: Ticket, limit: int) -> bool:
        if stream not in self.streams:
            return False
        if stream.remaining is not None:
            limit = min(limit, stream.remaining)
            stream.remaining -= min(limit, len(self.buffer))
        if not self.buffer or not limit:
            return False
        self._deliver(ticket, limit)
        return True

    def give_back(self, stream: Subscription | None, entries: list[Entry]) -> None:
        buffer = self.buffer
        if buffer and buffer[0][0] < entries[-1][0]:
            self.buffer = deque(sorted((*entries, *buffer), key=arrived))
        else:
            buffer.extendleft(reversed(entries))
        self._pump()

    def returning(self, ticket: Ticket) -> Subscription | None:
        if ticket.stream is not None and ticket.stream.remaining is not None:
            ticket.stream.remaining += len(ticket.entries)
        return None

    def _left(self, stream: Subscription) -> int:
        return len(self.buffer)

    def _closing(self) -> list[Ticket]:
        return list(self.parked)

    def _admit(self, values: Sequence[Any]) -> None:
        end = self._arrival + len(values)
        self.buffer.extend(zip(range(self._arrival, end), values, strict=True))
        self._arrival = end

    def _deliver(self, ticket: Ticket, limit: int) -> None:
        take = self.buffer.popleft
        entries = [take() for _ in range(min(limit, len(self.buffer)))]
        if ticket.leasing:
            self._lease(ticket, entries)
        else:
            ticket.resolve(OK, [value for _, value in entries])
        if self.parked:
            self._pump()

    def _pump(self) -> None:
        """Move parked values into free places and buffered ones to waiting receivers."""
        while True:
            while self.parked and len(self.buffer) < self.spec.capacity:
                self._admit_parked(next(iter(self.parked)))
            if not self.buffer or not self.receivers:
                return
            ticket = next(iter(self.receivers))
            self.leave(ticket)
            self._deliver(ticket, ticket.limit)

    def _admit_parked(self, ticket: Ticket) -> None:
        values = ticket.values or deque()
        room = self.spec.capacity - len(self.buffer)
        self._admit([values.popleft() for _ in range(min(room, len(values)))])
        if not values:
            self.leave(ticket)
            ticket.resolve(OK, [])


class ValueLane(Lane):
    """The last value sent, readable again and again. Sends never wait."""

    def __init__(self, spec: ChannelSpec, registry: Registry, dropped: Dropped) -> None:
        super().__init__(spec, registry, dropped)
        self._held: list[Any] = []
        self._version = 0

    def size(self) -> int:
        return len(self._held)

    def send(self, ticket: Ticket, values: Sequence[Any], wait: bool = True) -> None:
        if self.closed:
            ticket.resolve(CLOSED, [])
            return
        self.post(values, ticket.owner)
        ticket.resolve(OK, [])

    def post(self, values: Sequence[Any], owner: Hashable) -> None:
        if self.closed:
            return
        self._held = [values[-1]]
        self._version += 1
        for ticket in list(self.receivers):
            self.leave(ticket)
            if ticket.stream is None:
                ticket.resolve(OK, list(self._held))
            else:
                self._pull(ticket.stream, ticket, ticket.limit)
        self._wake()

    def receive(self, ticket: Ticket, limit: int = 1, wait: bool = True) -> None:
        if self.closed:
            ticket.resolve(CLOSED, [])
        elif self._held:
            ticket.resolve(OK, list(self._held))
        elif wait:
            self._wait(ticket, self.receivers)
        else:
            ticket.resolve(EMPTY, [])

    def _pull(self, stream: Subscription, ticket: Ticket, limit: int) -> bool:
        if stream not in self.streams or stream.next >= self._version or stream.remaining == 0:
            return False
        if stream.remaining is not None:
            stream.remaining -= 1
        seen, stream.next = stream.next, self._version
        self._lease(ticket, [(seen, self._held[0])])
        return True

    def give_back(self, stream: Subscription | None, entries: list[Entry]) -> None:
        if stream is not None:
            stream.next = min(stream.next, entries[0][0])
            if stream.remaining is not None:
                stream.remaining = self._left(stream)

    def _left(self, stream: Subscription) -> int:
        return int(stream.next < self._version)


class TopicLane(Lane):
    """Every value to whoever waits or subscribes at that moment; nothing is kept for others."""

    def send(self, ticket: Ticket, values: Sequence[Any], wait: bool = True) -> None:
        if self.closed:
            ticket.resolve(CLOSED, [])
            return
        self.post(values, ticket.owner)
        ticket.resolve(OK, [])

    def post(self, values: Sequence[Any], owner: Hashable) -> None:
        if self.closed:
            return
        for stream in self.streams:
            if stream.remaining is None:
                stream.push(values)
        for ticket in list(self.receivers):
            self.leave(ticket)
            if ticket.stream is None:
                ticket.resolve(OK, list(values[: ticket.limit]))
            else:
                self._pull(ticket.stream, ticket, ticket.limit)
        for stream in self.streams:
            self._trim(stream)
        self._wake()

    def receive(self, ticket: Ticket, limit: int = 1, wait: bool = True) -> None:
        if self.closed:
            ticket.resolve(CLOSED, [])
        elif wait:
            ticket.limit = limit
            self._wait(ticket, self.receivers)
        else:
            ticket.resolve(EMPTY, [])

    def _pull(self, stream: Subscription, ticket: Ticket, limit: int) -> bool:
        if not stream.buffer:
            return False
        take = stream.buffer.popleft
        self._lease(ticket, [take() for _ in range(min(limit, len(stream.buffer)))])
        return True

    def give_back(self, stream: Subscription | None, entries: list[Entry]) -> None:
        if stream is not None and stream in self.streams:
            stream.give_back(entries)
            self._trim(stream)

    def _left(self, stream: Subscription) -> int:
        return len(stream.buffer)

    def _trim(self, stream: Subscription) -> None:
        extra = len(stream.buffer) - TOPIC_BUFFER
        if extra > 0:
            for _ in range(extra):
                stream.buffer.popleft()
            self._dropped(self.spec.name, extra, stream.owner)
