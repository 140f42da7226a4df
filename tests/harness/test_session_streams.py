"""What readers of a session get, when they come late, read slowly, or leave."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import Callable, Iterator

import pytest

import noetic_ray as nr
from noetic_ray.canonical import to_json_bytes
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.harness.session_feed import Entry, Feed, Place
from noetic_ray.harness.session_streams import (
    AsyncSessionStream,
    Pieces,
    SessionStream,
    deltas_too,
    events_in,
    items_in,
)
from noetic_ray.items import item_json
from noetic_ray.journal.events import wrap_item
from tests.conftest import BACKENDS, unique
from tests.support.sessions import BOUND, Talk, Talker, texts
from tests.support.wait import wait_until


@pytest.fixture(scope="module", params=BACKENDS)
def place(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness with the talking model, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    name = unique("sessions")
    with nr.Harness(name, Talker(), placement=request.param, kill_after=2.0) as made:
        yield made


@pytest.fixture
def talk(place: nr.Harness) -> Talk:
    """A new session."""
    return Talk(place, uuid.uuid4().hex)


# -- of turns ------------------------------------------------------------------------------------


def test_a_late_reader_gets_everything_from_the_start(talk: Talk) -> None:
    talk.say("a b c")
    talk.say("whole")
    with talk.session.text_stream() as text, talk.session.item_stream() as items:
        pieces = [next(text) for _ in range(6)]
        assert pieces == ["echo ", "1: ", "a ", "b ", "c", "echo 2: whole"]
        assert texts(next(items) for _ in range(4)) == talk.texts()


def test_a_reader_of_a_running_turn_gets_pieces_as_they_come(talk: Talk) -> None:
    with talk.session.text_stream() as text:
        talk.session.send("half")
        assert next(text) == "echo 1"
        assert talk.session.status == "generating"
        talk.session.abort()
        talk.say("b")
        assert [next(text) for _ in range(3)] == ["echo ", "2: ", "b"]


def test_thoughts_have_a_stream_of_their_own(talk: Talk) -> None:
    talk.say("think")
    talk.say("think whole")
    with talk.session.reasoning_stream() as thoughts:
        assert [next(thoughts), next(thoughts)] == ["let me see", "let me see"]


def test_events_are_those_of_the_turns_in_order_without_repeated_history(talk: Talk) -> None:
    talk.say("a")
    talk.say("b")
    with talk.session.events() as events:
        seen = []
        while [event.type for event in seen].count("run.ended") < 2:
            seen.append(next(events))
    logged = [event.data["item"]["id"] for event in seen if event.type == "item.appended"]
    assert logged == [item.id for item in talk.session.history]
    assert len({event.run_id for event in seen}) == 2
    for run_id in {event.run_id for event in seen}:
        numbers = [event.seq for event in seen if event.run_id == run_id]
        assert numbers == sorted(numbers)  # type: ignore[type-var]
    assert "model.delta" not in {event.type for event in seen}


def test_with_deltas_the_pieces_are_among_the_events(talk: Talk) -> None:
    talk.say("a")
    with talk.session.events(deltas=True) as events:
        found = [next(events) for _ in range(12)]
    pieces = [event.data["text"] for event in found if event.type == "model.delta"]
    assert "".join(pieces) == "echo 1: a"


@nr.step
async def asks_another(text: str, ctx: nr.Context) -> str:
    answer = await ctx.spawn(nr.call_model("below", "talker"), text)
    ctx.item_log.append(nr.assistant_message("done"))
    return str(answer)


def test_contexts_below_are_in_the_events_alone(place: nr.Harness) -> None:
    talk = Talk(place, uuid.uuid4().hex, asks_another)
    assert talk.say("a").output == "echo 1: a"
    with talk.session.text_stream() as text, talk.session.events(deltas=True) as events:
        assert next(text) == "done"
        wait_until(lambda: next(events).type == "model.completed")
    assert talk.texts() == ["u:a", "a:done"]


async def test_async_readers_do_the_same(talk: Talk) -> None:
    talk.session.send("a think")
    async with talk.session.atext_stream() as text, talk.session.areasoning_stream() as thoughts:
        assert [await anext(text) for _ in range(4)] == ["echo ", "1: ", "a ", "think"]
        assert await anext(thoughts) == "let me see"
    async with talk.session.aevents() as events:
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        talk.session.send("b")
        async with asyncio.timeout(BOUND):
            async for event in events:
                if event.type == "run.started":
                    break


# -- the feed ------------------------------------------------------------------------------------


class Stage:
    """A feed with a few entries' room, on a loop of its own."""

    def __init__(self) -> None:
        self.thread = LoopThread("noetic-test-feed")
        self.feed = Feed(self.thread, keep=5)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            entry = Entry("run", (number, "x", "run", 0.0, b"{}"))
            self.on_loop(lambda entry=entry: self.feed.put(entry))

    def on_loop(self, do: Callable[[], object]) -> None:
        async def call() -> None:
            do()

        self.thread.call(call(), BOUND)

    def reader(self) -> SessionStream[int]:
        return SessionStream(self.feed, lambda entry: (entry.event[0] or 0,))

    def kept(self) -> int:
        self.on_loop(lambda: None)
        return len(self.feed)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.thread.stop()


def take(reader: Iterator[int], count: int) -> list[int]:
    return [next(reader) for _ in range(count)]


def test_only_the_newest_entries_stay_and_readers_know_what_they_missed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    early = stage.reader()
    stage.put(1, 2)
    assert take(early, 2) == [1, 2]
    stage.put(*range(3, 11))
    assert (take(early, 5), early.missed) == ([6, 7, 8, 9, 10], 3)
    late = stage.reader()
    assert (take(late, 5), late.missed) == ([6, 7, 8, 9, 10], 5)
    assert "came too late for 5 entries" in caplog.text


def test_before_the_first_reader_entries_are_kept(stage: Stage) -> None:
    stage.put(1, 2, 3)
    assert take(stage.reader(), 3) == [1, 2, 3]


def test_after_the_last_reader_nothing_is_kept(stage: Stage) -> None:
    one, other = stage.reader(), stage.reader()
    stage.put(1, 2)
    one.close()
    assert stage.kept() == 2
    other.close()
    assert stage.kept() == 0
    stage.put(3)
    assert stage.kept() == 0
    fresh = stage.reader()
    stage.put(4)
    assert (take(fresh, 1), fresh.missed) == ([4], 0)
    assert take(stage.reader(), 1) == [4]


def test_a_reader_that_is_dropped_has_left(stage: Stage) -> None:
    reader = stage.reader()
    stage.put(1)
    assert next(reader) == 1
    del reader
    gc.collect()
    wait_until(lambda: stage.kept() == 0)


def test_a_closed_reader_ends(stage: Stage) -> None:
    stage.put(1, 2, 3)
    with stage.reader() as reader:
        assert next(reader) == 1
    assert list(reader) == []


def test_at_the_end_readers_get_what_is_left(stage: Stage) -> None:
    stage.put(1, 2)
    reader = stage.reader()
    stage.on_loop(stage.feed.close)
    late = stage.reader()
    assert (list(reader), list(late)) == ([1, 2], [1, 2])


async def test_readers_end_with_the_loop(stage: Stage) -> None:
    sync, other = stage.reader(), AsyncSessionStream(stage.feed, deltas_too)
    waiting = asyncio.ensure_future(anext(other))
    reading = asyncio.ensure_future(asyncio.to_thread(list, sync))
    await asyncio.to_thread(stage.kept)
    await asyncio.to_thread(stage.thread.stop)
    async with asyncio.timeout(BOUND):
        assert await reading == []
        with pytest.raises(StopAsyncIteration):
            await waiting
    assert list(stage.reader()) == []
    assert [each async for each in AsyncSessionStream(stage.feed, deltas_too)] == []


def test_a_place_that_never_joined_sees_nothing(stage: Stage) -> None:
    stage.put(1)
    assert stage.feed.ahead(Place()).entries == []


# -- what readers make of entries ----------------------------------------------------------------


def entry(type: str, data: bytes, context: str = "run", seq: int | None = 1) -> Entry:
    return Entry("run", (seq, type, context, 0.0, data))


def delta(text: str, kind: str = "text", context: str = "run") -> Entry:
    return entry("model.delta", to_json_bytes({"kind": kind, "text": text}), context, None)


def logged(item: nr.Item, context: str = "run") -> Entry:
    return entry("item.appended", wrap_item(item_json(item)), context)


def said(*entries: Entry, kind: str = "text") -> list[str]:
    pieces = Pieces(kind)  # type: ignore[arg-type]
    return [piece for each in entries for piece in pieces(each)]


ANSWER = nr.assistant_message("hello")


def test_streamed_text_is_not_said_again() -> None:
    assert said(delta("hel"), delta("lo"), logged(ANSWER)) == ["hel", "lo"]


def test_what_was_not_streamed_comes_whole() -> None:
    assert said(logged(ANSWER), logged(ANSWER)) == ["hello", "hello"]


def test_the_rest_of_what_was_streamed_in_part_comes_at_the_end() -> None:
    assert said(delta("hel"), logged(ANSWER)) == ["hel", "lo"]


def test_who_came_in_the_middle_does_not_hear_it_all_again() -> None:
    assert said(delta("lo"), logged(ANSWER), logged(ANSWER)) == ["lo", "hello"]


def test_two_messages_streamed_in_one_round_are_both_known() -> None:
    assert said(delta("hellohello"), logged(ANSWER), logged(ANSWER)) == ["hellohello"]


def test_an_attempt_that_failed_does_not_count_as_streamed() -> None:
    retried = entry("model.retried", b"{}")
    assert said(delta("he"), retried, logged(ANSWER)) == ["he", "hello"]


def test_only_the_roots_answers_are_text() -> None:
    below = [delta("x", context="child"), logged(ANSWER, "child")]
    others = [logged(nr.user_message("u")), delta("{}", "arguments"), delta("t", "reasoning")]
    assert said(*below, *others, delta("")) == []


def test_reasoning_is_apart_from_text() -> None:
    thought = nr.ReasoningItem(content="hmm")
    entries = [delta("h", "reasoning"), delta("x"), logged(thought), logged(ANSWER)]
    assert said(*entries, kind="reasoning") == ["h", "mm"]


def test_items_and_events_are_made_of_entries() -> None:
    assert list(items_in(logged(ANSWER))) == [ANSWER]
    assert list(items_in(logged(ANSWER, "child"))) == []
    assert list(events_in(delta("x"))) == []
    assert [event.data for event in deltas_too(delta("x"))] == [{"kind": "text", "text": "x"}]


def test_a_message_whose_turn_never_began_is_in_the_stream_of_items(place: nr.Harness) -> None:
    talk = Talk(place, uuid.uuid4().hex)
    stream = talk.session.item_stream()
    for number in range(3):
        talk.session.send(f"early {number}")
        talk.session.abort("at once")
        talk.session.response(BOUND)  # a quick turn may have ended before the abort came
    talk.say("last")
    seen = [next(stream) for _ in talk.session.history]
    assert [item.id for item in seen] == [item.id for item in talk.session.history]
