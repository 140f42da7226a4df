from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from noetic_ray.engine.channel_core import ChannelCore
from noetic_ray.engine.channel_lanes import (
    CLOSED,
    EMPTY,
    END,
    FULL,
    OK,
    TOPIC_BUFFER,
    ChannelSpec,
    Lane,
    QueueLane,
    Ticket,
)
from noetic_ray.errors import ConfigError

Answer = tuple[str, list[Any]]


class Probe(Ticket):
    def __init__(self, owner: str = "o") -> None:
        super().__init__(owner)
        self.answers: list[Answer] = []

    def resolve(self, status: str, values: list[Any]) -> None:
        self.answers.append((status, values))

    @property
    def answer(self) -> Answer | None:
        assert len(self.answers) <= 1, "a ticket was answered twice"
        return self.answers[0] if self.answers else None


class Bench:
    def __init__(self, mode: str = "queue", capacity: int = 1000) -> None:
        self.drops: list[tuple[str, int, Any]] = []
        self.core = ChannelCore(lambda *what: self.drops.append(what))
        self.lane: Lane = self.core.open(ChannelSpec("c", mode, capacity, "any"))

    def send(self, *values: Any, owner: str = "s", wait: bool = True) -> Probe:
        probe = Probe(owner)
        self.lane.send(probe, values, wait)
        return probe

    def recv(self, limit: int = 1, owner: str = "r", wait: bool = True) -> Probe:
        probe = Probe(owner)
        self.lane.receive(probe, limit, wait)
        return probe

    def take(self) -> list[Any]:
        probe = self.recv(wait=False)
        self.core.acknowledge(probe)
        assert probe.answer is not None
        return probe.answer[1]

    def drain(self) -> list[Any]:
        got: list[Any] = []
        while values := self.take():
            got += values
        return got

    def pull(self, stream: Any, limit: int = 10) -> Probe:
        probe = Probe(stream.owner)
        self.lane.pull(stream, probe, limit)
        return probe


def test_a_value_channel_answers_every_waiting_receiver_and_keeps_its_value() -> None:
    bench = Bench("value")
    waiting = [bench.recv() for _ in range(3)]
    assert bench.send(7).answer == (OK, [])
    assert [probe.answer for probe in waiting] == [(OK, [7])] * 3
    assert bench.take() == [7]
    assert bench.take() == [7]


def test_a_queue_is_first_in_first_out() -> None:
    bench = Bench()
    bench.send(1, 2, 3)
    assert bench.drain() == [1, 2, 3]
    assert bench.recv(wait=False).answer == (EMPTY, [])


def test_a_send_into_a_full_queue_is_parked_until_there_is_room() -> None:
    bench = Bench(capacity=2)
    bench.send(1, 2)
    parked = bench.send(3)
    assert parked.answer is None
    assert bench.take() == [1]
    assert parked.answer == (OK, [])
    assert bench.drain() == [2, 3]


def test_parked_sends_enter_in_order() -> None:
    bench = Bench(capacity=1)
    bench.send(1)
    second, third = bench.send(2), bench.send(3)
    bench.take()
    assert (second.answer, third.answer) == ((OK, []), None)
    bench.take()
    assert third.answer == (OK, [])


def test_a_send_that_will_not_wait_keeps_what_went_in() -> None:
    bench = Bench(capacity=2)
    assert bench.send(1, 2, 3, wait=False).answer == (FULL, [])
    assert bench.drain() == [1, 2]


def test_many_values_pass_through_a_small_queue_to_waiting_receivers() -> None:
    bench = Bench(capacity=1)
    first, second = bench.recv(limit=5), bench.recv()
    sender = bench.send(1, 2, 3, wait=False)
    assert (first.answer, second.answer) == ((OK, [1]), (OK, [2]))
    assert sender.answer == (OK, [])
    assert bench.drain() == [3]


def test_an_expired_send_never_enters_and_leaves_the_others_parked() -> None:
    bench = Bench(capacity=1)
    bench.send(1)
    late, patient = bench.send(2), bench.send(3)
    assert bench.core.expire(late)
    assert not bench.core.expire(late)
    assert bench.drain() == [1, 3]
    assert late.answer is None
    assert patient.answer == (OK, [])


def test_a_withdrawn_receiver_leaves_the_value_to_the_next() -> None:
    bench = Bench()
    gone, stays = bench.recv(), bench.recv()
    bench.core.withdraw([gone])
    bench.send("W")
    assert gone.answer is None
    assert stays.answer == (OK, ["W"])


def test_leased_values_return_in_the_order_of_their_arrival() -> None:
    bench = Bench()
    bench.send(1, 2, 3, 4)
    one, two, three = bench.recv(owner="a"), bench.recv(owner="b"), bench.recv(owner="a")
    bench.core.withdraw([two])
    bench.core.withdraw([three, one])
    assert bench.drain() == [1, 2, 3, 4]


def test_a_partly_used_batch_returns_its_rest() -> None:
    bench = Bench()
    bench.send(1, 2, 3)
    batch = bench.recv(limit=3)
    bench.core.acknowledge(batch, kept=1)
    assert bench.drain() == [2, 3]


def test_an_acknowledged_value_does_not_come_back() -> None:
    bench = Bench()
    bench.send(1)
    done = bench.recv()
    bench.core.acknowledge(done)
    bench.core.withdraw([done])
    bench.core.drop_owner("r")
    assert bench.drain() == []
    assert bench.core.owners() == set()


def test_the_death_of_an_owner_gives_everything_back_and_nothing_to_itself() -> None:
    bench = Bench(capacity=1)
    bench.send(1)
    held = bench.recv(owner="dead")
    waits = bench.recv(owner="dead")
    other = bench.recv(owner="alive")
    bench.core.drop_owner("dead")
    assert held.answer == (OK, [1])
    assert waits.answer == (CLOSED, [])
    assert other.answer == (OK, [1])
    assert bench.core.owners() == {"alive"}


def test_the_death_of_a_parked_sender_drops_what_never_entered() -> None:
    bench = Bench(capacity=1)
    bench.send(1)
    bench.send(2, owner="dead")
    bench.core.drop_owner("dead")
    assert bench.drain() == [1]


def test_an_external_send_into_a_full_queue_drops_the_oldest() -> None:
    bench = Bench(capacity=3)
    bench.lane.post([1, 2, 3, 4], "outside")
    assert bench.drops == [("c", 1, "outside")]
    assert bench.drain() == [2, 3, 4]


def test_an_external_send_may_overtake_parked_senders() -> None:
    bench = Bench(capacity=1)
    bench.send(1)
    parked = bench.send(2)
    bench.lane.post([3], "outside")
    assert parked.answer is None
    assert bench.drain() == [3, 2]


def test_an_external_send_reaches_a_waiting_receiver() -> None:
    bench = Bench(capacity=1)
    waiting = bench.recv()
    bench.lane.post([1, 2], "outside")
    assert waiting.answer == (OK, [1])
    assert bench.drops == []
    assert bench.drain() == [2]


def test_a_topic_reaches_everyone_who_waits_and_nobody_later() -> None:
    bench = Bench("topic")
    bench.send("lost")
    waiting = [bench.recv(), bench.recv()]
    bench.send("x")
    assert [probe.answer for probe in waiting] == [(OK, ["x"])] * 2
    assert bench.recv(wait=False).answer == (EMPTY, [])


def test_a_topic_subscription_buffers_and_drops_its_oldest() -> None:
    bench = Bench("topic")
    stream = bench.lane.subscribe("reader")
    for value in range(TOPIC_BUFFER + 1):
        bench.send(value)
    assert bench.drops == [("c", 1, "reader")]
    assert bench.pull(stream, 1).answer == (OK, [1])


def test_a_topic_subscription_gets_back_what_it_was_handed_in_vain() -> None:
    bench = Bench("topic")
    stream = bench.lane.subscribe("reader")
    bench.send(1, 2)
    bench.core.withdraw([bench.pull(stream, 1)])
    assert bench.pull(stream).answer == (OK, [1, 2])


def test_a_value_subscription_sees_the_current_value_then_only_the_newest() -> None:
    bench = Bench("value")
    bench.send(0)
    stream = bench.lane.subscribe("reader")
    assert bench.pull(stream).answer == (OK, [0])
    bench.send(1)
    bench.send(2)
    assert bench.pull(stream).answer == (OK, [2])
    waits = bench.pull(stream)
    assert waits.answer is None
    bench.send(3)
    assert waits.answer == (OK, [3])


def test_a_queue_subscription_competes_with_receivers_in_one_line() -> None:
    bench = Bench()
    receiver = bench.recv()
    pulled = bench.pull(bench.lane.subscribe("reader"))
    bench.send(1)
    bench.send(2)
    assert (receiver.answer, pulled.answer) == ((OK, [1]), (OK, [2]))


def test_listeners_wake_once_at_any_send_and_take_nothing() -> None:
    bench = Bench(capacity=1)
    bench.send(1)
    listeners = [Probe(), Probe()]
    for probe in listeners:
        bench.lane.listen(probe)
    bench.send(2)
    bench.send(3)
    assert [probe.answers for probe in listeners] == [[(OK, [])]] * 2
    assert bench.drain() == [1, 2, 3]


def test_closing_a_run_ends_its_streams_after_what_is_there() -> None:
    bench = Bench()
    bench.send(1, 2)
    bound, free = bench.lane.subscribe("a", "run"), bench.lane.subscribe("b")
    bench.core.close_run("run")
    bench.send(3)
    first = bench.pull(bound, 1)
    bench.core.acknowledge(first)
    assert first.answer == (OK, [1])
    assert bench.pull(bound).answer == (OK, [2])
    assert bench.pull(bound).answer == (END, [])
    assert bench.pull(free).answer == (OK, [3])


@pytest.mark.parametrize("mode", ["queue", "value", "topic"])
def test_closing_a_run_ends_a_stream_that_waits(mode: str) -> None:
    bench = Bench(mode)
    waits = bench.pull(bench.lane.subscribe("a", "run"))
    bench.core.close_run("run")
    assert waits.answer == (END, [])


def test_a_batch_given_back_by_a_closing_stream_can_be_read_again() -> None:
    bench = Bench()
    bench.send(1, 2, 3)
    stream = bench.lane.subscribe("a", "run")
    bench.core.close_run("run")
    bench.core.acknowledge(bench.pull(stream), kept=1)
    assert bench.pull(stream).answer == (OK, [2, 3])
    assert bench.pull(stream).answer == (END, [])


def test_closing_the_core_answers_everything_that_waits() -> None:
    bench = Bench(capacity=1)
    receiver = bench.recv()
    listener = Probe()
    bench.lane.listen(listener)
    full = bench.core.open(ChannelSpec("full", "queue", 1, "any"))
    full.send(Probe(), [1])
    parked = Probe()
    full.send(parked, [2])
    bench.core.close()
    assert receiver.answer == listener.answer == parked.answer == (CLOSED, [])
    assert bench.send(1).answer == bench.recv().answer == (CLOSED, [])
    late = bench.core.open(ChannelSpec("late", "topic", 1, "any"))
    unheard = Probe()
    late.receive(unheard)
    assert unheard.answer == (CLOSED, [])


@pytest.mark.parametrize(
    "other",
    [
        ChannelSpec("c", "value", 1000, "any"),
        ChannelSpec("c", "queue", 5, "any"),
        ChannelSpec("c", "queue", 1000, "int"),
    ],
)
def test_a_name_cannot_be_used_with_other_settings(other: ChannelSpec) -> None:
    with pytest.raises(ConfigError, match="CHANNEL_CONFLICT"):
        Bench().core.open(other)


def test_all_or_nothing_batches() -> None:
    bench = Bench(capacity=3)
    lane = bench.lane
    assert isinstance(lane, QueueLane)
    assert not lane.offer([1, 2, 3, 4])
    assert lane.offer([1, 2, 3])
    too_many = Probe()
    lane.take(too_many, 4)
    assert too_many.answer == (EMPTY, [])
    exact = Probe()
    lane.take(exact, 2)
    assert exact.answer == (OK, [1, 2])


OWNERS = ["a", "b", "c"]


class QueueMachine(RuleBasedStateMachine):
    """Against any interleaving: nothing lost, nothing twice, each sender's order kept."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(capacity=3)
        self.numbers = dict.fromkeys(OWNERS, 0)
        self.sends: list[tuple[Probe, list[Any]]] = []
        self.unsure: set[Any] = set()
        self.dropped = 0
        self.holding: list[Probe] = []
        self.waiting: list[Probe] = []
        self.consumed: list[Any] = []

    def values(self, owner: str, count: int) -> list[Any]:
        start = self.numbers[owner]
        self.numbers[owner] += count
        return [(owner, start + i) for i in range(count)]

    @rule(owner=st.sampled_from(OWNERS), count=st.integers(1, 5), wait=st.booleans())
    def send(self, owner: str, count: int, wait: bool) -> None:
        values = self.values(owner, count)
        probe = self.bench.send(*values, owner=owner, wait=wait)
        self.sends.append((probe, values))
        if probe.answer == (FULL, []):
            self.unsure.update(values)

    @rule(count=st.integers(1, 5))
    def post(self, count: int) -> None:
        values = self.values("b", count)
        before = sum(n for _, n, _ in self.bench.drops)
        self.bench.lane.post(values, "b")
        self.dropped += sum(n for _, n, _ in self.bench.drops) - before

    @rule(owner=st.sampled_from(OWNERS), limit=st.integers(1, 4), wait=st.booleans())
    def receive(self, owner: str, limit: int, wait: bool) -> None:
        probe = self.bench.recv(limit, owner=owner, wait=wait)
        if probe.answer is None:
            self.waiting.append(probe)
        elif probe.answer[0] == OK:
            self.holding.append(probe)

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        probe = data.draw(st.sampled_from(self.holding))
        self.holding.remove(probe)
        assert probe.answer is not None
        kept = data.draw(st.integers(0, len(probe.answer[1])))
        self.consumed += probe.answer[1][:kept]
        if kept:
            self.bench.core.acknowledge(probe, kept)
        else:
            self.bench.core.withdraw([probe])

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        everything = [*self.holding, *self.waiting, *(p for p, _ in self.sends)]
        if not everything:
            return
        chosen = data.draw(st.lists(st.sampled_from(everything), max_size=4))
        self.forget(chosen)
        self.bench.core.withdraw(chosen)

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        everything = [*self.waiting, *(p for p, _ in self.sends)]
        if not everything:
            return
        probe = data.draw(st.sampled_from(everything))
        if self.bench.core.expire(probe):
            self.forget([probe])

    @rule(owner=st.sampled_from(OWNERS))
    def die(self, owner: str) -> None:
        self.forget(
            [
                p
                for p in (*self.holding, *self.waiting, *(s for s, _ in self.sends))
                if p.owner == owner
            ]
        )
        self.bench.core.drop_owner(owner)
        assert owner not in self.bench.core.owners()

    def forget(self, probes: list[Probe]) -> None:
        gone = set(probes)
        self.holding = [p for p in self.holding if p not in gone]
        self.waiting = [p for p in self.waiting if p not in gone]
        for probe, values in self.sends:
            if probe in gone and probe.answer is None:
                self.unsure.update(values)

    @invariant()
    def answered_receivers_hold_their_values(self) -> None:
        done = [p for p in self.waiting if p.answer is not None]
        self.waiting = [p for p in self.waiting if p.answer is None]
        self.holding += done

    @invariant()
    def nobody_waits_beside_values(self) -> None:
        lane = self.bench.lane
        assert isinstance(lane, QueueLane)
        assert not (lane.buffer and lane.receivers)
        assert not lane.parked or len(lane.buffer) >= lane.spec.capacity
        arrivals = [n for n, _ in lane.buffer]
        assert arrivals == sorted(arrivals)

    def teardown(self) -> None:
        self.answered_receivers_hold_their_values()
        self.bench.core.withdraw(self.waiting)
        self.bench.core.withdraw(self.holding)
        rest = self.bench.drain()
        seen = [*self.consumed, *rest]
        assert len(seen) == len(set(seen)), "a value came twice"
        sent = {(owner, i) for owner, n in self.numbers.items() for i in range(n)}
        assert set(seen) <= sent
        missing = sent - set(seen) - self.unsure
        assert len(missing) <= self.dropped, f"lost {missing}"
        for owner in OWNERS:
            order = [n for who, n in rest if who == owner and who != "b"]
            assert order == sorted(order), "a sender's order was broken"
        assert self.bench.core.owners() == set()


TestAnyInterleaving = QueueMachine.TestCase
TestAnyInterleaving.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


def test_strict_order_for_one_sender_and_one_receiver_with_retries() -> None:
    bench = Bench(capacity=2)
    pending = deque(range(50))
    got: list[int] = []
    flaky: Callable[[int], bool] = lambda turn: turn % 3 == 0  # noqa: E731
    turn = 0
    while len(got) < 50:
        turn += 1
        while pending and bench.send(pending[0], wait=False).answer == (OK, []):
            pending.popleft()
        probe = bench.recv(limit=2)
        if flaky(turn):
            bench.core.withdraw([probe])
            continue
        bench.core.acknowledge(probe)
        assert probe.answer is not None
        got += probe.answer[1]
    assert got == list(range(50))
