"""A channel in the clothes of `ray.util.queue.Queue`, for code that knows nothing of harnesses."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.queue import Empty, Full, Queue

from noetic_ray.actors.codec import dumps, loads
from noetic_ray.channels import Channel
from noetic_ray.engine.channel_lanes import CLOSED, OK
from noetic_ray.engine.channel_terms import spec_of
from noetic_ray.errors import ChannelClosed


class ChannelQueue(Queue):  # type: ignore[misc, unused-ignore]
    """Same buffer, same line of receivers and senders as the channel. Can be pickled into tasks.

    Values are checked against the channel's schema. A value is gone once a `get` was answered, as
    with any Ray queue: a task that dies with it has lost it. After the harness has closed every
    call raises ChannelClosed.
    """

    def __init__(self, actor: Any, channel: Channel[Any]) -> None:
        self.actor = actor
        self.maxsize = channel.capacity
        self._channel = channel
        self._spec = tuple(spec_of(channel))

    def size(self) -> int:
        """How many values are buffered; those of parked senders are not."""
        size: int = self._wait(self._call("queue_size", self._spec))
        return size

    def empty(self) -> bool:
        """Whether a get would have to wait."""
        return self.size() == 0

    def full(self) -> bool:
        """Whether a put would have to wait."""
        return self.size() >= self.maxsize

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Raises Full, ChannelSchemaError or ChannelClosed; ValueError for a negative timeout."""
        self._done(self._wait(self._start_put([item], block, timeout)))

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """`put` for coroutines."""
        self._done(await self._await(self._start_put([item], block, timeout)))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Raises Empty or ChannelClosed; ValueError for a negative timeout."""
        return self._values(self._wait(self._start_get(1, block, timeout)))[0]

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """`get` for coroutines."""
        return self._values(await self._await(self._start_get(1, block, timeout)))[0]

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Put all items, or raise Full and put none."""
        if not isinstance(items, Iterable):
            raise TypeError("Argument 'items' must be an Iterable")
        values = list(items)
        if values:
            self._done(self._wait(self._start_put(values, False, None)))

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Get exactly `num_items` values, or raise Empty and take none."""
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        return self._values(self._wait(self._start_get(num_items, False, None)))

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """Let go of the channel, which lives on with its harness."""
        self.actor = None

    def _start_put(self, items: list[Any], block: bool, timeout: float | None) -> Any:
        blobs = [dumps(self._channel.validate(item)) for item in items]
        return self._call("queue_put", (self._spec, blobs, _seconds(block, timeout)))

    def _start_get(self, count: int, block: bool, timeout: float | None) -> Any:
        return self._call("queue_get", (self._spec, count, _seconds(block, timeout)))

    def _call(self, name: str, arguments: Any) -> Any:
        if self.actor is None:
            raise ChannelClosed(self._channel.name)
        return getattr(self.actor, name).remote(pickle.dumps(arguments, 5))

    def _wait(self, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except RayActorError:
            raise ChannelClosed(self._channel.name) from None

    async def _await(self, reference: Any) -> Any:
        try:
            return await reference
        except RayActorError:
            raise ChannelClosed(self._channel.name) from None

    def _done(self, status: str) -> None:
        if status == CLOSED:
            raise ChannelClosed(self._channel.name)
        if status != OK:
            raise Full

    def _values(self, reply: bytes) -> list[Any]:
        status, blobs = pickle.loads(reply)
        if status == CLOSED:
            raise ChannelClosed(self._channel.name)
        if status != OK:
            raise Empty
        return [loads(blob) for blob in blobs]


def _seconds(block: bool, timeout: float | None) -> float | None:
    if not block:
        return 0
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
    return timeout
