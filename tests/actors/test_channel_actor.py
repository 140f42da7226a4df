from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import ray

from noetic_ray.actors.channel_actor import LOST, STALE, ChannelActor, channel_actor_class
from noetic_ray.actors.channel_client import RayChannels
from noetic_ray.channels import Channel, channel
from noetic_ray.engine.channel_lanes import OK
from noetic_ray.errors import (
    ChannelClosed,
    ChannelSchemaError,
    ChannelTimeout,
    ConfigError,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]

BOUND = 30.0


@pytest.fixture(scope="module")
def actor(ray_cluster: None) -> Iterator[Any]:
    handle = channel_actor_class().remote()
    yield handle
    ray.kill(handle)


@pytest.fixture
def connect(actor: Any) -> Callable[..., RayChannels]:
    """Makes a client as if it were a process of its own."""

    def make(process: str | None = None, **options: Any) -> RayChannels:
        return RayChannels(lambda: actor, process or uuid.uuid4().hex, **options)

    return make


def queue(capacity: int = 1000, schema: Any = None) -> Channel[Any]:
    return channel(uuid.uuid4().hex, schema, mode="queue", capacity=capacity)


async def drain(port: RayChannels, ch: Channel[Any]) -> list[Any]:
    got: list[Any] = []
    while value := await port.try_recv(ch, "drain"):
        got += value
    return got


async def waiting(port: RayChannels, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task whose operation the actor has taken in."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    await port.open(queue())
    assert not task.done()
    return task


async def test_values_come_in_order_through_the_actor(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue()
    await one.send(ch, [1, None, "three"], None, "a")
    await one.send(ch, [4], None, "a")
    assert await two.recv(ch, 2, None, "b") == [1, None]
    assert await two.try_recv(ch, "b") == ["three"]
    assert await two.recv(ch, 10, None, "b") == [4]
    assert await two.try_recv(ch, "b") == []


async def test_a_receiver_is_woken_by_another_process(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue()
    receiver = await waiting(two, two.recv(ch, 1, None, "b"))
    await one.send(ch, [1], None, "a")
    assert await receiver == [1]


async def test_a_full_queue_holds_its_sender_until_somebody_reads(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue(capacity=2)
    sender = await waiting(one, one.send(ch, list(range(5)), None, "a"))
    assert [await two.recv(ch, 1, BOUND, "b") for _ in range(5)] == [[i] for i in range(5)]
    await sender


async def test_timeouts_run_out_in_the_actor(connect: Any) -> None:
    port, ch = connect(), queue(capacity=1)
    with pytest.raises(ChannelTimeout) as caught:
        await port.recv(ch, 1, 0.05, "b")
    assert (caught.value.channel_name, caught.value.timeout) == (ch.name, 0.05)
    with pytest.raises(ChannelTimeout):
        await port.recv(ch, 1, 0, "b")
    with pytest.raises(ChannelTimeout):
        await port.send(ch, [1, 2], 0, "a")
    with pytest.raises(ChannelTimeout):
        await port.send(ch, [2], 0.05, "a")
    assert not await port.wait_send(ch, 0.05, "a")
    assert await drain(port, ch) == [1]


async def test_a_shorter_timeout_runs_out_beside_a_longer_wait(connect: Any) -> None:
    port, ch = connect(), queue()
    patient = await waiting(port, port.recv(ch, 1, BOUND, "b"))
    with pytest.raises(ChannelTimeout):
        await port.recv(queue(), 1, 0.05, "c")
    await port.send(ch, [1], None, "a")
    assert await patient == [1]


async def test_wrong_values_and_settings_are_refused_before_anything_leaves(connect: Any) -> None:
    port, ch = connect(), queue(schema=int)
    with pytest.raises(ChannelSchemaError):
        await port.send(ch, [1, "x"], None, "a")
    assert await drain(port, ch) == []
    other = channel(ch.name, int, mode="queue", capacity=5)
    with pytest.raises(ConfigError, match="CHANNEL_CONFLICT"):
        await connect().send(other, [1], None, "a")
    with pytest.raises(ConfigError, match="CHANNEL_CONFLICT"):
        await anext(connect().subscribe(other, "s"))
    with pytest.raises(ConfigError, match="INVALID_TIMEOUT"):
        await port.recv(ch, 1, -1, "b")


async def test_what_cannot_travel_is_an_error_of_ours(connect: Any) -> None:
    port, ch = connect(), queue()
    with pytest.raises(ConfigError, match="VALUE_UNPICKLABLE"):
        await port.send(ch, [threading.Lock()], None, "a")
    await port.send(ch, [Unreadable(), 2], None, "a")
    with pytest.raises(ConfigError, match="VALUE_UNREADABLE"):
        await port.recv(ch, 1, None, "b")
    assert await drain(port, ch) == [2]


class Unreadable:
    def __reduce__(self) -> Any:
        return fail, ()


def fail() -> None:
    raise ValueError("no")


async def test_local_classes_travel(connect: Any) -> None:
    @dataclass
    class Order:
        number: int

    one, two, ch = connect(), connect(), queue()
    await one.send(ch, [Order(7)], None, "a")
    (got,) = await two.recv(ch, 1, None, "b")
    assert got.number == 7


async def test_a_value_channel_is_read_by_everybody(connect: Any) -> None:
    one, two = connect(), connect()
    ch = channel(uuid.uuid4().hex)
    receivers = [await waiting(two, two.recv(ch, 1, None, "b")) for _ in range(3)]
    await one.send(ch, [7], None, "a")
    assert [await each for each in receivers] == [[7]] * 3
    assert await one.try_recv(ch, "a") == [7]


async def test_a_topic_reaches_streams_and_receivers(connect: Any) -> None:
    one, two = connect(), connect()
    ch = channel(uuid.uuid4().hex, mode="topic")
    stream = two.subscribe(ch, "s")
    receiver = await waiting(two, two.recv(ch, 1, None, "b"))
    await one.send(ch, [1, 2], None, "a")
    assert await receiver == [1]
    assert [await anext(stream), await anext(stream)] == [1, 2]
    await stream.aclose()


async def test_waiting_for_a_send_consumes_nothing(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue()
    listener = await waiting(two, two.wait_send(ch, None, "b"))
    await one.send(ch, [1], None, "a")
    assert await listener
    assert await drain(two, ch) == [1]


async def test_a_receiver_aborted_around_the_delivery_loses_nothing(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue()
    received: list[int] = []
    drained: list[int] = []
    for i in range(300):
        receiver = asyncio.ensure_future(two.recv(ch, 1, None, f"r{i}"))
        if i % 3:
            await asyncio.sleep(0)
        await one.send(ch, [i], None, "a")
        receiver.cancel()
        try:
            received += await receiver
        except asyncio.CancelledError:
            drained += await drain(one, ch)
    assert sorted(received + drained) == list(range(300))
    assert drained


async def test_random_cancels_on_both_sides_lose_and_repeat_nothing(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue(capacity=5)
    got: list[int] = []
    loop = asyncio.get_running_loop()

    async def consume() -> None:
        while True:
            got.extend(await two.recv(ch, 3, None, "r"))

    sent = 0
    for turn in range(60):
        consumer = asyncio.ensure_future(consume())
        for _ in range(5):
            await one.send(ch, [sent], BOUND, "a")
            sent += 1
        pause = loop.create_future()
        loop.call_later(0.0005 * (turn % 7), pause.set_result, None)
        await pause
        consumer.cancel()
        await asyncio.wait((consumer,))
        got += await drain(two, ch)
    assert got == list(range(sent))


async def test_a_dead_process_gives_back_and_is_refused(connect: Any, actor: Any) -> None:
    dead, alive, ch = connect("dead"), connect(), queue()
    await alive.send(ch, [1, 2, 3], None, "a")
    stream = dead.subscribe(ch, "s")
    assert await stream.fill()
    hanging = await waiting(dead, dead.recv(queue(), 1, None, "r"))
    await actor.owner_lost.remote("dead")
    assert await drain(alive, ch) == [1, 2, 3]
    with pytest.raises(ChannelClosed):
        await hanging
    with pytest.raises(ChannelClosed):
        await dead.recv(ch, 1, None, "r")


async def test_settling_gives_back_what_an_owner_holds(connect: Any) -> None:
    port, ch = connect(), queue()
    await port.send(ch, list(range(10)), None, "a")
    stream = port.subscribe(ch, "s")
    taken = [await anext(stream), await anext(stream)]
    waits = await waiting(port, port.recv(queue(), 1, None, "s"))
    await port.settle("s")
    with pytest.raises(ChannelClosed):
        await waits
    assert taken + await drain(port, ch) == list(range(10))


async def test_settling_an_owner_without_channels_makes_no_call(ray_cluster: None) -> None:
    asked: list[str] = []
    await RayChannels(lambda: asked.append("actor"), "p").settle("nobody")
    assert asked == []


async def test_acknowledgements_go_out_by_themselves(connect: Any, actor: Any) -> None:
    port, ch = connect(), queue()
    before = await actor.ping.remote()
    await port.send(ch, [1], None, "a")
    await port.recv(ch, 1, None, "b")
    assert await actor.ping.remote() == before + 1

    async def settled() -> None:
        while await actor.ping.remote() != before:
            continue

    await asyncio.wait_for(settled(), BOUND)


async def test_a_stream_reads_in_order_and_in_bulk(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue(schema=int)
    sender = asyncio.ensure_future(one.send(ch, range(20_000), None, "a"))
    stream = two.subscribe(ch, "s")
    assert [await anext(stream) for _ in range(20_000)] == list(range(20_000))
    await sender
    await stream.aclose()


async def test_a_cancelled_stream_stops_at_once_and_returns_the_rest(connect: Any) -> None:
    one, two, ch = connect(), connect(), queue()
    await one.send(ch, list(range(100)), None, "a")
    seen: list[int] = []

    async def read() -> None:
        stream = two.subscribe(ch, "s")
        try:
            async for value in stream:
                seen.append(value)
                if len(seen) == 3:
                    task.cancel()
        finally:
            await stream.aclose()

    task = asyncio.ensure_future(read())
    await asyncio.wait((task,), timeout=BOUND)
    assert task.cancelled()
    assert len(seen) == 3
    assert seen + await drain(one, ch) == list(range(100))


async def test_an_idle_stream_leaves_work_to_a_busy_one(connect: Any) -> None:
    one, ch = connect(), queue()
    first, second = connect().subscribe(ch, "x"), connect().subscribe(ch, "y")
    await one.send(ch, list(range(200)), None, "a")
    head = [await anext(first) for _ in range(20)]
    rest = [await asyncio.wait_for(anext(second), BOUND) for _ in range(180)]
    assert sorted(head + rest) == list(range(200))
    await first.aclose()
    await second.aclose()


async def test_a_stream_bound_to_a_run_ends_with_it(connect: Any) -> None:
    port, ch = connect(), queue()
    await port.send(ch, [1, 2], None, "a")
    stream = port.stream(ch, "run")
    assert await anext(stream) == 1
    await port.close_run("run")
    assert [value async for value in stream] == [2]


async def test_many_waiting_receivers_do_not_keep_out_the_sender(connect: Any) -> None:
    one, two = connect(), connect()
    channels = [queue() for _ in range(400)]
    receivers = [asyncio.ensure_future(two.recv(ch, 1, None, "r")) for ch in channels]
    await asyncio.sleep(0)
    for ch in reversed(channels):
        await one.send(ch, [ch.name], BOUND, "a")
    got = await asyncio.wait_for(asyncio.gather(*receivers), BOUND)
    assert got == [[ch.name] for ch in channels]


async def test_more_waiting_processes_than_threads_are_all_served(ray_cluster: None) -> None:
    small = channel_actor_class(waiting=3).remote(3)
    ports = [RayChannels(lambda: small, f"p{i}") for i in range(8)]
    channels = [queue() for _ in ports]
    receivers = [
        await waiting(port, port.recv(ch, 1, BOUND, "r"))
        for port, ch in zip(ports, channels, strict=True)
    ]
    for i, ch in enumerate(channels):
        await ports[0].send(ch, [i], BOUND, "a")
    assert await asyncio.gather(*receivers) == [[i] for i in range(8)]
    ray.kill(small)


async def test_the_death_of_the_actor_reaches_every_waiter_as_closed(ray_cluster: None) -> None:
    doomed = channel_actor_class().remote()
    ports = [RayChannels(lambda: doomed, f"p{i}") for i in range(3)]
    ch = queue()
    readers = [await waiting(port, port.recv(ch, 1, None, "r")) for port in ports]
    stream = ports[0].subscribe(ch, "s")
    ray.kill(doomed)
    async with asyncio.timeout(10):
        failures = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(each) for each in failures] == [ChannelClosed] * 3
    assert {each.channel_name for each in failures if isinstance(each, ChannelClosed)} == {ch.name}
    with pytest.raises(ChannelClosed):
        await ports[0].send(ch, [1], 5.0, "a")
    with pytest.raises(ChannelClosed):
        await anext(stream)


async def test_after_a_death_a_fresh_actor_is_used(ray_cluster: None) -> None:
    handles = [channel_actor_class().remote(), channel_actor_class().remote()]
    given = iter(handles)

    async def next_actor() -> Any:
        return next(given)

    port, ch = RayChannels(next_actor, "p"), queue()
    await port.send(ch, [1], None, "a")
    ray.kill(handles[0])
    with pytest.raises(ChannelClosed):
        await port.recv(queue(), 1, None, "b")
    await port.send(ch, [2], None, "a")
    assert await port.recv(ch, 5, None, "b") == [2]
    ray.kill(handles[1])


async def test_an_error_of_the_factory_reaches_the_caller(ray_cluster: None) -> None:
    def broken() -> Any:
        raise ConfigError("NO_ACTOR", "there is none")

    with pytest.raises(ConfigError, match="NO_ACTOR"):
        await RayChannels(broken, "p").send(queue(), [1], None, "a")


async def test_closing_the_channels_answers_all_and_refuses_more(ray_cluster: None) -> None:
    own = channel_actor_class().remote()
    port, other, ch = RayChannels(lambda: own, "p"), RayChannels(lambda: own, "q"), queue()
    receiver = await waiting(other, other.recv(ch, 1, None, "r"))
    reading = asyncio.ensure_future(other.subscribe(ch, "s").fill())
    await port.open(ch)
    await port.close_all()
    with pytest.raises(ChannelClosed):
        await receiver
    assert await reading is False
    with pytest.raises(ChannelClosed):
        await port.send(ch, [1], None, "a")
    await other.aclose()
    with pytest.raises(ChannelClosed):
        await other.recv(ch, 1, None, "r")
    ray.kill(own)


async def test_posts_from_threads_arrive_in_order_and_drop_the_oldest(
    connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    port, ch = connect(), queue(capacity=3)
    with caplog.at_level(logging.WARNING, "noetic_ray.channels"):
        await asyncio.to_thread(lambda: [port.post(ch, i) for i in range(1, 5)])
        await port.flush()
        await port.open(ch)
    assert [record.args for record in caplog.records] == [(ch.name, 1)]
    assert await drain(connect(), ch) == [2, 3, 4]


async def test_a_post_that_failed_is_told_by_the_next(connect: Any) -> None:
    port, ch = connect(), queue()
    await connect().open(ch)
    other = channel(ch.name, mode="topic")
    port.post(other, 1)
    await port.flush()
    with pytest.raises(ConfigError, match="CHANNEL_CONFLICT"):
        port.post(other, 2)
    port.post(ch, 3)
    await port.flush()
    assert await drain(port, ch) == [3]


async def test_a_slow_topic_reader_hears_what_it_missed(connect: Any) -> None:
    told: list[tuple[str, int]] = []
    one, two = connect(), connect(on_dropped=lambda *what: told.append(what))
    ch = channel(uuid.uuid4().hex, mode="topic")
    stream = two.subscribe(ch, "s")
    await two.open(ch)
    await one.send(ch, list(range(1001)), None, "a")
    assert await anext(stream) == 1
    assert told == [(ch.name, 1)]
    await stream.aclose()


class Direct:
    """A client session that talks to an actor object in this process."""

    def __init__(self, actor: ChannelActor, process: str = "p", epoch: int = 0) -> None:
        self.actor = actor
        self.envelope = partial(self.pack, process, epoch)

    def pack(
        self, process: str, epoch: int, number: int, *operations: Any, seen: Any = None
    ) -> Any:
        return pickle.dumps((process, epoch, seen, number, operations))

    def say(self, number: int, *operations: Any, seen: Any = None) -> tuple[str, int, list[Any]]:
        answer: tuple[str, int, list[Any]] = pickle.loads(
            self.actor.exchange(self.envelope(number, *operations, seen=seen))
        )
        return answer

    def wait_in_thread(self, number: int, *operations: Any) -> tuple[threading.Thread, list[Any]]:
        answers: list[Any] = []
        payload = self.envelope(number, *operations)
        thread = threading.Thread(
            target=lambda: answers.append(pickle.loads(self.actor.wait(payload)))
        )
        thread.start()
        return thread, answers


SPEC = ("c", "queue", 1000, "anything")


def test_calls_that_overtake_each_other_are_taken_in_in_order() -> None:
    client = Direct(ChannelActor())
    assert client.say(1, ("send", 2, "a", SPEC, [b"second"], None))[2] == []
    state, _, results = client.say(0, ("send", 1, "a", SPEC, [b"first"], None))
    assert (state, results) == (OK, [(1, OK, []), (2, OK, [])])
    assert client.say(2, ("recv", 3, "a", "c", 5, 0))[2] == [(3, OK, [b"first", b"second"])]


def test_a_withdrawal_that_overtakes_its_receive_still_finds_it() -> None:
    actor = ChannelActor()
    client, other = Direct(actor), Direct(actor, "q")
    assert client.say(1, ("withdraw", 2, [1]))[2] == []
    client.say(0, ("recv", 1, "a", SPEC, 1, None))
    other.say(0, ("send", 1, "b", SPEC, [b"v"], None), ("recv", 2, "b", SPEC, 1, 0))
    assert actor.ping() == 1  # only the other client holds something


def test_a_session_that_starts_anew_gives_back_what_the_old_one_held() -> None:
    actor = ChannelActor()
    client = Direct(actor)
    client.say(0, ("send", 1, "a", SPEC, [b"v"], None), ("recv", 2, "a", SPEC, 1, None))
    assert Direct(actor, epoch=1).say(0, ("recv", 3, "a", SPEC, 1, 0))[2] == [(3, OK, [b"v"])]
    assert client.say(1)[0] == LOST


def test_a_session_of_an_earlier_actor_is_told_so() -> None:
    assert Direct(ChannelActor()).say(5, seen=1)[0] == STALE


def test_a_newer_waiting_call_sends_the_older_home() -> None:
    actor = ChannelActor()
    client = Direct(actor)
    first, old = client.wait_in_thread(0, ("recv", 1, "a", SPEC, 1, None))
    second, new = client.wait_in_thread(1)
    first.join(BOUND)
    assert old[0][2] == []
    Direct(actor, "q").say(0, ("send", 1, "b", SPEC, [b"v"], None))
    second.join(BOUND)
    assert new[0][2] == [(1, OK, [b"v"])]


def test_losing_a_process_ends_its_waiting_call() -> None:
    actor = ChannelActor()
    thread, answers = Direct(actor).wait_in_thread(0, ("recv", 1, "a", SPEC, 1, None))
    actor.owner_lost("p")
    thread.join(BOUND)
    assert answers[0][0] == LOST
    assert actor.ping() == 0
