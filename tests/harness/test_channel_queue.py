from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from ray.util.queue import Empty, Full, Queue

from noetic_ray.actors.channel_actor import channel_actor_class
from noetic_ray.actors.channel_client import RayChannels
from noetic_ray.channels import Channel, channel
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.errors import ChannelClosed, ChannelSchemaError
from noetic_ray.harness.channel_handle import ChannelHandle

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]

BOUND = 30.0


class Place:
    def __init__(self) -> None:
        self.thread = LoopThread("test")
        self.actor = channel_actor_class().remote()
        self.port = RayChannels(lambda: self.actor, "driver", loop=self.thread.loop)

    def handle(self, ch: Channel[Any]) -> ChannelHandle[Any]:
        return ChannelHandle(ch, self.port, call=self.thread.call)

    def queue(self, capacity: int = 1000, schema: Any = None) -> tuple[Channel[Any], Queue]:
        name = uuid.uuid4().hex
        ch = channel(name, schema, mode="queue", capacity=capacity, external=True)
        return ch, self.handle(ch).as_ray_queue()


@pytest.fixture(scope="module")
def place(ray_cluster: None) -> Iterator[Place]:
    made = Place()
    yield made
    made.thread.call(made.port.aclose(), BOUND)
    made.thread.stop()
    ray.kill(made.actor)


def relay(incoming: Queue, outgoing: Queue, count: int) -> str:
    for _ in range(count):
        outgoing.put(incoming.get(timeout=30) * 2)
    try:
        incoming.get_nowait()
    except Empty:
        return type(incoming).__mro__[1].__name__
    return "more came than was sent"


def test_plain_tasks_read_and_write_channels_of_contexts(place: Place) -> None:
    first, incoming = place.queue(schema=int)
    second, outgoing = place.queue(schema=int)
    done = ray.remote(num_cpus=0)(relay).remote(incoming, outgoing, 5)
    place.thread.call(place.port.send(first, range(5), None, "ctx"), BOUND)
    got = [place.thread.call(place.port.recv(second, 1, BOUND, "ctx"))[0] for _ in range(5)]
    assert got == [0, 2, 4, 6, 8]
    assert ray.get(done, timeout=BOUND) == "Queue"


def test_it_behaves_like_a_ray_queue(place: Place) -> None:
    _, queue = place.queue(capacity=2)
    assert isinstance(queue, Queue)
    assert queue.empty()
    queue.put(1)
    queue.put(None, timeout=1)
    assert (len(queue), queue.size(), queue.qsize(), queue.full()) == (2, 2, 2, True)
    for refused in (
        lambda: queue.put_nowait(3),
        lambda: queue.put(3, block=False),
        lambda: queue.put(3, timeout=0.01),
        lambda: queue.put_nowait_batch([3]),
    ):
        with pytest.raises(Full):
            refused()
    assert [queue.get(), queue.get(timeout=1)] == [1, None]
    for refused in (
        queue.get_nowait,
        lambda: queue.get(block=False),
        lambda: queue.get(timeout=0.01),
        lambda: queue.get_nowait_batch(1),
    ):
        with pytest.raises(Empty):
            refused()


def test_batches_are_all_or_nothing(place: Place) -> None:
    _, queue = place.queue(capacity=3)
    with pytest.raises(Full):
        queue.put_nowait_batch(range(4))
    queue.put_nowait_batch(range(3))
    queue.put_nowait_batch([])
    with pytest.raises(Empty):
        queue.get_nowait_batch(4)
    assert queue.get_nowait_batch(0) == []
    assert queue.get_nowait_batch(2) == [0, 1]
    assert queue.get_nowait_batch(1) == [2]


def test_wrong_arguments_raise_what_a_ray_queue_raises(place: Place) -> None:
    _, queue = place.queue()
    for wrong in (lambda: queue.put(1, timeout=-1), lambda: queue.get(timeout=-1)):
        with pytest.raises(ValueError, match="non-negative"):
            wrong()
    with pytest.raises(ValueError, match="nonnegative"):
        queue.get_nowait_batch(-1)
    with pytest.raises(TypeError):
        queue.get_nowait_batch("2")  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(TypeError):
        queue.put_nowait_batch(5)  # type: ignore[arg-type, unused-ignore]


async def test_the_async_methods(place: Place) -> None:
    _, queue = place.queue(capacity=1)
    getting = asyncio.ensure_future(queue.get_async())
    await queue.put_async("x")
    assert await getting == "x"
    await queue.put_async("y")
    with pytest.raises(Full):
        await queue.put_async("z", timeout=0.01)
    assert await queue.get_async(block=False) == "y"
    with pytest.raises(Empty):
        await queue.get_async(timeout=0.01)


def test_a_blocked_put_goes_on_when_a_context_reads(place: Place) -> None:
    ch, queue = place.queue(capacity=1)
    queue.put(1)
    thread = threading.Thread(target=lambda: queue.put(2))
    thread.start()
    assert place.thread.call(place.port.recv(ch, 1, BOUND, "ctx")) == [1]
    assert place.thread.call(place.port.recv(ch, 1, BOUND, "ctx")) == [2]
    thread.join(BOUND)
    assert not thread.is_alive()


def test_values_are_checked(place: Place) -> None:
    _, queue = place.queue(schema=int)
    with pytest.raises(ChannelSchemaError):
        queue.put("x")


def test_shutting_the_queue_down_leaves_the_channel(place: Place) -> None:
    ch, queue = place.queue()
    queue.put(1)
    queue.shutdown()
    with pytest.raises(ChannelClosed):
        queue.get()
    assert place.thread.call(place.port.recv(ch, 1, BOUND, "ctx")) == [1]


def test_after_the_actor_is_gone_the_channel_is_closed(ray_cluster: None) -> None:
    lost = Place()
    _, queue = lost.queue()
    ray.kill(lost.actor)
    with pytest.raises(ChannelClosed):
        queue.get(timeout=BOUND)
    with pytest.raises(ChannelClosed):
        queue.qsize()
    lost.thread.stop()
