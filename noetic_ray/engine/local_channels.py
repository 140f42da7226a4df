"""Channels of one process: the state machine on one asyncio loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import Any
from weakref import WeakSet

from noetic_ray.channels import Channel
from noetic_ray.engine.channel_core import ChannelCore
from noetic_ray.engine.channel_lanes import (
    CLOSED,
    END,
    OK,
    ChannelSpec,
    Lane,
    Subscription,
    Ticket,
)
from noetic_ray.engine.channel_stream import Batch, ValueStream
from noetic_ray.engine.channel_terms import (
    TIMED_OUT,
    SpecCache,
    check_max_items,
    check_timeout,
    failure,
    receive_timeout,
)
from noetic_ray.errors import ChannelClosed, ConfigError

_log = logging.getLogger("noetic_ray.channels")

Outcome = tuple[str, list[Any]]

OnDropped = Callable[[str, int], None]
"""Told the name of a channel and how many values were dropped from it."""


def warn_dropped(name: str, number: int) -> None:
    """Say in the log that a full channel dropped its oldest values."""
    text = "channel %r was full and dropped its oldest values (%d); read faster, or raise capacity"
    _log.warning(text, name, number)


class _Wait(Ticket):
    """A ticket whose outcome a coroutine awaits."""

    __slots__ = ("future", "outcome")

    def __init__(self, owner: Hashable) -> None:
        super().__init__(owner)
        self.outcome: Outcome | None = None
        self.future: asyncio.Future[Outcome] | None = None

    def resolve(self, status: str, values: list[Any]) -> None:
        self.outcome = status, values
        if self.future is not None and not self.future.done():
            self.future.set_result(self.outcome)


class LocalChannels:
    """The `ChannelPort` of a harness without Ray. Values are passed on as they are, not copied.

    Every method belongs to `loop`, the running one unless given, except `post`.
    """

    def __init__(
        self,
        on_dropped: OnDropped | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self._on_dropped = on_dropped or warn_dropped
        self._core = ChannelCore(self._dropped)
        self._specs = SpecCache()
        self._streams: dict[str, WeakSet[ValueStream]] = {}  # by owner
        self._handles = count(1)
        self.closed = False

    async def send(
        self, channel: Channel[Any], values: Sequence[Any], timeout: float | None, owner: str
    ) -> None:
        """Put values in order; see `ChannelPort`."""
        check_timeout(channel, timeout)
        checked = [channel.validate(value) for value in values]
        lane = self._lane(channel)
        if not checked:
            return
        ticket = _Wait(owner)
        lane.send(ticket, checked, wait=timeout != 0)
        status, _ = await self._outcome(ticket, timeout)
        if status != OK:
            raise failure(status, channel.name, timeout)

    async def recv(
        self, channel: Channel[Any], max_items: int, timeout: float | None, owner: str
    ) -> list[Any]:
        """Wait for one value and return up to `max_items` that are there."""
        check_max_items(channel, max_items)
        seconds = receive_timeout(channel, timeout)
        ticket = _Wait(owner)
        self._lane(channel).receive(ticket, max_items, wait=seconds != 0)
        status, values = await self._outcome(ticket, seconds)
        if status != OK:
            raise failure(status, channel.name, seconds)
        self._core.acknowledge(ticket)
        return values

    async def try_recv(self, channel: Channel[Any], owner: str) -> list[Any]:
        """Return one value in a list, or an empty list; never waits."""
        ticket = _Wait(owner)
        self._lane(channel).receive(ticket, wait=False)
        status, values = await self._outcome(ticket, 0)
        if status == CLOSED:
            raise ChannelClosed(channel.name)
        self._core.acknowledge(ticket)
        return values

    async def wait_send(self, channel: Channel[Any], timeout: float | None, owner: str) -> bool:
        """Wait until somebody sends, consuming nothing. False when the timeout ran out."""
        check_timeout(channel, timeout)
        ticket = _Wait(owner)
        self._lane(channel).listen(ticket)
        status, _ = await self._outcome(ticket, timeout)
        if status == CLOSED:
            raise ChannelClosed(channel.name)
        return status == OK

    def subscribe(
        self, channel: Channel[Any], owner: str, run_id: str | None = None
    ) -> ValueStream:
        """Iterate over values until the channel, or the run it is bound to, closes."""
        lane = self._lane(channel)
        place = lane.subscribe(owner, run_id)

        async def pull(limit: int) -> Batch | None:
            return await self._pull(lane, place, limit)

        async def close() -> None:
            lane.unsubscribe(place)
            self._forget_stream(owner)

        def abandon() -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(lane.unsubscribe, place)
                self.loop.call_soon_threadsafe(self._forget_stream, owner)

        stream = ValueStream(pull, close, abandon)
        self._streams.setdefault(owner, WeakSet()).add(stream)
        return stream

    async def settle(self, owner: str) -> None:
        """Give back what `owner` still holds and forget it."""
        for stream in tuple(self._streams.pop(owner, ())):
            stream.let_go()
        self._core.drop_owner(owner)

    async def open(self, channel: Channel[Any]) -> None:
        """Make the channel known. Raises ConfigError CHANNEL_CONFLICT when its name is taken."""
        self._lane(channel)

    def post(self, channel: Channel[Any], value: Any) -> None:
        """Send from outside, from any thread: returns at once, a full queue drops its oldest."""
        checked = channel.validate(value)
        if self.closed:
            raise ChannelClosed(channel.name)
        spec = self._specs.get(channel)
        if self._core.find(spec.name) is not None:
            self._core.open(spec)
        self.loop.call_soon_threadsafe(self._post, spec, checked)

    def stream(self, channel: Channel[Any], run_id: str | None = None) -> ValueStream:
        """A reader from outside, one more in the line of receivers."""
        return self.subscribe(channel, f"handle {next(self._handles)}", run_id)

    async def actor_of(self, channel: Channel[Any]) -> Any:
        """Always raises ConfigError: there is no Ray to share the buffer with."""
        raise ConfigError(
            "RAY_QUEUE_INLINE",
            f"channel {channel.name!r} lives in this process, so it cannot be a Ray queue",
            hint='Use a harness whose placement is not "inline", or .send() and .stream().',
        )

    async def flush(self) -> None:
        """Return when every `post` made so far has arrived."""
        done = self.loop.create_future()
        self.loop.call_soon_threadsafe(done.set_result, None)
        await done

    async def close_run(self, run_id: str) -> None:
        """End the streams bound to a run once they have drained."""
        self._core.close_run(run_id)

    async def aclose(self) -> None:
        """Close every channel: whoever waits gets ChannelClosed, streams drain and end."""
        self.closed = True
        self._core.close()

    def _forget_stream(self, owner: str) -> None:
        streams = self._streams.get(owner)
        if streams is not None and all(each.ended for each in streams):
            del self._streams[owner]

    def _lane(self, channel: Channel[Any]) -> Lane:
        return self._core.open(self._specs.get(channel))

    async def _pull(self, lane: Lane, place: Subscription, limit: int) -> Batch | None:
        ticket = _Wait(place.owner)
        lane.pull(place, ticket, limit)
        status, values = await self._outcome(ticket, None)
        if status == END:
            return None
        return Batch(values, lambda taken: self._core.acknowledge(ticket, taken))

    def _post(self, spec: ChannelSpec, value: Any) -> None:
        self._core.open(spec).post([value], "outside")

    async def _outcome(self, ticket: _Wait, timeout: float | None) -> Outcome:
        return ticket.outcome or await self._wait(ticket, timeout)

    async def _wait(self, ticket: _Wait, timeout: float | None) -> Outcome:
        ticket.future = self.loop.create_future()
        timer = None
        if timeout is not None:
            timer = self.loop.call_later(timeout, self._expire, ticket)
        try:
            return await ticket.future
        except asyncio.CancelledError:
            self._core.withdraw((ticket,))
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, ticket: _Wait) -> None:
        if self._core.expire(ticket):
            ticket.resolve(TIMED_OUT, [])

    def _dropped(self, name: str, number: int, owner: Hashable) -> None:
        self._on_dropped(name, number)
