"""How much of a history a model is shown, and what it costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import noetic_ray as nr

ask = nr.call_model("ask", model="m", tools=[])


def texts(request: Any) -> list[str]:
    return [nr.item_text(item) for item in request.items]


def talk(count: int) -> list[Any]:
    makers = (nr.user_message, nr.assistant_message)
    return [makers[i % 2](f"item {i}") for i in range(count)]


def shown(harness: nr.Harness, step: Any, **options: Any) -> list[str]:
    return [text for _, text in json.loads(harness.run(step, "last", **options))["items"]]


def test_without_a_window_all_is_shown(telling: nr.Harness) -> None:
    assert len(shown(telling, ask, items=talk(600))) == 601


def test_a_window_applies_without_layers_too(telling: nr.Harness) -> None:
    window = nr.Window(token_budget=1_000, response_reserve=100)
    step = nr.call_model("ask", model="m", tools=[], window=window)
    found = shown(telling, step, items=talk(600))
    assert found[-1] == "last"
    assert 10 < len(found) < 60
    assert found[-2] == "item 599"


def test_a_sliding_window_counts_items(telling: nr.Harness) -> None:
    window = nr.Window(overflow="sliding_window", size=5)
    step = nr.call_model("ask", model="m", tools=[], window=window)
    found = shown(telling, step, items=talk(20))
    assert found == [*(f"item {i}" for i in range(15, 20)), "last"]


def test_the_step_s_own_items_are_always_shown(telling: nr.Harness) -> None:
    window = nr.Window(token_budget=20, response_reserve=10)
    step = nr.call_model("ask", model="m", tools=[], window=window)
    assert shown(telling, step, items=talk(20)) == ["last"]


def summing(request: Any) -> Any:
    if request.model == "summer":
        return nr.testing.reply(
            f"summary of {texts(request)[0].count('item ')}", input_tokens=100, output_tokens=7
        )
    return nr.testing.reply(json.dumps(texts(request)[:2]), input_tokens=10, output_tokens=5)


@pytest.fixture
def summed(make_harness: Any, backend: str) -> nr.Harness:
    window = nr.Window(
        token_budget=1_000, response_reserve=100, overflow="summarize", model="summer"
    )
    return make_harness(nr.testing.ScriptedModel(summing), placement=backend, window=window)


def test_what_does_not_fit_is_summed_up_once(summed: nr.Harness) -> None:
    @nr.step
    async def goes_on(_: Any, ctx: nr.Context) -> Any:
        seen = [json.loads(await ctx.run(ask, f"question {n}")) for n in range(4)]
        return [seen, ctx.tokens.input]

    seen, used = summed.run(goes_on, items=talk(100))
    first = seen[0]
    assert first[0].startswith("Summary of the conversation before this point:\nsummary of ")
    left_out = int(first[0].rpartition(" ")[2])
    assert first[1] == f"item {left_out}"
    assert all(each[:2] == first[:2] for each in seen), "one summary serves several turns"
    assert used == 100 + 4 * 10


def test_a_summary_that_fails_leaves_the_old_part_out(make_harness: Any, backend: str) -> None:
    def script(request: Any) -> Any:
        if request.model == "summer":
            raise nr.ModelFailed("no", status=500)
        return json.dumps(texts(request))

    window = nr.Window(
        token_budget=1_000, response_reserve=100, overflow="summarize", model="summer"
    )
    harness = make_harness(nr.testing.ScriptedModel(script), placement=backend, window=window)
    run = harness.start(ask, "last", items=talk(100))
    found = json.loads(run.result())
    assert found[-2:] == ["item 99", "last"]
    assert len(found) < 60
    assert [e.data["hook"] for e in run.events() if e.type == "layer.diagnostic"] == ["summarize"]


class Noted(nr.ContextLayer):
    id = "noted"
    placement = "anchor"

    async def recall(self, params: Any) -> str:
        return f"budget {params.budget}"


def test_a_layer_is_told_its_budget(telling: nr.Harness) -> None:
    class Fixed(Noted):
        budget = (200, 1500)

    class Auto(Noted):
        id = "auto"
        budget = "auto"

    window = nr.Window(token_budget=9_000, response_reserve=1_000)
    step = nr.call_model("ask", model="m", tools=[], window=window)
    found = shown(telling, step, layers=[Fixed(), Auto(), Unbudgeted()])
    assert found[:3] == ["budget 1500", "budget 3380", "budget None"]


class Unbudgeted(Noted):
    id = "unbudgeted"


def test_a_hint_for_the_provider_s_cache_comes_only_with_anchoring(make_harness: Any) -> None:
    def script(request: Any) -> Any:
        return json.dumps([request.cache_boundary, request.cache_key])

    def hint(**options: Any) -> Any:
        layers = options.pop("layers", [Noted()])
        harness = make_harness(nr.testing.ScriptedModel(script), placement="inline", **options)
        return json.loads(harness.run(ask, "x", layers=layers, thread_id="t"))

    assert hint() == [1, "t:t"]
    assert hint(layers=[]) == [None, None]
    assert hint(context_cache=nr.ContextCache(enabled=False)) == [None, None]


def test_a_long_history_with_layers(telling: nr.Harness) -> None:
    window = nr.Window(token_budget=4_000, response_reserve=500)
    step = nr.call_model("ask", model="m", tools=[], window=window)
    run = telling.start(step, "last", items=talk(10_000), layers=[Noted()])
    found = [text for _, text in json.loads(run.result())["items"]]
    assert found[0].startswith("budget")
    assert found[-2:] == ["item 9999", "last"]
    usage = run.response().last_layer_usage
    assert usage is not None
    assert usage.history_tokens > 100_000


def test_figures_come_sorted_and_are_replaced_as_a_whole(telling: nr.Harness) -> None:
    @nr.step
    async def twice(_: Any, ctx: nr.Context) -> Any:
        first = nr.with_context("w", ask, [Noted(), Unbudgeted()])
        await ctx.run(first, "x")
        before = ctx.last_layer_usage
        await ctx.run(ask, "y")
        after = ctx.last_layer_usage
        assert before is not None
        assert after is not None
        return [
            [entry.layer_id for entry in before.layers],
            [entry.layer_id for entry in after.layers],
            before.total_used_tokens
            == before.system_prompt_tokens
            + before.tools_tokens
            + before.history_tokens
            + sum(entry.token_count for entry in before.layers),
            [before.model_id, before.execution_id == ctx.id],
        ]

    found = telling.run(twice)
    assert found == [["noted", "unbudgeted"], ["noted", "unbudgeted"], True, ["m", True]]


def test_the_step_s_span_says_how_the_window_was_used(make_harness: Any, backend: str) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    model = nr.testing.ScriptedModel(lambda request: "ok")
    harness = make_harness(model, placement=backend, exporter=exporter)
    harness.run(ask, "x", layers=[Noted()])
    (span,) = [span for span in exporter.get_finished_spans() if span.name == "step ask"]
    told = dict(span.attributes or {})
    assert told["noetic.context.epoch.age"] == 1
    assert told["noetic.context.reanchor_reason"] == "cold-start"
    assert told["noetic.context.anchor_tokens"] > 0
    assert told["noetic.context.total_tokens"] >= told["noetic.context.history_tokens"]


@pytest.mark.parametrize(
    ("cached", "reasons"),
    [
        (None, ["cold-start", None, None, None, None, None, None]),
        (0, ["cold-start", None, "cache-miss", None, "cache-miss", None, None]),
        (5_000, ["cold-start", None, None, None, None, None, None]),
    ],
)
def test_what_the_provider_s_cache_says_is_judged(
    make_harness: Any, backend: str, cached: int | None, reasons: list[str | None]
) -> None:
    def script(request: Any) -> Any:
        return nr.testing.reply("ok", input_tokens=9_000, output_tokens=1, cached_tokens=cached)

    @nr.step
    async def goes_on(_: Any, ctx: nr.Context) -> list[str | None]:
        found = []
        for n in range(len(reasons)):
            await ctx.run(ask, f"{n}")
            usage = ctx.last_layer_usage
            assert usage is not None
            assert usage.epoch is not None
            found.append(usage.epoch.reanchor_reason)
        return found

    harness = make_harness(nr.testing.ScriptedModel(script), placement=backend)
    assert harness.run(goes_on, layers=[Noted()]) == reasons


def test_a_small_window_hides_nothing_from_a_later_large_one(telling: nr.Harness) -> None:
    small = nr.call_model(
        "small", model="m", tools=[], window=nr.Window(token_budget=300, response_reserve=10)
    )

    @nr.step
    async def both(_: Any, ctx: nr.Context) -> list[int]:
        one = json.loads(await ctx.run(small, "a"))["items"]
        large = nr.call_model("large", model="m", tools=[], window=nr.Window())
        two = json.loads(await ctx.run(large, "b"))["items"]
        return [len(one), len(two)]

    few, all_ = telling.run(both, items=talk(60))
    assert few < 30
    assert all_ == 60 + 3


def test_a_layer_that_shows_the_whole_log_does_not_double_the_step_s_own(
    telling: nr.Harness,
) -> None:
    class Whole(nr.ContextLayer):
        id = "whole"

        async def project_history(self, params: Any) -> Any:
            return params.ctx.item_log.items

    assert shown(telling, ask, items=talk(2), layers=[Whole()]) == ["item 0", "item 1", "last"]


def test_layers_learn_once_from_a_step_that_was_asked_again(
    make_harness: Any, backend: str
) -> None:
    class Learns(nr.ContextLayer):
        id = "learns"

        async def init(self, params: Any) -> list[int]:
            return []

        async def store(self, params: Any) -> nr.Update:
            return nr.Update([*params.state, len(params.new_items)])

        provides = {"seen": nr.layer_data(lambda state: state)}

    def script(request: Any) -> str:
        return "[1]" if len(request.items) > 2 else "nope"

    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> Any:
        step = nr.call_model("ask", model="m", tools=[], output=list[int], output_retries=1)
        return [await ctx.run(step, "x"), ctx.context["learns"].seen]

    harness = make_harness(nr.testing.ScriptedModel(script), placement=backend)
    assert harness.run(asks, layers=[Learns()]) == [[1], [4]]


def test_a_summary_that_failed_is_not_asked_for_again_at_once(
    make_harness: Any, backend: str
) -> None:
    def script(request: Any) -> Any:
        if request.model == "summer":
            return nr.testing.reply(refusal="no", input_tokens=1000)
        return nr.testing.reply("ok", input_tokens=1)

    @nr.step
    async def goes_on(_: Any, ctx: nr.Context) -> int:
        for n in range(10):
            await ctx.run(ask, f"{n}")
        return ctx.tokens.input

    window = nr.Window(
        token_budget=1_000, response_reserve=100, overflow="summarize", model="summer"
    )
    harness = make_harness(nr.testing.ScriptedModel(script), placement=backend, window=window)
    assert harness.run(goes_on, items=talk(100)) == 1000 + 10


def test_all_that_fell_out_is_summed_up_in_as_many_parts_as_it_takes(
    make_harness: Any, backend: str
) -> None:
    def script(request: Any) -> Any:
        if request.model == "summer":
            told = texts(request)[0]
            words = [word for word in told.replace("item ", "item").split() if "item" in word]
            return nr.testing.reply(" ".join(word.removeprefix("user:") for word in words))
        return texts(request)[0]

    window = nr.Window(
        token_budget=3_000, response_reserve=100, overflow="summarize", model="summer"
    )
    harness = make_harness(nr.testing.ScriptedModel(script), placement=backend, window=window)
    long = [nr.user_message(f"item {i} " + "x" * 200) for i in range(100)]
    found = harness.run(ask, "last", items=[*long, nr.assistant_message("so far")])
    known = {word for word in found.split() if word.startswith("item")}
    assert {f"item{i}" for i in range(60)} <= known
