"""A conversation with a model: what it is sent, what is logged, what it used."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import pytest

import noetic_ray as nr

Talk = nr.Harness


def _types(run: nr.Run[Any]) -> list[str]:
    return [item.type for item in run.items()]


def _roles(run: nr.Run[Any]) -> list[tuple[str, str]]:
    return [(item.role, item.content[0].text) for item in run.items()]  # type: ignore[union-attr]


def _ask(model: str, **more: Any) -> Any:
    return nr.call_model("ask", model, **more)


def test_the_output_is_the_text_and_both_sides_are_logged(talk: Talk) -> None:
    run = talk.start(_ask("hello"), "hi")
    assert run.result() == "hello"
    assert _roles(run) == [("user", "hi"), ("assistant", "hello")]
    assert run.response().text == "hello"


def test_the_text_is_that_of_the_last_message(talk: Talk) -> None:
    run = talk.start(_ask("three_messages"), "hi")
    assert run.result() == "two"
    assert _types(run) == ["message", "reasoning", "message", "message"]


# -- what is sent --------------------------------------------------------------------------------


@nr.tool
async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


def test_instructions_settings_and_items_reach_the_model(talk: Talk) -> None:
    step = _ask("request_as_text", instructions="be brief", settings={"temperature": 0.5})
    sent = literal_eval(talk.run(step, "hi", items=[nr.developer_message("earlier")]))
    said = [("developer", "earlier"), ("user", "hi")]
    assert sent == ("be brief", said, [], {"temperature": 0.5})


def test_instructions_may_be_made_from_the_context(talk: Talk) -> None:
    def instructions(ctx: nr.Context) -> str:
        return f"thread {ctx.thread_id}, depth {ctx.depth}"

    step = nr.spawn("s", _ask("request_as_text", instructions=instructions))
    assert literal_eval(talk.run(step, "hi", thread_id="t-7"))[0] == "thread t-7, depth 1"


def test_instructions_that_raise_fail_the_step(talk: Talk) -> None:
    def instructions(ctx: nr.Context) -> str:
        raise LookupError("no instructions today")

    with pytest.raises(nr.StepFailed) as caught:
        talk.run(_ask("hello", instructions=instructions), "hi")
    assert caught.value.cause.type == "LookupError"


@pytest.mark.parametrize("given", ["", None, 5, {"a": 1}, ["x"]])
def test_only_a_text_is_logged_as_the_user_s(talk: Talk, given: Any) -> None:
    run = talk.start(_ask("hello"), given)
    assert run.result() == "hello"
    assert _roles(run) == [("assistant", "hello")]


def test_what_the_model_just_said_is_not_logged_as_the_user_s(talk: Talk) -> None:
    run = talk.start(nr.loop("l", _ask("repeats"), nr.until.max_steps(3)), "start")
    assert run.result() == "same"
    assert _roles(run) == [("user", "start")] + [("assistant", "same")] * 3


def test_nor_when_something_else_was_logged_since(talk: Talk) -> None:
    box = nr.channel("talk-inbox", str, mode="queue", external=True)
    talk.channel(box).send("be quick")
    run = talk.start(nr.loop("l", _ask("repeats"), nr.until.max_steps(1), inbox=box), "start")
    assert run.result() == "same"
    assert _roles(run) == [
        ("user", "start"),
        ("assistant", "same"),
        ("developer", "be quick"),
        ("assistant", "same"),
    ]


def test_another_text_is_logged_as_the_user_s(talk: Talk) -> None:
    step = nr.sequence(
        "s", [_ask("repeats"), nr.run_code("more", lambda text: text + "!"), _ask("hello")]
    )
    run = talk.start(step, "start")
    run.result()
    assert [role for role, _ in _roles(run)] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize(
    ("tools", "offered"), [(None, ["own", "extra"]), ([], []), (["extra"], ["extra"])]
)
def test_no_list_of_tools_means_all_of_them(make_harness: Any, tools: Any, offered: Any) -> None:
    @nr.tool
    async def own() -> None: ...

    @nr.tool
    async def extra() -> None: ...

    names = {"own": own, "extra": extra}
    model = nr.testing.ScriptedModel(lambda request: ",".join(t.name for t in request.tools) or "-")
    harness = make_harness(model, placement="inline", tools=[own, extra])
    given = None if tools is None else [names[name] for name in tools]
    expected = ",".join(offered) or "-"
    assert harness.run(nr.call_model("m", "any", tools=given), "hi") == expected


# -- usage ---------------------------------------------------------------------------------------


@nr.step
async def usage_after(step: nr.Step[Any, Any], ctx: nr.Context) -> dict[str, Any]:
    try:
        await ctx.run(step, "hi")
    except nr.NoeticError:
        ctx.state["failed"] = True
    return {"tokens": ctx.tokens, "cost": ctx.cost, "meta": ctx.last_step_meta}


def _reporting(*usages: dict[str, Any]) -> Any:
    return _ask("usage_of_setting", settings={"usage": list(usages)})


@pytest.mark.parametrize("cached", [None, 0, 7])
def test_cached_tokens_that_were_not_reported_are_not_zero(talk: Talk, cached: Any) -> None:
    step = _reporting({"input_tokens": 10, "output_tokens": 5, "cached_tokens": cached})
    run = talk.start(usage_after, step)
    found = run.result()
    expected = nr.TokenUsage(10, 5, 15, cached)
    assert found["tokens"] == run.usage == run.tree().tokens == expected
    assert found["meta"].usage == nr.RoundUsage(10, 5, cached, None)


def test_cache_writes_are_kept_per_round_only(talk: Talk) -> None:
    step = _reporting({"input_tokens": 1, "cache_write_tokens": 9000, "cached_tokens": 0})
    found = talk.run(usage_after, step)
    assert found["meta"].usage.cache_write_tokens == 9000
    assert found["tokens"] == nr.TokenUsage(1, 0, 1, 0)


def test_figures_of_several_calls_add_up_as_far_as_they_were_reported(talk: Talk) -> None:
    step = _reporting(
        {"input_tokens": 10, "output_tokens": 5},
        {},
        {"input_tokens": 1, "output_tokens": 1, "cached_tokens": 4},
    )
    run = talk.start(nr.loop("l", step, nr.until.max_steps(3)), "hi")
    run.result()
    assert run.usage == nr.TokenUsage(11, 6, 17, 4, unreported=1)
    assert run.tree().tokens == run.usage


def test_a_call_without_figures_counts_as_unreported(talk: Talk) -> None:
    found = talk.run(usage_after, _reporting({}))
    assert found["tokens"] == nr.TokenUsage(0, 0, 0, None, unreported=1)
    assert found["meta"].usage is None
    assert found["meta"].cost is None


def test_cost_adds_up(talk: Talk) -> None:
    run = talk.start(nr.loop("l", _ask("hello"), nr.until.max_cost(0.7)), "hi")
    run.result()
    assert run.cost == pytest.approx(0.75)
    assert run.response().cost == pytest.approx(0.75)


@pytest.mark.parametrize("model", ["refuses", "asks_for_ever"])
def test_what_a_failed_step_used_is_kept(talk: Talk, model: str) -> None:
    found = talk.run(usage_after, _ask(model, tools=[note], max_rounds=2))
    assert found["tokens"].input == (3 if model == "refuses" else 2)
    assert len(found["meta"].rounds) == (1 if model == "refuses" else 2)


@nr.step
async def metas(_: Any, ctx: nr.Context) -> list[Any]:
    found: list[Any] = [ctx.last_step_meta]
    await ctx.run(_ask("tools_in_turn", tools=[note]), "go")
    found.append(ctx.last_step_meta)
    await ctx.run(nr.run_code("other", lambda _: None))
    await ctx.spawn(_ask("hello"), "hi")
    found.append(ctx.last_step_meta)
    return found


def test_the_last_step_s_figures_cover_all_its_rounds(talk: Talk) -> None:
    before, meta, later = talk.run(metas)
    assert before is None
    assert meta == later  # neither other steps nor children change it
    assert [call.name for call in meta.tool_calls] == ["note"] * 4
    assert meta.usage == nr.RoundUsage(50, 6)
    assert meta.cost == pytest.approx(2.5)
    assert len(meta.rounds) == 5
    assert meta.rounds[-1].tool_calls == ()
    assert len(meta.response_items) == 5


# -- events --------------------------------------------------------------------------------------


def _kinds(run: nr.Run[Any]) -> list[str]:
    prefixes = ("model.", "tool.", "step.")
    return [event.type for event in run.events() if event.type.startswith(prefixes)]


def test_a_step_s_events(talk: Talk) -> None:
    run = talk.start(_ask("tools_in_turn", tools=[note]), "go")
    run.result()
    assert _kinds(run) == [
        "step.started",
        *["model.started", "model.completed", "tool.started", "tool.completed"] * 4,
        "model.started",
        "model.completed",
        "step.completed",
    ]
    completed = [event.data for event in run.events() if event.type == "model.completed"]
    assert completed[0]["model"] == "tools_in_turn"
    assert completed[0]["usage"]["input_tokens"] == 10
    assert completed[0]["warnings"] == []


def test_a_silent_step_has_no_events_of_its_own(talk: Talk) -> None:
    run = talk.start(_ask("tools_in_turn", tools=[note], emit=False), "go")
    assert run.result() == "noted 0,noted 1,noted 2,noted 3"
    assert _kinds(run) == []
    types = {event.type for event in run.events(deltas=True)}
    assert {"run.started", "context.started", "item.appended", "usage.updated"} <= types
    assert "model.delta" not in types
    assert run.usage.input == 50


def test_a_silent_step_fails_silently(talk: Talk) -> None:
    run = talk.start(_ask("refuses", emit=False), "go")
    with pytest.raises(nr.ModelRefused):
        run.result()
    assert _kinds(run) == []


# -- items of a provider -------------------------------------------------------------------------


def test_item_ids_a_provider_repeats_are_replaced(talk: Talk) -> None:
    run = talk.start(nr.loop("l", _ask("fixed_item_ids"), nr.until.max_steps(3)), "hi")
    run.result()
    answers = run.items()[1:]
    assert len({item.id for item in answers}) == 3
    assert answers[0].id == "msg_1"
    assert [item.provider_id for item in answers] == [None, "msg_1", "msg_1"]


def test_a_loop_ends_when_the_last_round_called_no_tool(talk: Talk) -> None:
    ask = _ask("tools_in_turn", tools=[note])
    run = talk.start(nr.loop("l", ask, nr.until.no_tool_calls()), "go")
    assert run.result() == "noted 0,noted 1,noted 2,noted 3"
    assert run.usage.input == 50


# -- no model ------------------------------------------------------------------------------------


def test_without_a_model_provider_a_model_step_is_refused(backend: str, make_harness: Any) -> None:
    harness = make_harness(placement=backend)
    for step in (_ask("hello"), nr.spawn("s", _ask("hello"))):
        with pytest.raises(nr.ConfigError) as caught:
            harness.run(step, "hi")
        assert caught.value.code == "NO_MODEL_PROVIDER"
        assert caught.value.hint


@pytest.mark.parametrize("model", ["", "  ", None])
def test_a_missing_model_is_refused_where_it_is_written(model: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.call_model("m", model)
    assert caught.value.code == "MISSING_MODEL"
