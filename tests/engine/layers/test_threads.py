"""What outlives a run: saved states, storage, and the epochs of a thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import noetic_ray as nr
from tests.conftest import unique

ask = nr.call_model("ask", model="m", instructions="be brief", tools=[])


class Visits(nr.ContextLayer):
    """Counts the model steps of its scope."""

    id = "visits"

    def __init__(self, scope: Any = "thread") -> None:
        self.scope = scope

    async def init(self, params: Any) -> dict[str, int]:
        return {"n": 0}

    async def store(self, params: Any) -> nr.Update:
        return nr.Update({"n": params.state["n"] + 1})

    provides = {"n": nr.layer_data(lambda state: state["n"])}


@nr.step
async def visit(_: Any, ctx: nr.Context) -> int:
    await ctx.run(ask, "hello")
    return int(ctx.context["visits"].n)


def visits(harness: nr.Harness, scope: str, **options: Any) -> int:
    return harness.run(visit, layers=[Visits(scope)], **options)


def test_a_thread_s_state_is_taken_up_again(telling: nr.Harness) -> None:
    thread = unique("thread")
    assert [visits(telling, "thread", thread_id=thread) for _ in range(3)] == [1, 2, 3]
    assert visits(telling, "thread", thread_id=unique("thread")) == 1
    assert visits(telling, "thread") == 1


def test_a_resource_s_state_spans_threads(telling: nr.Harness) -> None:
    user = unique("user")
    for n in (1, 2):
        assert visits(telling, "resource", thread_id=unique("t"), resource_id=user) == n
    assert visits(telling, "resource", resource_id=unique("user")) == 1


def test_global_and_execution_states(make_harness: Any, telling: nr.Harness) -> None:
    thread = unique("thread")
    assert [visits(telling, "execution", thread_id=thread) for _ in range(2)] == [1, 1]
    first = visits(telling, "global")
    assert visits(telling, "global", thread_id=thread) == first + 1


def test_states_outlive_the_harness_in_a_store(
    make_harness: Any, backend: str, tmp_path: Path
) -> None:
    store = tmp_path / "runs.sqlite"
    model = nr.testing.ScriptedModel(lambda request: "ok")
    for n in (1, 2):
        harness = make_harness(model, placement=backend, store=store)
        assert visits(harness, "thread", thread_id="t") == n
        harness.close()


def test_children_do_not_save_over_their_parent(telling: nr.Harness) -> None:
    @nr.step
    async def parent(_: Any, ctx: nr.Context) -> Any:
        own = await ctx.run(visit)
        return [own, await ctx.spawn(visit), await ctx.spawn(visit)]

    thread = unique("thread")
    assert telling.run(parent, layers=[Visits()], thread_id=thread) == [1, 1, 1]
    assert visits(telling, "thread", thread_id=thread) == 2


class Point(BaseModel):
    x: int = 0


class Typed(nr.ContextLayer):
    id = "typed"
    state_type = Point

    async def init(self, params: Any) -> Point:
        return Point()

    async def store(self, params: Any) -> nr.Update:
        return nr.Update(Point(x=params.state.x + 1))

    provides = {"x": nr.layer_data(lambda state: state.x)}


def test_a_state_of_a_type_comes_back_as_that_type(telling: nr.Harness) -> None:
    @nr.step
    async def moves(_: Any, ctx: nr.Context) -> int:
        await ctx.run(ask, "hello")
        return int(ctx.context["typed"].x)

    thread = unique("thread")
    assert [telling.run(moves, layers=[Typed()], thread_id=thread) for _ in range(2)] == [1, 2]


def test_a_state_that_cannot_be_saved_is_said_once(telling: nr.Harness) -> None:
    class Odd(nr.ContextLayer):
        id = "odd"

        async def store(self, params: Any) -> nr.Update:
            return nr.Update({1, 2})

    @nr.step
    async def twice(_: Any, ctx: nr.Context) -> None:
        await ctx.run(ask, "one")
        await ctx.run(ask, "two")

    run = telling.start(twice, layers=[Odd()], thread_id=unique("thread"))
    run.result()
    found = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert [(each["layer"], each["hook"]) for each in found] == [("odd", "persist")]
    assert "state_type" in found[0]["message"]


class Shelf(nr.ContextLayer):
    """Uses its storage directly."""

    id = "shelf/with slash"

    async def init(self, params: Any) -> Any:
        seen = await params.storage.get("seen", 0)
        await params.storage.set("seen", seen + 1)
        await params.storage.set("other", {"a": [1]})
        await params.storage.delete("nothing")
        many = await params.storage.get_many(["seen", "other", "missing"])
        return [many, await params.storage.list(), await params.storage.list("o")]

    provides = {"found": nr.layer_data(lambda state: state)}


@nr.step
async def reads_shelf(_: Any, ctx: nr.Context) -> Any:
    return ctx.context["shelf/with slash"].found


def test_storage_is_a_layer_s_own_and_its_scope_s(telling: nr.Harness) -> None:
    thread = unique("thread")
    for n in (1, 2):
        found = telling.run(reads_shelf, layers=[Shelf()], thread_id=thread)
        assert found == [{"seen": n, "other": {"a": [1]}}, ["other", "seen"], ["other"]]
    assert telling.run(reads_shelf, layers=[Shelf()])[0]["seen"] == 1


class Clock(nr.ContextLayer):
    """Shows what the step's input says."""

    id = "clock"

    async def recall(self, params: Any) -> str:
        return f"now: {params.query}"


def test_a_thread_s_epoch_goes_on_in_the_next_run(telling: nr.Harness) -> None:
    thread = unique("thread")
    seen = []
    for n in range(3):
        run = telling.start(ask, f"{n}", layers=[Clock()], thread_id=thread)
        seen.append((json.loads(run.result())["items"], run.response().last_layer_usage))
    for n, (items, usage) in enumerate(seen):
        assert items[0] == ["developer", "now: 0"]
        assert (usage.epoch.age, usage.epoch.id) == (n + 1, f"t:{thread}#0")
        if n:
            assert items[-2][0] == "developer"
            assert "replace" in items[-2][1]
            assert f"now: {n}" in items[-2][1]


def test_a_child_of_the_thread_has_an_epoch_of_its_own(telling: nr.Harness) -> None:
    @nr.step
    async def parent(_: Any, ctx: nr.Context) -> Any:
        first = json.loads(await ctx.run(ask, "0"))
        child = json.loads(await ctx.spawn(ask, "1"))
        return [first["items"][0], child["items"][0]]

    found = telling.run(parent, layers=[Clock()], thread_id=unique("thread"))
    assert found == [["developer", "now: 0"], ["developer", "now: 1"]]


def test_a_preview_changes_nothing(telling: nr.Harness) -> None:
    thread = unique("thread")
    layers = [Clock(), Visits()]
    before = len(telling.runs())
    cold = telling.preview(ask, "0", thread_id=thread, layers=layers)
    assert cold.epoch is not None
    assert cold.epoch.reanchor_reason == "cold-start"
    assert len(telling.runs()) == before
    telling.run(ask, "0", thread_id=thread, layers=layers)
    for _ in range(2):
        view = telling.preview(ask, "1", thread_id=thread, layers=layers)
        assert view.epoch is not None
        assert (view.epoch.age, view.epoch.reanchor_reason) == (2, None)
        assert next(nr.item_text(item) for item in view.items) == "now: 0"
        assert "replace" in nr.item_text(view.items[1])
        assert nr.item_text(view.items[-1]) == "1"
        assert view.instructions == "be brief"
        assert view.model == "m"
    run = telling.start(ask, "1", thread_id=thread, layers=layers)
    run.result()
    usage = run.response().last_layer_usage
    assert usage is not None
    assert usage.epoch is not None
    assert usage.epoch.age == 2
    assert visits(telling, "thread", thread_id=thread) == 3


def test_only_a_model_step_can_be_previewed(telling: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        telling.preview(visit)
    assert caught.value.code == "PREVIEW_UNSUPPORTED"
    inside = nr.with_context("w", ask, [Clock()])
    view = telling.preview(inside, "7")
    assert nr.item_text(view.items[0]) == "now: 7"


def test_a_denied_answer_leaves_the_epoch_as_it_was(telling: nr.Harness) -> None:
    class Denies(nr.ContextLayer):
        id = "denies"

        async def after_model_call(self, params: Any) -> nr.Deny:
            return nr.Deny("no")

    thread = unique("thread")
    with pytest.raises(nr.SteeringDenied):
        telling.run(ask, "0", layers=[Clock(), Denies()], thread_id=thread)
    run = telling.start(ask, "1", layers=[Clock()], thread_id=thread)
    assert json.loads(run.result())["items"][0] == ["developer", "now: 1"]
    usage = run.response().last_layer_usage
    assert usage is not None
    assert usage.epoch is not None
    assert usage.epoch.age == 1


def test_the_last_window_can_be_looked_at(telling: nr.Harness) -> None:
    run = telling.start(ask, "hello", layers=[Clock()])
    run.result()
    view = run.window()
    bands = {band.name: (band.items, band.tokens) for band in view.bands}
    assert bands["anchor"][0] == 1
    assert bands["tail"][0] == 1
    assert [entry.layer_id for entry in view.layers] == ["clock"]
    assert "clock" in str(view)
    with pytest.raises(nr.ConfigError) as caught:
        telling.start(reads_shelf, layers=[Shelf()]).window()
    assert caught.value.code == "NO_WINDOW"
