"""A channel as the code around a harness sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from noetic_ray.channels import Channel
from noetic_ray.engine.channel_stream import ValueStream
from noetic_ray.errors import ChannelClosed, ConfigError

if TYPE_CHECKING:
    from noetic_ray.harness.channel_queue import ChannelQueue

T = TypeVar("T")

Call = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on the port's loop and waits for it in the calling thread."""


class HandlePort(Protocol):
    """What a handle needs: `LocalChannels` and `RayChannels` both are one."""

    loop: asyncio.AbstractEventLoop

    @property
    def closed(self) -> bool:
        """Whether the harness has closed."""
        ...

    def post(self, channel: Channel[Any], value: Any) -> None:
        """Send without waiting, from any thread."""

    def stream(self, channel: Channel[Any], run_id: str | None = None) -> ValueStream:
        """Open a reader; on the loop only, like what follows."""
        ...

    async def close_run(self, run_id: str) -> None:
        """End the readers bound to a run."""

    async def actor_of(self, channel: Channel[Any]) -> Any:
        """The handle of the actor that holds the channel."""


class ChannelHandle(Generic[T]):
    """One external channel of a harness, for any thread or loop that is not the harness's own.

    Bound to a run it closes with it, else with the harness.
    """

    def __init__(
        self,
        channel: Channel[T],
        port: HandlePort,
        *,
        call: Call,
        run_id: str | None = None,
        run_closed: Callable[[str], bool] = lambda run_id: False,
    ) -> None:
        """Raises ConfigError CHANNEL_NOT_EXTERNAL for a channel made without `external=True`."""
        if not channel.external:
            raise ConfigError(
                "CHANNEL_NOT_EXTERNAL",
                f"channel {channel.name!r} is for contexts only",
                hint="Make it with external=True to use it from outside.",
            )
        self.channel = channel
        self.run_id = run_id
        self._port = port
        self._call = call
        self._run_closed = run_closed

    def __repr__(self) -> str:
        bound = f", run_id={self.run_id!r}" if self.run_id else ""
        return f"ChannelHandle({self.channel.name!r}{bound}, closed={self.closed})"

    @property
    def closed(self) -> bool:
        """Whether the run it is bound to, or the harness, has ended."""
        return self._port.closed or self._over(self.run_id)

    def send(self, value: T) -> None:
        """Send and return at once; a full queue drops its oldest value, with a warning.

        Raises ChannelSchemaError, or ChannelClosed. What goes wrong after the return, like a
        channel of this name with other settings, is raised by the next send.
        """
        if self.closed:
            raise ChannelClosed(self.channel.name)
        self._port.post(self.channel, value)

    def stream(self, run_id: str | None = None) -> HandleStream[T]:
        """Iterate over values as one more receiver, until the run or the harness ends.

        `run_id` binds the stream to that run instead of the handle's. Values that were fetched
        ahead and not read return to the channel.
        """
        return HandleStream(self._open(run_id), self.channel.name, self._port, self._call)

    def astream(self, run_id: str | None = None) -> AsyncHandleStream[T]:
        """Like `stream`, for `async for` on any loop."""
        return AsyncHandleStream(self._open(run_id), self._port)

    def as_ray_queue(self) -> ChannelQueue:
        """A `ray.util.queue.Queue` over the same buffer, for tasks and actors of plain Ray.

        Raises ConfigError NOT_A_QUEUE for another mode, RAY_QUEUE_INLINE without Ray.
        """
        if self.closed:
            raise ChannelClosed(self.channel.name)
        if self.channel.mode != "queue":
            raise ConfigError(
                "NOT_A_QUEUE",
                f"channel {self.channel.name!r} has the mode {self.channel.mode!r}",
                hint='Only a channel with mode="queue" can stand as a Ray queue.',
            )
        actor = self._call(self._port.actor_of(self.channel))
        from noetic_ray.harness.channel_queue import ChannelQueue

        return ChannelQueue(actor, self.channel)

    def _open(self, run_id: str | None) -> ThreadFuture[ValueStream]:
        bound = run_id or self.run_id
        if self._port.closed or self._over(bound):
            raise ChannelClosed(self.channel.name)
        return _submit(self._subscribe(bound), self.channel.name, self._port)

    async def _subscribe(self, run_id: str | None) -> ValueStream:
        stream = self._port.stream(self.channel, run_id)
        if run_id is not None and self._over(run_id):  # it ended while this was on its way
            await self._port.close_run(run_id)
        return stream

    def _over(self, run_id: str | None) -> bool:
        return run_id is not None and self._run_closed(run_id)


class HandleStream(Iterator[T]):
    """Values of a channel for one thread. A context manager, too."""

    def __init__(
        self, opening: ThreadFuture[ValueStream], name: str, port: HandlePort, call: Call
    ) -> None:
        self._stream = opening.result()
        self._name = name
        self._port = port
        self._call = call

    def __iter__(self) -> HandleStream[T]:
        return self

    def __next__(self) -> T:
        while True:
            for value in self._stream.take():
                return value  # type: ignore[no-any-return]
            if self._port.closed or not self._call(self._stream.fill()):
                raise StopIteration

    def close(self) -> None:
        """Leave the channel; what was fetched and not read goes back to it."""
        if not self._port.closed:
            self._call(self._stream.aclose())

    def __enter__(self) -> HandleStream[T]:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class AsyncHandleStream(AsyncIterator[T]):
    """Values of a channel for one task, on whatever loop it runs."""

    def __init__(self, opening: ThreadFuture[ValueStream], port: HandlePort) -> None:
        self._opening = opening
        self._port = port

    def __aiter__(self) -> AsyncHandleStream[T]:
        return self

    async def __anext__(self) -> T:
        stream = await self._opened()
        while True:
            for value in stream.take():
                return value  # type: ignore[no-any-return]
            if self._port.closed or not await self._there(stream.fill()):
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Leave the channel; what was fetched and not read goes back to it."""
        if not self._port.closed:
            stream = await self._opened()
            await self._there(stream.aclose())

    async def __aenter__(self) -> AsyncHandleStream[T]:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.aclose()

    async def _opened(self) -> ValueStream:
        if self._opening.done():
            return self._opening.result()
        return await asyncio.shield(asyncio.wrap_future(self._opening))

    async def _there(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run on the port's loop. Cancelling is safe: what came stays with the stream."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._port.loop))


def _submit(
    work: Coroutine[Any, Any, ValueStream], name: str, port: HandlePort
) -> ThreadFuture[ValueStream]:
    try:
        return asyncio.run_coroutine_threadsafe(work, port.loop)
    except RuntimeError:  # the loop ended between the check and now
        work.close()
        raise ChannelClosed(name) from None
