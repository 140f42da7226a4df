"""Messages that do not wait their turn, turns that are aborted, and the end of a session."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique
from tests.support.marks import mark, wait_for
from tests.support.sessions import BOUND, Talk, Talker, gate, held, texts
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


# -- between rounds ------------------------------------------------------------------------------


def test_a_running_turn_takes_a_message_between_its_rounds(talk: Talk) -> None:
    talk.hold("hold a")
    talk.session.send("more", mode="between_rounds", message_id="more")
    assert talk.session.queue_size == 1
    talk.go()
    response = talk.session.response(BOUND)
    assert response.text == "echo 2: more"
    kinds = [item.type for item in response.items]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    assert response.items[3].id == "more"
    assert talk.session.queue_size == 0
    assert talk.texts() == ["u:hold a", "u:more", "a:echo 2: more"]


def test_what_a_turn_did_not_take_is_first_in_the_queue(talk: Talk) -> None:
    with talk.session.text_stream() as pieces:
        talk.session.send("half a")
        assert next(pieces) == "echo 1"
    talk.session.send("later")
    talk.session.send("one", mode="between_rounds")
    talk.session.send("two", mode="between_rounds")
    assert talk.session.queue_size == 3
    talk.session.abort()
    talk.session.send("last")
    talk.session.response(BOUND)
    said = [text for text in talk.texts() if text[0] == "u"]
    assert said == ["u:half a", "u:one", "u:two", "u:later", "u:last"]


def test_without_a_running_turn_it_is_a_turn_of_its_own(talk: Talk) -> None:
    assert talk.say("a", mode="between_rounds").text == "echo 1: a"


def test_a_message_sent_right_behind_the_first_reaches_the_first_turn(talk: Talk) -> None:
    talk.session.send("hold a")
    talk.session.send("b", mode="between_rounds")
    talk.until_held()
    talk.go()
    assert talk.session.response(BOUND).text == "echo 2: b"
    assert talk.texts() == ["u:hold a", "u:b", "a:echo 2: b"]


def test_a_turn_does_not_see_again_what_an_earlier_one_was_offered(talk: Talk) -> None:
    talk.session.send("half a")
    talk.session.send("b", mode="between_rounds")
    talk.session.abort()
    talk.session.response(BOUND)
    talk.hold("hold c")
    talk.go()
    assert talk.session.response(BOUND).text == "echo 3: hold c"
    assert talk.texts().count("u:b") == 1


# -- interrupt -----------------------------------------------------------------------------------


def test_an_interrupt_ends_the_turn_and_is_next(talk: Talk) -> None:
    with talk.session.text_stream() as pieces:
        talk.session.send("half a")
        assert next(pieces) == "echo 1"
    talk.session.send("b")
    talk.session.send("now", mode="interrupt")
    assert talk.session.response(BOUND).text == "echo 2: now"
    assert talk.session.response(BOUND).text == "echo 3: b"
    assert talk.texts() == ["u:half a", "a:echo 1", "u:now", "a:echo 2: now", "u:b", "a:echo 3: b"]
    cut = talk.session.history[1]
    assert cut.status == "incomplete"


def test_interrupts_have_their_turns_in_order(talk: Talk) -> None:
    talk.hold("hold a")
    talk.session.send("z")
    talk.session.send("one", mode="interrupt")
    talk.session.send("two", mode="interrupt")
    talk.session.response(BOUND)
    wait_until(lambda: talk.session.status == "idle", BOUND)
    said = [text for text in talk.texts() if text[0] == "u"]
    assert said[0] == "u:hold a"
    assert said.index("u:one") < said.index("u:two") < said.index("u:z")


def test_an_interrupt_of_an_idle_session_begins_a_turn(talk: Talk) -> None:
    assert talk.say("a", mode="interrupt").text == "echo 1: a"


# -- abort ---------------------------------------------------------------------------------------


def test_an_abort_returns_when_the_turn_has_ended_and_the_queue_goes_on(talk: Talk) -> None:
    talk.hold("hold a")
    aborted = talk.session._line.newest()
    talk.session.send("b")
    report = talk.session.abort("enough")
    assert (report.reached, report.settled) == (1, 1)
    assert aborted.done()
    error = aborted.result().error
    assert isinstance(error, nr.Cancelled)
    assert error.reason == "enough"
    assert talk.session.response(BOUND).text == "echo 2: b"
    assert talk.texts() == ["u:hold a", "u:b", "a:echo 2: b"]


def test_a_turn_can_be_aborted_before_it_has_begun(talk: Talk) -> None:
    talk.session.send("half")
    talk.session.abort("no")
    assert isinstance(talk.session.response(BOUND).error, nr.Cancelled)
    assert talk.session.status == "idle"
    assert talk.texts()[0] == "u:half"


def test_an_abort_of_an_idle_session_does_nothing(talk: Talk) -> None:
    assert talk.session.abort() == nr.AbortReport()
    talk.say("a")
    assert talk.session.abort() == nr.AbortReport()


@nr.step
async def lingers(text: str, ctx: nr.Context) -> None:
    """Takes its time to end, until the gate opens."""
    await ctx.send(held(ctx.thread_id), "here")
    try:
        await asyncio.sleep(BOUND)
    finally:
        while await ctx.try_recv(gate(ctx.thread_id)) is None:
            await asyncio.sleep(0.005)


def test_a_turn_on_its_way_out_is_aborting(place: nr.Harness) -> None:
    talk = Talk(place, uuid.uuid4().hex, lingers)
    talk.hold("a")
    with ThreadPoolExecutor(1) as pool:
        aborting = pool.submit(talk.session.abort)
        wait_until(lambda: talk.session.status == "aborting")
        talk.session.send("b", mode="between_rounds")
        assert talk.session.queue_size == 1
        talk.go()
        assert aborting.result(BOUND).settled == 1
    talk.until_held()
    assert talk.session.status == "generating"
    talk.session.abort()
    assert talk.session.status == "idle"


@nr.step
async def spins(folder: str) -> None:
    """Leaves a sign in a folder and never gives its loop back."""
    mark(folder, "there")
    while True:
        pass


def test_a_turn_that_holds_its_loop_can_be_aborted(place: nr.Harness, tmp_path: Path) -> None:
    talk = Talk(place, uuid.uuid4().hex, spins)
    talk.session.send(str(tmp_path))
    wait_for(tmp_path, "there")
    assert talk.session.status == "generating"
    assert talk.session.abort("enough").reached == 1
    assert isinstance(talk.session.response(BOUND).error, nr.Cancelled)


# -- turns that leave something running ----------------------------------------------------------


@nr.step
async def works_on(text: str, ctx: nr.Context) -> str:
    """A child that asks a model when the gate opens."""
    await ctx.send(held(ctx.thread_id), "here")
    await ctx.recv(gate(ctx.thread_id), timeout=BOUND)
    return str(await ctx.run(nr.call_model("below", "talker"), text))


@nr.step
async def leaves_one_behind(text: str, ctx: nr.Context) -> str:
    """Answers at once; a detached child goes on."""
    if text == "begin":
        ctx.detach(works_on, "x")
    ctx.item_log.append(nr.assistant_message(f"done {text}"))
    return text


def test_a_turn_does_not_wait_for_what_it_detached(place: nr.Harness) -> None:
    talk = Talk(place, uuid.uuid4().hex, leaves_one_behind)
    assert talk.say("begin").text == "done begin"
    assert talk.say("next").text == "done next"
    talk.until_held()
    assert talk.session.usage.total == 0
    talk.go()
    wait_until(lambda: talk.session.usage.total == 5, BOUND)
    assert talk.texts() == ["u:begin", "a:done begin", "u:next", "a:done next"]


# -- the end -------------------------------------------------------------------------------------


@pytest.fixture(params=BACKENDS)
def ending(request: pytest.FixtureRequest, make_harness: Callable[..., nr.Harness]) -> Talk:
    """A session whose turn stands still, in a harness that will be closed."""
    talk = Talk(make_harness(Talker(), placement=request.param), "ending")
    talk.hold()
    return talk


def test_closing_the_harness_ends_turns_waiters_and_streams(ending: Talk) -> None:
    session = ending.session
    with ThreadPoolExecutor(4) as pool:
        running = session._line.newest()
        events, text = session.events(), session.text_stream()
        reading = pool.submit(lambda: [event.type for event in events])
        session.send("never")
        waiting = pool.submit(session.response, BOUND)
        wait_until(lambda: waiting.running())
        ending.harness.close()
        assert reading.result(BOUND)[-1] == "run.ended"
        with pytest.raises(nr.ConfigError, match="HARNESS_CLOSED"):
            waiting.result(BOUND)
    assert isinstance(running.result(BOUND).error, nr.Cancelled)
    assert list(text) == []
    assert (session.status, session.queue_size) == ("idle", 0)


def test_after_the_end_what_was_said_is_there_and_nothing_else(ending: Talk) -> None:
    session = ending.session
    ending.harness.close()
    assert ending.texts() == ["u:hold"]
    assert isinstance(session.response(BOUND).error, nr.Cancelled)
    assert session.abort() == nr.AbortReport()
    for refused in (
        lambda: session.send("x"),
        lambda: session.seed("x"),
        lambda: ending.harness.session("ending"),
    ):
        with pytest.raises(nr.ConfigError, match="HARNESS_CLOSED"):
            refused()
    assert list(session.item_stream()) == session.history
    assert not _tasks_of(ending)


def _tasks_of(talk: Talk) -> set[asyncio.Task[Any]]:
    return talk.session._line._tasks


def test_a_session_cannot_be_used_up_by_its_own_loop(place: nr.Harness, talk: Talk) -> None:
    async def blocks() -> None:
        with pytest.raises(nr.ConfigError, match="BLOCKING_CALL_ON_LOOP"):
            talk.session.seed("x")
        pieces, others = talk.session.text_stream(), talk.session.atext_stream()
        with pytest.raises(nr.ConfigError, match="BLOCKING_CALL_ON_LOOP"):
            next(pieces)
        talk.session.send("a")
        with pytest.raises(nr.ConfigError, match="BLOCKING_CALL_ON_LOOP"):
            talk.session.response(BOUND)
        assert (await talk.session.aresponse(BOUND)).text == "echo 1: a"
        assert await anext(others) == "echo "

    assert place._backend is not None
    place._backend.thread.call(blocks(), BOUND)


def test_threads_may_send_at_the_same_time(talk: Talk) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda n: talk.session.send(str(n)), range(40)))
    talk.session.response(BOUND)
    wait_until(lambda: talk.session.status == "idle", BOUND)
    users = [item.id for item in talk.session.history[::2]]
    assert sorted(users) == sorted(sent)
    assert texts(talk.session.history)[-1].startswith("a:echo 40:")
