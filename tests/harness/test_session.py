"""Turns of a session: their order, what they leave, what goes wrong in them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique
from tests.support.sessions import BOUND, Talk, Talker, agent, hold, texts
from tests.support.wait import wait_until

NewTalk = Callable[..., Talk]


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


@pytest.fixture
def another(place: nr.Harness) -> NewTalk:
    """Makes more sessions."""
    return lambda step=agent: Talk(place, uuid.uuid4().hex, step)


# -- turns in order ------------------------------------------------------------------------------


def test_an_answer_comes_with_its_items_and_its_usage(talk: Talk) -> None:
    response = talk.say("hi")
    assert (response.text, response.output, response.error) == ("echo 1: hi", "echo 1: hi", None)
    assert texts(response.items) == ["u:hi", "a:echo 1: hi"]
    assert response.usage.total == 5
    assert talk.session.status == "idle"


def test_each_message_has_a_turn_of_its_own_in_order(talk: Talk) -> None:
    talk.hold("hold a")
    talk.session.send("b")
    talk.session.send("c")
    assert (talk.session.queue_size, talk.session.status) == (2, "generating")
    talk.go()
    assert talk.session.response(BOUND).text == "echo 3: c"
    assert talk.texts() == [
        "u:hold a", "a:echo 1: hold a", "u:b", "a:echo 2: b", "u:c", "a:echo 3: c",
    ]  # fmt: skip
    assert (talk.session.queue_size, talk.session.status) == (0, "idle")


def test_a_response_is_that_of_the_newest_message(talk: Talk) -> None:
    talk.session.send("a")
    talk.session.send("b")
    assert talk.session.response(BOUND).text == "echo 2: b"
    assert talk.session.response(BOUND).text == "echo 2: b"


def test_waiting_for_a_response_may_run_out_and_changes_nothing(talk: Talk) -> None:
    talk.hold()
    with pytest.raises(TimeoutError):
        talk.session.response(0.01)
    talk.go()
    assert talk.session.response(BOUND).text == "echo 1: hold"


def test_before_the_first_turn_there_is_no_response(talk: Talk) -> None:
    with pytest.raises(nr.ConfigError, match="NO_TURN"):
        talk.session.response(BOUND)
    assert (talk.session.history, talk.session.usage) == ([], nr.TokenUsage())


def test_tool_calls_and_their_outputs_are_part_of_the_history(talk: Talk) -> None:
    talk.hold()
    wait_until(lambda: len(talk.session.history) == 2)
    assert talk.session.history[-1].type == "function_call"
    talk.go()
    talk.session.response(BOUND)
    kinds = [item.type for item in talk.session.history]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    talk.say("next")
    assert len({item.id for item in talk.session.history}) == len(talk.session.history) == 6


# -- messages ------------------------------------------------------------------------------------


def test_a_message_id_names_the_users_item_and_stands_in_the_turns_first_event(talk: Talk) -> None:
    with talk.session.events() as events:
        assert talk.session.send("hi", message_id="custom") == "custom"
        started = next(events)
    assert (started.type, started.data["message_ids"]) == ("run.started", ["custom"])
    assert started.data["thread_id"] == talk.session.thread_id
    talk.session.response(BOUND)
    assert talk.session.history[0].id == "custom"


def test_an_id_is_used_once(talk: Talk) -> None:
    talk.hold(message_id="one")
    talk.session.send("b", message_id="two")
    answer = nr.user_message("again")
    for id in ("one", "two"):
        with pytest.raises(nr.ConfigError, match="DUPLICATE_MESSAGE_ID"):
            talk.session.send("c", message_id=id)
        with pytest.raises(nr.ConfigError, match="DUPLICATE_MESSAGE_ID"):
            talk.session.send(answer.model_copy(update={"id": id}))
    assert talk.session.queue_size == 1
    talk.go()
    talk.session.response(BOUND)
    with pytest.raises(nr.ConfigError, match="DUPLICATE_MESSAGE_ID"):
        talk.session.send("c", message_id=talk.session.history[-1].id)


def test_items_dicts_and_lists_may_be_sent(talk: Talk) -> None:
    item = nr.user_message("item")
    assert talk.session.send(item) == item.id
    raw = {"type": "message", "role": "user", "id": "raw", "content": "dict"}
    assert talk.session.send(raw) == "raw"
    assert (
        talk.session.send([nr.developer_message("be brief"), "list"], message_id="list") == "list"
    )
    assert talk.session.response(BOUND).text == "echo 3: list"
    users = [each for each in talk.texts() if each[0] != "a"]
    assert users == ["u:item", "u:dict", "d:be brief", "u:list"]
    assert talk.say(["more", nr.developer_message("be kind")]).text == "echo 4: more"
    assert talk.texts()[-3:] == ["u:more", "d:be kind", "a:echo 4: more"]


@pytest.mark.parametrize("said", ["", [], ["a", ""]])
def test_there_must_be_something_to_send(talk: Talk, said: Any) -> None:
    with pytest.raises(nr.ConfigError, match="EMPTY_MESSAGE"):
        talk.session.send(said)
    assert talk.session.status == "idle"


def test_wrong_calls_are_refused_where_they_are_made(talk: Talk) -> None:
    with pytest.raises(TypeError, match="not int"):
        talk.session.send(3)  # type: ignore[arg-type]
    with pytest.raises(nr.ConfigError, match="UNKNOWN_MODE"):
        talk.session.send("x", mode="later")  # type: ignore[arg-type]
    with pytest.raises(nr.ConfigError, match="INVALID_MESSAGE_ID"):
        talk.session.send("x", message_id="")
    with pytest.raises(nr.ItemSchemaMismatch):
        talk.session.send({"type": "message", "role": "user"})
    output = nr.FunctionCallOutputItem(call_id="c", output="x")
    with pytest.raises(nr.ConfigError, match="NOT_A_MESSAGE"):
        talk.session.send(output, mode="between_rounds")


@nr.step
async def shouts(text: str, ctx: nr.Context) -> str:
    ctx.item_log.append(nr.assistant_message(text.upper()))
    return f"{text}!"


@nr.step
async def repeats(text: str) -> str:
    return text


def test_a_step_gets_the_text_as_its_input(another: NewTalk) -> None:
    response = another(shouts).say("hey")
    assert (response.output, response.text) == ("hey!", "HEY")


@pytest.mark.parametrize(
    "step",
    [
        nr.loop("loop", [agent], until=nr.until.no_tool_calls()),
        nr.sequence("sequence", [repeats, agent]),
        nr.conditional("route", lambda text, ctx: agent if text else None),
    ],
    ids=lambda step: step.id,
)
def test_the_message_is_logged_once_whatever_the_agent_is(another: NewTalk, step: Any) -> None:
    talk = another(step)
    talk.say("a")
    assert talk.say("b").text == "echo 2: b"
    assert talk.texts() == ["u:a", "a:echo 1: a", "u:b", "a:echo 2: b"]


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_failed_turn_keeps_its_message_and_reports_its_own_error(talk: Talk) -> None:
    talk.say("fine")
    failed = talk.say("fail")
    assert isinstance(failed.error, nr.ModelFailed)
    assert (failed.text, failed.output, texts(failed.items)) == ("", None, ["u:fail"])
    assert talk.session.response(BOUND) is failed
    assert talk.session.status == "idle"
    assert talk.texts() == ["u:fine", "a:echo 1: fine", "u:fail"]
    assert talk.say("next").text == "echo 3: next"


def test_a_message_behind_a_failing_turn_is_what_is_waited_for(talk: Talk) -> None:
    talk.session.send("fail")
    talk.session.send("b")
    response = talk.session.response(BOUND)
    assert (response.text, response.error) == ("echo 2: b", None)


def test_a_run_that_cannot_be_started_is_a_failed_turn() -> None:
    taken = nr.Harness(unique("taken"), Talker(), placement="inline")

    async def refuses(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no")

    taken.astart = refuses  # type: ignore[method-assign]
    with taken:
        talk = Talk(taken, "t")
        response = talk.say("a")
        assert isinstance(response.error, nr.NoeticError)
        assert "could not be run" in str(response.error)
        assert talk.texts() == ["u:a"]
        assert talk.session.status == "idle"


# -- usage ---------------------------------------------------------------------------------------


def test_usage_is_the_sum_of_all_turns_failed_ones_too(talk: Talk) -> None:
    talk.hold("hold then")
    talk.session.send("fail", mode="between_rounds")
    talk.go()
    assert isinstance(talk.session.response(BOUND).error, nr.ModelFailed)
    talk.say("a")
    usage = talk.session.usage
    assert (usage.input, usage.output, usage.total) == (4, 2, 6)


def test_cache_figures_are_absent_until_one_is_reported(talk: Talk) -> None:
    talk.say("bare")
    assert (talk.session.usage.cached, talk.session.usage.unreported) == (None, 1)
    talk.say("a")
    assert talk.session.usage.cached is None
    talk.say("uncached")
    assert talk.session.usage.cached == 0
    talk.say("cached")
    assert talk.session.usage.cached == 2


# -- threads -------------------------------------------------------------------------------------


def test_threads_are_apart(another: NewTalk) -> None:
    one, other = another(), another()
    one.session.send("a")
    other.session.send("b")
    assert one.session.response(BOUND).text == "echo 1: a"
    assert other.session.response(BOUND).text == "echo 1: b"
    assert one.texts() == ["u:a", "a:echo 1: a"]


def test_a_thread_has_one_session_and_one_agent(place: nr.Harness, talk: Talk) -> None:
    thread_id = talk.session.thread_id
    assert place.session(thread_id, agent=agent) is talk.session
    assert place.session(thread_id) is talk.session
    other = nr.call_model("other", "talker", tools=[hold])
    with pytest.raises(nr.ConfigError, match="SESSION_CONFLICT"):
        place.session(thread_id, agent=other)
    with pytest.raises(nr.ConfigError, match="NO_AGENT"):
        place.session("unknown")
    with pytest.raises(nr.ConfigError, match="INVALID_THREAD_ID"):
        place.session("", agent=agent)
    with pytest.raises(TypeError, match="a session's agent is a step"):
        place.session("new", agent=print)  # type: ignore[arg-type]


def test_a_session_shows_how_it_stands(talk: Talk) -> None:
    assert repr(talk.session) == f"Session({talk.session.thread_id!r}, agent='chat', idle)"


# -- seeds ---------------------------------------------------------------------------------------


def test_seeds_are_what_the_next_turn_begins_with(talk: Talk) -> None:
    first = nr.user_message("before")
    talk.session.seed([first, nr.assistant_message("so be it")])
    talk.session.seed(first)
    assert talk.session.status == "idle"
    assert talk.say("a").text == "echo 2: a"
    talk.session.seed("between")
    assert talk.say("b").text == "echo 4: b"
    assert talk.texts() == [
        "u:before", "a:so be it", "u:a", "a:echo 2: a", "u:between", "u:b", "a:echo 4: b",
    ]  # fmt: skip
    with pytest.raises(nr.DuplicateItem):
        talk.session.seed(first.model_copy(update={"role": "system"}))


def test_nothing_is_seeded_while_a_turn_runs(talk: Talk) -> None:
    talk.hold()
    with pytest.raises(nr.ConfigError, match="SESSION_BUSY"):
        talk.session.seed("no")
    talk.go()
    talk.session.response(BOUND)
    assert "u:no" not in talk.texts()


# -- twins ---------------------------------------------------------------------------------------


async def test_the_async_twins_do_the_same(place: nr.Harness) -> None:
    session = await place.asession(uuid.uuid4().hex, agent=agent)
    await session.aseed("before")
    session.send("a think")
    response = await session.aresponse(BOUND)
    assert response.text == "echo 2: a think"
    async with session.aitem_stream() as items:
        assert [(await anext(items)).type for _ in range(3)] == ["message", "reasoning", "message"]
    assert (await session.aabort()).reached == 0
    session.send("half")
    with pytest.raises(TimeoutError):
        await session.aresponse(0.05)
    report = await session.aabort("enough")
    assert (report.reached, report.settled) == (1, 1)
    assert str((await session.aresponse(BOUND)).error).endswith("enough")


def test_a_message_is_logged_once_in_paths_of_the_agent_too(another: NewTalk) -> None:
    ask = nr.call_model("ask", "talker")
    both = nr.in_parallel("both", [ask, nr.call_model("again", "talker")])

    async def count(_: Any, ctx: nr.Context) -> list[str]:
        answers: list[str] = await ctx.run(both, "hi")
        return answers

    talk = another(nr.run_code("count", count))
    talk.session.send("hi")
    assert talk.session.response(BOUND).output == ["echo 1: hi", "echo 1: hi"]
