"""What channels do, without a loop, a clock or a process: a state machine driven by its host.

A host (an asyncio loop, an actor) opens a lane per channel, brings a `Ticket` to every operation
and gets its answer through `Ticket.resolve`. Time belongs to the host: it calls `expire` when a
deadline has passed.

Values taken from a queue, and values handed to a subscription, are *leased* to the ticket that
took them. The host acknowledges them, or withdraws the ticket and they go back where they came
from, in the order in which they arrived. So a value is never lost between the core and its
receiver, and never handed to two.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from noetic_ray.engine.channel_lanes import (
    CLOSED,
    ChannelSpec,
    Dropped,
    Entry,
    Lane,
    QueueLane,
    Registry,
    Subscription,
    Ticket,
    TopicLane,
    ValueLane,
    arrived,
)
from noetic_ray.errors import ConfigError

_LANES: dict[str, type[Lane]] = {"value": ValueLane, "queue": QueueLane, "topic": TopicLane}


class ChannelCore:
    """All channels of a harness."""

    def __init__(self, dropped: Dropped) -> None:
        self._registry = Registry()
        self._dropped = dropped
        self._lanes: dict[str, Lane] = {}
        self.closed = False

    def open(self, spec: ChannelSpec) -> Lane:
        """The lane of a channel, made on first use.

        Raises ConfigError CHANNEL_CONFLICT when the name is in use with another mode, capacity
        or schema.
        """
        lane = self._lanes.get(spec.name)
        if lane is None:
            lane = self._lanes[spec.name] = _LANES[spec.mode](spec, self._registry, self._dropped)
            lane.closed = self.closed
        elif lane.spec != spec:
            raise _conflict(lane.spec, spec)
        return lane

    def find(self, name: str) -> Lane | None:
        """The lane of this name, when it was opened before."""
        return self._lanes.get(name)

    def acknowledge(self, ticket: Ticket, kept: int | None = None) -> None:
        """The first `kept` leased values (all, when None) are consumed; others go back."""
        entries = ticket.entries
        if not entries:
            return
        if kept is not None and kept < len(entries):
            ticket.entries = entries[kept:]
            self.withdraw((ticket,))
            return
        ticket.entries = []
        self._registry.forget(ticket)

    def withdraw(self, tickets: Iterable[Ticket]) -> None:
        """Take tickets out of their lines, unanswered, and give back all they hold at once."""
        back: dict[tuple[Lane, Subscription | None], list[Entry]] = {}
        for ticket in tickets:
            if ticket.lane is None:
                continue
            if ticket.line is not None:
                ticket.lane.leave(ticket)
            elif ticket.entries:
                self._registry.forget(ticket)
                place = ticket.lane, ticket.lane.returning(ticket)
                back.setdefault(place, []).extend(ticket.entries)
                ticket.entries = []
        for (lane, stream), entries in back.items():
            lane.give_back(stream, sorted(entries, key=arrived))

    def expire(self, ticket: Ticket) -> bool:
        """Take a waiting ticket out of its line. False when it was answered before."""
        if ticket.line is None or ticket.lane is None:
            return False
        ticket.lane.leave(ticket)
        return True

    def drop_owner(self, owner: Hashable) -> None:
        """Give back everything `owner` holds, end its subscriptions, close what it waits for."""
        self.drop_owners({owner})

    def drop_owners(self, owners: Iterable[Hashable]) -> None:
        """Drop several owners as one, so that nothing passes from one of them to another."""
        tickets: list[Ticket] = []
        for owner in list(owners):
            tickets += self._registry.tickets.get(owner, ())
            for stream in list(self._registry.subscriptions.get(owner, ())):
                stream.lane.unsubscribe(stream)
        waiting = [ticket for ticket in tickets if ticket.waiting]
        self.withdraw(tickets)
        for ticket in waiting:
            ticket.resolve(CLOSED, [])

    def owners(self) -> set[Hashable]:
        """Everyone who waits, holds values or subscribes now."""
        return self._registry.owners()

    def close_run(self, run_id: str) -> None:
        """End the subscriptions bound to a run, after they have drained what is there now."""
        for lane in self._lanes.values():
            for stream in list(lane.streams):
                if stream.run_id == run_id:
                    lane.end(stream)

    def close(self) -> None:
        """Close every channel, those not opened yet included."""
        self.closed = True
        for lane in self._lanes.values():
            lane.close()


def _conflict(known: ChannelSpec, asked: ChannelSpec) -> ConfigError:
    differing = [
        f"{field} {getattr(asked, field)!r} instead of {getattr(known, field)!r}"
        for field in ("mode", "capacity", "schema")
        if getattr(asked, field) != getattr(known, field)
    ]
    return ConfigError(
        "CHANNEL_CONFLICT",
        f"channel {known.name!r} is in use with other settings: {', '.join(differing)}",
        hint="Give the channel another name, or define it once and import it.",
    )
