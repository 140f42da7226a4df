from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from noetic_ray.channels import Channel, channel
from noetic_ray.engine.channel_stream import STALLED, ValueStream
from noetic_ray.engine.local_channels import LocalChannels
from noetic_ray.errors import ChannelClosed, ChannelSchemaError, ChannelTimeout, ConfigError

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def port() -> AsyncIterator[LocalChannels]:
    channels = LocalChannels()
    yield channels
    await channels.aclose()


def queue(name: str = "q", capacity: int = 1000, schema: Any = None) -> Channel[Any]:
    return channel(name, schema, mode="queue", capacity=capacity)


async def drain(port: LocalChannels, ch: Channel[Any]) -> list[Any]:
    got: list[Any] = []
    while value := await port.try_recv(ch, "drain"):
        got += value
    return got


async def parked(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that has run up to its first wait."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def eventually(holds: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    if not holds():
        changed = loop.create_future()
        loop.call_later(0.001, changed.set_result, None)
        await changed
        await eventually(holds)


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_values_come_in_order_and_none_is_a_value(port: LocalChannels) -> None:
    await port.send(queue(), [1, None, 3], None, "a")
    assert await port.recv(queue(), 2, None, "b") == [1, None]
    assert await port.try_recv(queue(), "b") == [3]
    assert await port.try_recv(queue(), "b") == []


async def test_a_full_queue_holds_its_sender(port: LocalChannels) -> None:
    ch = queue(capacity=1)
    sender = await parked(port.send(ch, [1, 2], None, "a"))
    assert await port.recv(ch, 1, None, "b") == [1]
    await sender
    assert await drain(port, ch) == [2]


async def test_timeouts_say_which_channel_and_how_long(port: LocalChannels) -> None:
    ch = queue(capacity=1)
    with pytest.raises(ChannelTimeout) as caught:
        await port.recv(ch, 1, 0.01, "b")
    assert (caught.value.channel_name, caught.value.timeout) == ("q", 0.01)
    with pytest.raises(ChannelTimeout):
        await port.recv(ch, 1, 0, "b")
    with pytest.raises(ChannelTimeout):
        await port.send(ch, [1, 2], 0, "a")
    with pytest.raises(ChannelTimeout):
        await port.send(ch, [2], 0.01, "a")
    assert await drain(port, ch) == [1]


@pytest.mark.parametrize("timeout", [-1, float("nan"), True, "5"])
async def test_a_wrong_timeout_is_refused(port: LocalChannels, timeout: Any) -> None:
    with pytest.raises(ConfigError, match="INVALID_TIMEOUT"):
        await port.recv(queue(), 1, timeout, "b")
    with pytest.raises(ConfigError, match="INVALID_TIMEOUT"):
        await port.send(queue(), [1], timeout, "b")
    with pytest.raises(ConfigError, match="INVALID_TIMEOUT"):
        await port.wait_send(queue(), timeout, "b")


@pytest.mark.parametrize("max_items", [0, -1, True, 1.5])
async def test_a_wrong_number_of_items_is_refused(port: LocalChannels, max_items: Any) -> None:
    with pytest.raises(ConfigError, match="INVALID_MAX_ITEMS"):
        await port.recv(queue(), max_items, None, "b")


async def test_a_wrong_value_stops_the_whole_send(port: LocalChannels) -> None:
    ch = queue(schema=int)
    with pytest.raises(ChannelSchemaError):
        await port.send(ch, [1, "x"], None, "a")
    assert await drain(port, ch) == []


async def test_a_name_with_other_settings_is_a_conflict(port: LocalChannels) -> None:
    await port.send(queue(), [1], None, "a")
    for other in (queue(capacity=2), queue(schema=int), channel("q", mode="topic")):
        with pytest.raises(ConfigError, match="CHANNEL_CONFLICT"):
            await port.try_recv(other, "b")
    assert await port.try_recv(queue(), "b") == [1]


async def test_a_cancel_after_the_delivery_puts_the_value_back(port: LocalChannels) -> None:
    ch = queue()
    receiver = await parked(port.recv(ch, 1, None, "b"))
    await port.send(ch, [1, 2], None, "a")
    await cancel(receiver)
    assert await drain(port, ch) == [1, 2]


async def test_a_cancelled_sender_takes_its_value_along(port: LocalChannels) -> None:
    ch = queue(capacity=1)
    await port.send(ch, [1], None, "a")
    await cancel(await parked(port.send(ch, [2], None, "a")))
    assert await drain(port, ch) == [1]


async def test_settling_an_owner_gives_back_and_ends_what_it_waits_for(
    port: LocalChannels,
) -> None:
    ch = queue()
    waiting = await parked(port.recv(ch, 1, None, "gone"))
    other = await parked(port.recv(ch, 1, None, "stays"))
    await port.settle("gone")
    with pytest.raises(ChannelClosed):
        await waiting
    await port.send(ch, [1], None, "a")
    assert await other == [1]


async def test_settling_in_the_middle_of_a_batch_keeps_what_was_taken(
    port: LocalChannels,
) -> None:
    ch = queue()
    await port.send(ch, list(range(10)), None, "a")
    stream = port.subscribe(ch, "s")
    taken = [await anext(stream), await anext(stream)]
    await port.settle("s")
    assert taken + await drain(port, ch) == list(range(10))
    assert await stream.fill() is False


async def test_waiting_for_a_send_consumes_nothing(port: LocalChannels) -> None:
    ch = queue()
    waiting = await parked(port.wait_send(ch, None, "b"))
    await port.send(ch, [1], None, "a")
    assert await waiting
    assert not await port.wait_send(ch, 0.01, "b")
    assert await drain(port, ch) == [1]


async def test_a_value_channel_gives_the_last_value_to_everybody(port: LocalChannels) -> None:
    ch = channel("v", int)
    waiting = [await parked(port.recv(ch, 1, None, "b")) for _ in range(3)]
    await port.send(ch, [6, 7], None, "a")
    assert [await task for task in waiting] == [[7]] * 3
    assert await port.try_recv(ch, "b") == [7]


async def test_closing_ends_waiters_and_streams(port: LocalChannels) -> None:
    ch = queue()
    stream = port.subscribe(ch, "s")
    reading = await parked(stream.fill())
    receiver = await parked(port.recv(ch, 1, None, "b"))
    await port.aclose()
    assert await reading is False
    with pytest.raises(ChannelClosed):
        await receiver
    with pytest.raises(ChannelClosed):
        await port.send(ch, [1], None, "a")
    with pytest.raises(ChannelClosed):
        port.post(ch, 1)


async def test_a_stream_reads_until_its_run_closes(port: LocalChannels) -> None:
    ch = queue()
    await port.send(ch, list(range(20)), None, "a")
    stream = port.stream(ch, "run")
    assert await anext(stream) == 0
    await port.close_run("run")
    assert [value async for value in stream] == list(range(1, 20))


async def test_leaving_a_stream_returns_what_it_had_fetched(port: LocalChannels) -> None:
    ch = queue()
    await port.send(ch, list(range(100)), None, "a")
    stream = port.subscribe(ch, "s")
    got = [await anext(stream) for _ in range(3)]
    await stream.aclose()
    assert [*got, *(await drain(port, ch))] == list(range(100))


async def test_a_stalled_reader_leaves_the_rest_to_others(port: LocalChannels) -> None:
    ch = queue()
    await port.send(ch, list(range(500)), None, "a")
    stream = port.subscribe(ch, "slow")
    taken = [await anext(stream)]
    while not stream._values:
        taken.append(await anext(stream))
    await asyncio.wait_for(eventually(lambda: not stream._values), 100 * STALLED)
    assert await drain(port, ch) == list(range(len(taken), 500))
    await stream.aclose()


async def test_two_readers_of_one_stream_are_refused(port: LocalChannels) -> None:
    stream = port.subscribe(queue(), "s")
    first = await parked(stream.fill())
    with pytest.raises(RuntimeError):
        await anext(stream)
    await cancel(first)
    await stream.aclose()


async def test_cancelling_a_topic_reader_loses_nothing(port: LocalChannels) -> None:
    ch = channel("t", mode="topic")
    stream = port.subscribe(ch, "s")
    reading = await parked(stream.fill())
    await port.send(ch, [1, 2], None, "a")
    await cancel(reading)
    assert [await anext(stream), await anext(stream)] == [1, 2]
    await stream.aclose()


async def test_posting_from_a_thread_drops_the_oldest_with_a_warning(
    port: LocalChannels, caplog: pytest.LogCaptureFixture
) -> None:
    ch = queue(capacity=3)

    def post() -> None:
        for value in (1, 2, 3, 4):
            port.post(ch, value)

    with caplog.at_level(logging.WARNING):
        await asyncio.to_thread(post)
        await port.flush()
    assert len(caplog.records) == 1
    assert await drain(port, ch) == [2, 3, 4]


async def test_posting_checks_schema_and_settings_at_once(port: LocalChannels) -> None:
    with pytest.raises(ChannelSchemaError):
        port.post(queue(schema=int), "x")
    await port.open(queue("other"))
    with pytest.raises(ConfigError, match="CHANNEL_CONFLICT"):
        port.post(queue("other", capacity=5), 1)


async def test_a_forgotten_stream_leaves_the_channel(port: LocalChannels) -> None:
    ch = channel("t", mode="topic")
    stream: ValueStream | None = port.subscribe(ch, "s")
    assert stream is not None
    del stream
    await asyncio.wait_for(eventually(lambda: not port._core.owners()), 5)


async def test_cancels_at_random_moments_lose_nothing(port: LocalChannels) -> None:
    ch = queue(capacity=4)
    got: list[int] = []

    async def receive(turns: int) -> None:
        task = asyncio.ensure_future(port.recv(ch, 2, None, "b"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            got.extend(await task)
        except asyncio.CancelledError:
            return

    for i in range(300):
        receiver = asyncio.ensure_future(receive(i % 4))
        for _ in range(i % 3):
            await asyncio.sleep(0)
        await port.send(ch, [i], None, "a")
        await receiver
        got += await drain(port, ch)
    assert got == list(range(300))
