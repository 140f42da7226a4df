"""What an assistant's model is asked: the input, and what the hook `create` makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import noetic_ray as nr
from tests.conftest import BACKENDS, unique


def answer(request: Any) -> Any:
    """Call `work` once when asked to; else say what was asked, in JSON."""
    done = any(item.type == "function_call_output" for item in request.items)
    if request.model == "works" and not done:
        return nr.testing.reply(calls=[nr.testing.call("work")])
    said = {
        "items": [shown(item) for item in request.items],
        "settings": dict(request.settings),
        "instructions": request.instructions,
    }
    return nr.testing.reply(json.dumps(said))


def shown(item: Any) -> str:
    role = getattr(item, "role", item.type)
    return f"{role}: {item.content[0].text}" if item.type == "message" else role


@nr.tool
def work() -> str:
    """Do it."""
    return "worked"


@pytest.fixture(scope="module", params=BACKENDS)
def desk(request: pytest.FixtureRequest) -> Iterator[nr.Harness]:
    """A harness whose model says what it was asked, on each backend in turn."""
    if request.param != "inline":
        request.getfixturevalue("ray_cluster")
    model = nr.testing.ScriptedModel(answer)
    with nr.Harness(unique("desk"), model, tools=[work], placement=request.param) as made:
        yield made


@pytest.fixture(scope="module")
def inline() -> Iterator[nr.Harness]:
    """The same in this process, for what does not depend on where it runs."""
    model = nr.testing.ScriptedModel(answer)
    with nr.Harness(unique("desk"), model, tools=[work], placement="inline") as made:
        yield made


def asked(reply: nr.AssistantReply) -> list[str]:
    items: list[str] = json.loads(reply.text)["items"]
    return items


def logged(run: nr.Run[Any]) -> list[str]:
    """The log without the model's answers."""
    return [shown(item) for item in run.items() if getattr(item, "role", item.type) != "assistant"]


def creating(returned: Any, model: str = "says", **options: Any) -> Any:
    """An assistant whose create hook returns this, or what a function makes of the messages."""

    def create(ctx: nr.Context, messages: Sequence[nr.Item]) -> Any:
        return returned(messages) if callable(returned) else returned

    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        told = ctx.request
        return {
            "data": {
                "messages": [shown(item) for item in messages],
                "request": [told.connector, told.locale, told.theme, told.route],
                "metadata": dict(told.metadata),
            }
        }

    return nr.assistant("a", model, create=create, next=next, **options)


# -- the input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hi", ["user: hi"]),
        (None, []),
        ("", []),
        ([], []),
        (nr.developer_message("act"), ["developer: act"]),
        ({"role": "user", "content": "hi"}, ["user: hi"]),
        ({"type": "message", "role": "system", "content": "rules"}, ["system: rules"]),
        (
            [{"role": "user", "content": "a"}, nr.assistant_message("b"), "c"],
            ["user: a", "assistant: b", "user: c"],
        ),
        ({"role": "user", "content": [{"type": "text", "text": "part"}]}, ["user: part"]),
        ({"role": "assistant", "content": [{"type": "text", "text": "p"}]}, ["assistant: p"]),
        ({"role": "user", "content": [{"type": "input_text", "text": "p"}]}, ["user: p"]),
    ],
)
def test_the_input_is_logged_and_asked(inline: nr.Harness, given: Any, expected: Any) -> None:
    reply = inline.run(nr.assistant("a", "says"), given)
    assert asked(reply) == expected
    assert [shown(item) for item in reply.items[:-1]] == expected


def test_an_image_part_of_a_chat_message_becomes_one_of_ours(inline: nr.Harness) -> None:
    parts = [
        {"type": "text", "text": "what is it"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    ]
    reply = inline.run(nr.assistant("a", "says"), {"role": "user", "content": parts})
    item = reply.items[0]
    assert isinstance(item, nr.MessageItem)
    assert [part.type for part in item.content] == ["input_text", "input_image"]


@pytest.mark.parametrize("given", [3, [3], b"bytes", object])
def test_an_input_of_another_type_is_a_config_error(inline: nr.Harness, given: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        inline.run(nr.assistant("a", "says"), given)
    assert caught.value.code == "INVALID_INPUT"


def test_a_dict_that_is_no_message_is_a_schema_mismatch(inline: nr.Harness) -> None:
    with pytest.raises(nr.ItemSchemaMismatch):
        inline.run(nr.assistant("a", "says"), {"role": "nobody", "content": "hi"})


def test_a_reply_that_was_just_said_is_not_asked_again(inline: nr.Harness) -> None:
    both = nr.sequence("both", [nr.assistant("a", "says"), nr.assistant("b", "says")])
    reply = inline.run(both, "hi")
    assert [line[:9] for line in asked(reply)] == ["user: hi", "assistant"]


# -- messages of create ----------------------------------------------------------------------------


def test_create_is_given_the_log_with_the_input_at_its_end(desk: nr.Harness) -> None:
    seen: Any = creating(lambda messages: {"metadata": {"seen": [shown(m) for m in messages]}})
    run = desk.start(seen, "now", items=[nr.user_message("a"), nr.assistant_message("b")])
    data = run.result().next
    assert data["metadata"] == {"seen": ["user: a", "assistant: b", "user: now"]}


@pytest.mark.parametrize(
    "returned", [None, {}, {"messages": None}, {"messages": []}, {"messages": ""}]
)
def test_nothing_returned_changes_nothing(inline: nr.Harness, returned: Any) -> None:
    run = inline.start(creating(returned), "hi")
    reply = run.result()
    assert asked(reply) == reply.next["messages"] == logged(run) == ["user: hi"]
    assert json.loads(reply.text)["settings"] == {}


def test_messages_behind_the_log_are_added_to_it(desk: nr.Harness) -> None:
    step = creating(lambda messages: {"messages": [*messages, nr.system_message("be brief")]})
    run = desk.start(step, "hi")
    reply = run.result()
    assert asked(reply) == logged(run) == ["user: hi", "system: be brief"]
    assert reply.next["messages"] == ["user: hi", "system: be brief"]


def test_the_log_is_known_again_when_it_comes_back_as_dicts(inline: nr.Harness) -> None:
    def as_dicts(messages: Any) -> Any:
        said = [{"role": m.role, "content": m.content[0].text} for m in messages]
        return {"messages": [*said, {"role": "user", "content": "and more"}]}

    run = inline.start(creating(as_dicts), "hi", items=[nr.assistant_message("hello")])
    reply = run.result()
    assert asked(reply) == ["assistant: hello", "user: hi", "user: and more"]
    assert logged(run) == ["user: hi", "user: and more"]


def test_other_messages_are_shown_in_place_of_the_log_which_stays(desk: nr.Harness) -> None:
    replaced = {"messages": [{"role": "system", "content": "rules"}, "something else"]}
    run = desk.start(creating(replaced), "hi")
    reply = run.result()
    assert asked(reply) == reply.next["messages"] == ["system: rules", "user: something else"]
    assert logged(run) == ["user: hi"]
    assert shown(reply.items[0]) == "user: hi"


def test_a_text_stands_for_one_user_message(inline: nr.Harness) -> None:
    assert asked(inline.run(creating({"messages": "just this"}), "hi")) == ["user: just this"]


def test_an_edited_item_of_the_log_is_shown_and_changes_nothing_there(inline: nr.Harness) -> None:
    def censor(messages: Any) -> Any:
        hidden = nr.user_message("[hidden]").model_copy(update={"id": messages[0].id})
        return {"messages": [hidden]}

    run = inline.start(creating(censor), "a secret")
    assert asked(run.result()) == ["user: [hidden]"]
    assert logged(run) == ["user: a secret"]


def test_what_the_step_adds_follows_the_messages_shown(desk: nr.Harness) -> None:
    run = desk.start(creating({"messages": ["instead"]}, "works"), "hi")
    reply = run.result()
    assert asked(reply) == ["user: instead", "function_call", "function_call_output"]
    assert logged(run) == ["user: hi", "function_call", "function_call_output"]


def test_the_next_call_is_asked_with_the_log_again(inline: nr.Harness) -> None:
    both = nr.sequence("both", [creating({"messages": ["instead"]}), nr.assistant("b", "says")])
    lines = asked(inline.run(both, "hi"))
    assert lines[0] == "user: hi"
    assert not any("instead" in line for line in lines if line.startswith("user"))


@pytest.mark.parametrize(
    "options",
    [
        {"overflow": "truncate"},
        {"overflow": "summarize"},
        {"overflow": "sliding_window", "size": 8},
    ],
)
def test_a_window_counts_what_is_shown(inline: nr.Harness, options: Any) -> None:
    history = [nr.assistant_message(f"{n} " + "long " * 50) for n in range(20)]
    window = nr.Window(token_budget=400, response_reserve=100, **options)
    step = creating(lambda messages: {"messages": [*history, "last"]}, window=window)
    run = inline.start(step, "hi", items=[nr.user_message("logged")])
    lines = asked(run.result())
    assert lines[-1] == "user: last"
    assert 1 < len(lines) < 10
    assert lines[-2].startswith("assistant: 19 ")
    assert run.window() is not None


def test_layers_show_themselves_beside_the_messages(inline: nr.Harness) -> None:
    class Note(nr.ContextLayer):  # type: ignore[type-arg]
        id = "note"
        slot = 100

        async def recall(self, params: Any) -> str:
            return "noted"

    step = creating({"messages": ["instead"]})
    lines = asked(inline.run(step, "hi", layers=[Note()]))
    assert sorted(lines) == ["developer: noted", "user: instead"]


# -- settings and request --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "returned", "expected"),
    [
        ({"temperature": 1, "seed": 3}, {"temperature": 0.5}, {"temperature": 0.5, "seed": 3}),
        ({"max_tokens": 9}, {"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_output_tokens": 9}, {"max_tokens": 5}, {"max_tokens": 5}),
        (
            {"max_output_tokens": 9},
            {"max_tokens": 5, "max_completion_tokens": 7},
            {"max_completion_tokens": 7},
        ),
        ({"max_tokens": 9}, {"temperature": None, "max_tokens": None}, {"max_tokens": 9}),
    ],
)
def test_create_overrides_settings_for_this_call(
    inline: nr.Harness, own: Any, returned: Any, expected: Any
) -> None:
    step = creating(returned, settings=own)
    for _ in range(2):
        assert json.loads(inline.run(step, "hi").text)["settings"] == expected
    assert step.call.settings == own


def test_create_changes_the_request_for_what_follows(desk: nr.Harness) -> None:
    given = {
        "connector": "gpt", "locale": "zh-CN", "theme": "DARK", "route": "/x",
        "metadata": {"adjusted": True, "both": "hook"},
    }  # fmt: skip
    step = creating(given)
    request = {"connector": "old", "metadata": {"both": "client", "kept": 1}}

    @nr.step
    async def talk(value: str, ctx: nr.Context) -> Any:
        reply = await ctx.run(step, value)
        here = ctx.request
        child = await ctx.spawn(nr.run_code("child", lambda _, ctx: dict(ctx.request)))
        return reply.next, dict(here), child

    data, here, child = desk.run(talk, "hi", request=request)
    assert data["request"] == ["gpt", "zh-cn", "dark", "/x"]
    assert data["metadata"] == {"adjusted": True, "both": "hook", "kept": 1}
    assert here == child
    assert (child["connector"], child["metadata"]) == ("gpt", data["metadata"])


def test_the_instructions_see_the_request_as_create_left_it(inline: nr.Harness) -> None:
    def instructions(ctx: nr.Context) -> str:
        return f"speak {ctx.request.locale}"

    def create(ctx: nr.Context, messages: Any) -> Any:
        return {"locale": "de"}

    step = nr.assistant("a", "says", instructions, create=create)
    reply = inline.run(step, "hi", request={"locale": "en"})
    assert json.loads(reply.text)["instructions"] == "speak de"


def test_empty_texts_override_nothing(inline: nr.Harness) -> None:
    empty = {"connector": "", "locale": "", "theme": "", "route": "", "metadata": {}}
    request = {"connector": "c", "locale": "en", "theme": "dark", "route": "/r"}
    data = inline.run(creating(empty), "hi", request=request).next
    assert data["request"] == ["c", "en", "dark", "/r"]


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        ["messages"],
        {"messages": 3},
        {"messages": [3]},
        {"messages": [{"role": "nobody", "content": "hi"}]},
        {"temperature": "0.5"},
        {"temperature": ""},
        {"temperature": True},
        {"temperature": -1},
        {"temperature": float("nan")},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"max_completion_tokens": "5"},
        {"connector": 3},
        {"locale": ["en"]},
        {"theme": b"dark"},
        {"route": 0},
        {"metadata": ["x"]},
        {"metadata": {1: "x"}},
    ],
)
def test_a_wrong_type_is_a_config_error_and_nothing_is_applied(
    inline: nr.Harness, wrong: Any
) -> None:
    returned = (
        {"connector": "changed", "messages": ["changed"], **wrong} if type(wrong) is dict else wrong
    )
    step = creating(returned)

    @nr.step
    async def talk(value: str, ctx: nr.Context) -> Any:
        try:
            await ctx.run(step, value)
        except nr.ConfigError as error:
            return error.code, ctx.request.connector, len(ctx.item_log)
        return "no error"

    assert inline.run(talk, "hi", request={"connector": "c"}) == ("INVALID_HOOK_RESULT", "c", 1)


def test_unknown_keys_of_create_are_told(inline: nr.Harness) -> None:
    run = inline.start(creating({"voice": "x", "audio": {}}), "hi")
    run.result()
    said = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert [(each["layer"], each["hook"]) for each in said] == [("a", "create")]
    assert said[0]["message"].endswith("audio, voice")


@pytest.mark.parametrize(("given", "expected"), [("", "a"), ("asked-for", "asked-for")])
def test_the_assistant_is_named_in_the_request_unless_another_was_asked_for(
    desk: nr.Harness, given: str, expected: str
) -> None:
    def next(ctx: nr.Context, messages: Any, completion: Any, tools: Any) -> Any:
        return {"data": ctx.request.assistant_id}

    step = nr.assistant("a", "says", next=next)
    assert desk.run(step, "hi", request={"assistant_id": given}).next == expected


def test_a_request_that_nobody_changed_is_there_too(inline: nr.Harness) -> None:
    data = inline.run(creating(None), "hi").next
    assert data["request"] == ["", "", "", ""]
    assert data["metadata"] == {}
