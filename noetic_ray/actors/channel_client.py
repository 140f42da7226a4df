"""Channel operations of one process, carried out by the channel actor."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from weakref import ref

from noetic_ray.actors.channel_actor import ERROR
from noetic_ray.actors.channel_line import ActorFactory, ActorLine, Answer
from noetic_ray.actors.codec import dumps, loads
from noetic_ray.channels import Channel
from noetic_ray.engine.channel_lanes import CLOSED, EMPTY, END, OK
from noetic_ray.engine.channel_stream import Batch, ValueStream
from noetic_ray.engine.channel_terms import (
    SpecCache,
    check_max_items,
    check_timeout,
    failure,
    receive_timeout,
)
from noetic_ray.engine.local_channels import OnDropped, warn_dropped
from noetic_ray.errors import ChannelClosed, ConfigError, NoeticError, from_wire

CHUNK_VALUES = 1000
CHUNK_BYTES = 1_000_000
"""What one step of a bulk send carries at most; the next goes when it was taken."""


class RayChannels:
    """The `ChannelPort` of one process. Lives on one asyncio loop; `post` may come from any thread.

    `process_id` is what the supervisor will give to the actor's `owner_lost` when this process
    dies. When the actor dies every operation under way ends with ChannelClosed; the next one asks
    `actor` for a handle again.
    """

    def __init__(
        self,
        actor: ActorFactory,
        process_id: str,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        on_dropped: OnDropped | None = None,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self._line = ActorLine(actor, process_id, self.loop, on_dropped or warn_dropped)
        self._specs = SpecCache()
        self._streams: dict[str, dict[int, ref[ValueStream]]] = {}  # by owner
        self._posts = 0
        self._post_errors: dict[str, NoeticError] = {}

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._line.closed

    # -- what contexts ask for -------------------------------------------------------------------

    async def send(
        self, channel: Channel[Any], values: Sequence[Any], timeout: float | None, owner: str
    ) -> None:
        """Put values in order; see `ChannelPort`. Nothing leaves before all were checked."""
        check_timeout(channel, timeout)
        checked = [channel.validate(value) for value in values]
        deadline = self.loop.time() + timeout if timeout else None
        left = timeout
        bulk = len(checked) > 1  # likely to fill the queue and wait
        for chunk in _chunks(channel, checked):
            _, status, _ = await self._ask("send", channel, owner, chunk, left, patient=bulk)
            if status != OK:
                raise failure(status, channel.name, timeout)
            if deadline is not None:
                left = max(0.0, deadline - self.loop.time())

    async def recv(
        self, channel: Channel[Any], max_items: int, timeout: float | None, owner: str
    ) -> list[Any]:
        """Wait for one value and return up to `max_items` that are there."""
        check_max_items(channel, max_items)
        seconds = receive_timeout(channel, timeout)
        patient = seconds != 0
        id, status, blobs = await self._ask(
            "recv", channel, owner, max_items, seconds, patient=patient
        )
        if status != OK:
            raise failure(status, channel.name, seconds)
        return self._take(channel, id, owner, blobs)

    async def try_recv(self, channel: Channel[Any], owner: str) -> list[Any]:
        """Return one value in a list, or an empty list; never waits for one."""
        id, status, blobs = await self._ask("recv", channel, owner, 1, 0)
        if status == EMPTY:
            return []
        if status != OK:
            raise failure(status, channel.name, 0)
        return self._take(channel, id, owner, blobs)

    async def wait_send(self, channel: Channel[Any], timeout: float | None, owner: str) -> bool:
        """Wait until somebody sends, consuming nothing. False when the timeout ran out."""
        check_timeout(channel, timeout)
        _, status, _ = await self._ask("wake", channel, owner, timeout, patient=True)
        if status == CLOSED:
            raise ChannelClosed(channel.name)
        return status == OK

    def subscribe(
        self, channel: Channel[Any], owner: str, run_id: str | None = None
    ) -> ValueStream:
        """Iterate over values until the channel, or the run it is bound to, closes."""
        line = self._line
        if line.closed:
            raise ChannelClosed(channel.name)
        place, epoch = line.next_id(), line.epoch
        line.put("subscribe", place, owner, line.reference(self._specs.get(channel)), run_id)

        async def pull(limit: int) -> Batch | None:
            if epoch != line.epoch and not line.closed:
                raise ChannelClosed(channel.name)
            return await self._pull(channel, place, owner, limit)

        async def close() -> None:
            if self._forget_stream(place, owner) and epoch == line.epoch:
                await line.confirm("unsubscribe", place)

        def abandon() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the actor with it
                self.loop.call_soon_threadsafe(self._abandon, place, owner, epoch)

        stream = ValueStream(pull, close, abandon)
        self._streams.setdefault(owner, {})[place] = ref(stream)
        return stream

    async def settle(self, owner: str) -> None:
        """Give back what `owner` still holds and forget it. No call when it holds nothing."""
        streams = self._streams.pop(owner, {})
        for each in streams.values():
            stream = each()
            if stream is not None:
                stream.let_go()
        if self._line.drop_owner(owner) or streams:
            await self._line.confirm("settle", owner)

    # -- what the harness asks for ---------------------------------------------------------------

    async def open(self, channel: Channel[Any]) -> None:
        """Make the channel known. Raises ConfigError CHANNEL_CONFLICT when its name is taken."""
        await self._ask("open", channel, "")

    def post(self, channel: Channel[Any], value: Any) -> None:
        """Send from outside, from any thread: returns at once, a full queue drops its oldest.

        What went wrong with an earlier one is raised by the next.
        """
        blob = _encode(channel, channel.validate(value))
        earlier = self._post_errors.pop(channel.name, None)
        if earlier is not None:
            raise earlier
        if self._line.closed:
            raise ChannelClosed(channel.name)
        try:
            self.loop.call_soon_threadsafe(self._post, channel, blob)
        except RuntimeError:
            raise ChannelClosed(channel.name) from None

    def stream(self, channel: Channel[Any], run_id: str | None = None) -> ValueStream:
        """A reader from outside, one more in the line of receivers."""
        return self.subscribe(channel, f"handle {self._line.next_id()}", run_id)

    async def flush(self) -> None:
        """Return when every `post` made so far has arrived, or failed."""
        await asyncio.sleep(0)  # posts of other threads are in line before this
        if self._posts:
            with contextlib.suppress(NoeticError):  # the next post raises it
                await self._line.request(("withdraw", self._line.next_id(), ()), "", "")

    async def actor_of(self, channel: Channel[Any]) -> Any:
        """The actor's handle, for plain Ray code, with the channel made known to it."""
        await self.open(channel)
        return self._line.actor

    async def close_run(self, run_id: str) -> None:
        """End the streams bound to a run once they have drained."""
        if self._streams:
            await self._line.confirm("close_run", run_id)

    async def close_all(self) -> None:
        """Close every channel of the actor: waiters get ChannelClosed, streams drain and end."""
        if self._line.actor is not None:
            await self._line.confirm("close")

    async def aclose(self) -> None:
        """Send what is left to say and stop: operations under way end with ChannelClosed."""
        await self._line.aclose()

    # -- how -------------------------------------------------------------------------------------

    async def _ask(
        self,
        name: str,
        channel: Channel[Any],
        owner: str,
        *arguments: Any,
        patient: bool = False,
    ) -> tuple[int, str, Any]:
        line, spec = self._line, self._specs.get(channel)
        id, reference = line.next_id(), line.reference(spec)
        operation = (name, id, owner, reference, *arguments)
        status, data = await line.request(operation, channel.name, owner, patient)
        if reference is not spec.name:
            line.accepted(spec)
        return id, status, data

    async def _pull(
        self, channel: Channel[Any], place: int, owner: str, limit: int
    ) -> Batch | None:
        line = self._line
        id = line.next_id()
        try:
            status, blobs = await line.request(
                ("pull", id, owner, place, limit), channel.name, owner, patient=True
            )
        except ChannelClosed:
            if line.closed:
                return None
            raise
        if status == END:
            return None
        if status != OK:
            raise failure(status, channel.name, None)
        values, _ = self._received(channel, id, owner, blobs)
        return Batch(values, partial(line.acknowledge, id, owner))

    def _take(self, channel: Channel[Any], id: int, owner: str, blobs: list[bytes]) -> list[Any]:
        """Decode what a receive brought, and say so: it is the caller's from here on."""
        values, complete = self._received(channel, id, owner, blobs)
        if channel.mode == "queue":
            self._line.acknowledge(id, owner, None if complete else len(values))
        return values

    def _received(
        self, channel: Channel[Any], id: int, owner: str, blobs: list[bytes]
    ) -> tuple[list[Any], bool]:
        """The values up to one that cannot be rebuilt here, and whether these are all.

        Raises ConfigError when that is the first, which is then gone: it would be in the way of
        every receiver like this one.
        """
        values: list[Any] = []
        try:
            for blob in blobs:
                values.append(loads(blob))
        except Exception as error:
            if values:
                return values, False
            self._line.acknowledge(id, owner, 1)
            raise ConfigError(
                "VALUE_UNREADABLE",
                f"a value of channel {channel.name!r} cannot be rebuilt here: {error!r}",
                hint="Its class must be importable in every process that receives.",
            ) from error
        return values, True

    def _post(self, channel: Channel[Any], blob: bytes) -> None:
        line = self._line
        if line.closed:
            return
        reference = line.reference(self._specs.get(channel))
        last = line.last()
        if last[0] == "post" and last[3] == reference:
            last[4].append(blob)
            return
        self._posts += 1
        operation = "post", line.next_id(), "", reference, [blob]
        line.tell(operation, channel.name, partial(self._posted, channel))

    def _posted(self, channel: Channel[Any], future: asyncio.Future[Answer]) -> None:
        self._posts -= 1
        error = future.exception()
        status, data = (CLOSED, None) if error is not None else future.result()
        if isinstance(error, NoeticError):
            self._post_errors[channel.name] = error
        elif status == ERROR:
            self._post_errors[channel.name] = from_wire(data or {})
        elif status != OK:
            self._post_errors[channel.name] = ChannelClosed(channel.name)
        else:
            self._line.accepted(self._specs.get(channel))

    def _abandon(self, place: int, owner: str, epoch: int) -> None:
        """A stream was dropped without being closed."""
        if self._forget_stream(place, owner) and epoch == self._line.epoch:
            self._line.put("unsubscribe", self._line.next_id(), place)

    def _forget_stream(self, place: int, owner: str) -> bool:
        """Whether the stream was still open."""
        streams = self._streams.get(owner, {})
        if streams.pop(place, None) is None:
            return False
        if not streams:
            del self._streams[owner]
        return True


def _encode(channel: Channel[Any], value: Any) -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        raise ConfigError(
            "VALUE_UNPICKLABLE",
            f"a {type(value).__name__} cannot be sent through channel {channel.name!r}: {error}",
            hint="Send plain data; locks, clients and open files cannot leave their process.",
        ) from error


def _chunks(channel: Channel[Any], values: Sequence[Any]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for value in values:
        blob = _encode(channel, value)
        chunk.append(blob)
        size += len(blob)
        if len(chunk) >= CHUNK_VALUES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
