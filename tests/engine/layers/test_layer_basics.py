"""What a layer shows, keeps and offers in one context."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

import noetic_ray as nr

ask = nr.call_model("ask", model="m", instructions="be brief")


class Note(nr.ContextLayer):
    id = "note"
    placement = "anchor"

    async def init(self, params: Any) -> Any:
        return {"text": "remember the milk"}

    async def recall(self, params: Any) -> str:
        return str(params.state["text"])


class Add(BaseModel):
    n: int


async def add(args: Add, state: Any, ctx: nr.Context) -> nr.Provided:
    """Add to the count."""
    return nr.Provided(state + args.n, state + args.n)


class Counter(nr.ContextLayer):
    id = "counter"
    provides = {
        "count": nr.layer_data(lambda state: state),
        "add": nr.layer_function(add),
    }

    async def init(self, params: Any) -> int:
        return 0


def test_a_layer_shows_its_text_before_the_history(telling: nr.Harness) -> None:
    said = json.loads(telling.run(ask, "hello", layers=[Note()]))
    assert said["items"] == [["developer", "remember the milk"], ["user", "hello"]]


@nr.step
async def counts(_: Any, ctx: nr.Context) -> list[Any]:
    counter = ctx.context["counter"]
    before = counter.count
    result = await counter.add(n=3)
    return [before, result, counter.count]


def test_data_is_read_live_and_functions_change_the_state(telling: nr.Harness) -> None:
    assert telling.run(counts, layers=[Counter()]) == [0, 3, 3]


def test_functions_are_offered_as_tools(telling: nr.Harness) -> None:
    said = json.loads(telling.run(ask, "hello", layers=[Counter()]))
    assert said["tools"] == ["counter_add"]


def test_the_last_window_is_accounted_for(telling: nr.Harness) -> None:
    run = telling.start(ask, "hello", layers=[Note()])
    run.result()
    usage = run.response().last_layer_usage
    assert usage is not None
    (entry,) = usage.layers
    assert (entry.layer_id, entry.placement, entry.served) == ("note", "anchor", "fresh")
    assert usage.epoch is not None
    assert usage.epoch.reanchor_reason == "cold-start"
    assert usage.epoch.id.endswith("#0")


def test_without_layers_there_is_nothing_in_context(telling: nr.Harness) -> None:
    @nr.step
    async def lists(_: Any, ctx: nr.Context) -> list[str]:
        return list(ctx.context)

    assert telling.run(lists) == []


def test_an_unknown_layer_is_named(telling: nr.Harness) -> None:
    @nr.step
    async def looks(_: Any, ctx: nr.Context) -> None:
        ctx.context["nope"]

    with pytest.raises(nr.StepFailed, match="no layer 'nope'"):
        telling.run(looks)


async def anything(args, state, ctx):  # type: ignore[no-untyped-def]
    """Give back what it was given."""
    return args


class Loose(nr.ContextLayer):
    """Its function takes whatever it is given."""

    id = "loose"
    provides = {
        "echo": nr.layer_function(anything),
        "add": nr.layer_function(add),
        "state": nr.layer_data(lambda state: state),
    }

    async def init(self, params: Any) -> int:
        return 0


def test_a_function_without_types_takes_what_it_is_given(telling: nr.Harness) -> None:
    @nr.step
    async def calls(_: Any, ctx: nr.Context) -> Any:
        echo = ctx.context["loose"].echo
        return [await echo(), await echo(a=1), await echo("x")]

    assert telling.run(calls, layers=[Loose()]) == [{}, {"a": 1}, "x"]


def test_plain_functions_call_and_are_told_of_wrong_calls(telling: nr.Harness) -> None:
    @nr.step
    def calls(_: Any, ctx: nr.Context) -> Any:
        loose = ctx.sync.context["loose"]
        with pytest.raises(ValueError, match="not called"):
            loose.add(m=1)
        return [loose.add(n=2), loose.state, ctx.context["loose"].state]

    assert telling.run(calls, layers=[Loose()]) == [2, 2, 2]


def test_arguments_are_checked_when_the_function_is_called(telling: nr.Harness) -> None:
    @nr.step
    async def calls(_: Any, ctx: nr.Context) -> str:
        try:
            ctx.context["loose"].add(n="many")
        except ValueError as error:
            return str(error)
        return "not checked"

    assert "n: Input should be a valid integer" in telling.run(calls, layers=[Loose()])


def test_threads_see_which_layers_there_are(telling: nr.Harness) -> None:
    @nr.step
    def looks(_: Any, ctx: nr.Context) -> Any:
        layers = ctx.sync.context
        return [list(layers), len(layers), "loose" in layers, "other" in layers]

    assert telling.run(looks, layers=[Loose()]) == [["loose"], 1, True, False]


@pytest.mark.parametrize("name", ["thread_id", "resource_id"])
@pytest.mark.parametrize("wrong", ["", "\ud800", 7])
def test_a_name_nobody_could_write_down_is_refused(
    telling: nr.Harness, name: str, wrong: Any
) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        telling.start(ask, "x", **{name: wrong})
    assert caught.value.code == f"INVALID_{name.upper()}"
