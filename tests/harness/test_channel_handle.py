from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from noetic_ray.channels import Channel, channel
from noetic_ray.engine.local_channels import LocalChannels
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.errors import ChannelClosed, ChannelSchemaError, ConfigError
from noetic_ray.harness.channel_handle import ChannelHandle

pytestmark = pytest.mark.timeout(60)

BOUND = 30.0


class Place:
    """What a harness gives its handles."""

    def __init__(self) -> None:
        self.thread = LoopThread("test")
        self.over: set[str] = set()
        self.port: LocalChannels = self.thread.call(self.start())

    async def start(self) -> LocalChannels:
        return LocalChannels()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.thread.call(work, BOUND)

    def handle(self, ch: Channel[Any], run_id: str | None = None) -> ChannelHandle[Any]:
        return ChannelHandle(
            ch,
            self.port,
            call=self.thread.call,
            run_id=run_id,
            run_closed=lambda run_id: run_id in self.over,
        )

    def drain(self, ch: Channel[Any]) -> list[Any]:
        got: list[Any] = []
        while value := self.call(self.port.try_recv(ch, "drain")):
            got += value
        return got

    def end_run(self, run_id: str) -> None:
        self.over.add(run_id)
        self.call(self.port.close_run(run_id))


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    if not made.port.closed:
        made.call(made.port.aclose())
    made.thread.stop()


def queue(capacity: int = 1000, schema: Any = None) -> Channel[Any]:
    name = uuid.uuid4().hex
    return channel(name, schema, mode="queue", capacity=capacity, external=True)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_a_channel_for_contexts_only_has_no_handle(place: Place) -> None:
    with pytest.raises(ConfigError, match="CHANNEL_NOT_EXTERNAL"):
        place.handle(channel("inner", mode="queue"))


def test_sends_never_block_and_drop_the_oldest(place: Place) -> None:
    ch = queue(capacity=3)
    handle = place.handle(ch)
    for value in (1, 2, 3, 4):
        handle.send(value)
    place.call(place.port.flush())
    assert place.drain(ch) == [2, 3, 4]


def test_sends_are_checked(place: Place) -> None:
    with pytest.raises(ChannelSchemaError):
        place.handle(queue(schema=int)).send("x")


def test_a_handle_bound_to_a_run_closes_with_it(place: Place) -> None:
    ch = queue()
    bound, free = place.handle(ch, "run"), place.handle(ch)
    bound.send(1)
    place.end_run("run")
    assert (bound.closed, free.closed) == (True, False)
    for refused in (lambda: bound.send(2), bound.stream, bound.astream, bound.as_ray_queue):
        with pytest.raises(ChannelClosed):
            refused()
    free.send(3)
    place.call(place.port.flush())
    assert place.drain(ch) == [1, 3]


def test_everything_closes_with_the_harness(place: Place) -> None:
    handle = place.handle(queue())
    stream = handle.stream()
    thread, results = in_thread(lambda: list(stream))
    place.call(place.port.aclose())
    thread.join(BOUND)
    assert results == [[]]
    assert handle.closed
    with pytest.raises(ChannelClosed):
        handle.send(1)
    stream.close()


def test_a_stream_reads_what_is_there_and_what_comes_until_the_run_ends(place: Place) -> None:
    ch = queue()
    handle = place.handle(ch)
    handle.send(1)
    stream = handle.stream(run_id="run")
    assert next(stream) == 1
    thread, results = in_thread(lambda: list(stream))
    for value in range(2, 100):
        handle.send(value)
    place.call(place.port.flush())
    place.end_run("run")
    thread.join(BOUND)
    assert results == [list(range(2, 100))]


def test_a_stream_opened_while_its_run_ends_ends_too(place: Place) -> None:
    ch = queue()
    late: list[bool] = [False, True]
    handle = ChannelHandle(
        ch, place.port, call=place.thread.call, run_closed=lambda run_id: late.pop(0)
    )
    assert list(handle.stream("run")) == []


def test_leaving_a_stream_returns_what_was_fetched(place: Place) -> None:
    ch = queue()
    handle = place.handle(ch)
    for value in range(50):
        handle.send(value)
    with handle.stream() as stream:
        got = [next(stream) for _ in range(7)]
    assert got + place.drain(ch) == list(range(50))


async def test_an_async_stream_works_on_any_loop(place: Place) -> None:
    handle = place.handle(queue())
    stream: AsyncIterator[Any] = handle.astream()
    reading = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    handle.send("x")
    assert await reading == "x"


async def test_cancelling_an_async_reader_loses_nothing(place: Place) -> None:
    ch = queue()
    handle = place.handle(ch)
    got: list[int] = []
    async with handle.astream() as stream:
        for i in range(100):
            reading = asyncio.ensure_future(anext(stream))
            for _ in range(i % 4):
                await asyncio.sleep(0)
            handle.send(i)
            reading.cancel()
            try:
                got.append(await reading)
            except asyncio.CancelledError:
                continue
        while len(got) < 100:
            got.append(await asyncio.wait_for(anext(stream), BOUND))
    assert got == list(range(100))


def test_without_ray_there_is_no_ray_queue(place: Place) -> None:
    with pytest.raises(ConfigError, match="RAY_QUEUE_INLINE"):
        place.handle(queue()).as_ray_queue()


def test_only_a_queue_can_be_a_ray_queue(place: Place) -> None:
    with pytest.raises(ConfigError, match="NOT_A_QUEUE"):
        place.handle(channel("t", mode="topic", external=True)).as_ray_queue()
