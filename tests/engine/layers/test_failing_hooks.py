"""Hooks that hang, raise, or answer with the wrong thing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

import noetic_ray as nr

ask = nr.call_model("ask", model="m", tools=[])


class Bad(nr.ContextLayer):
    """Fails in every hook it is told to, in the way it is told to."""

    id = "bad"
    timeouts = dict.fromkeys(("init", "recall", "store", "after_model_call"), 0.1)

    def __init__(self, hook: str, how: str) -> None:
        self.hook, self.how = hook, how

    async def _maybe(self, hook: str) -> Any:
        if hook != self.hook:
            return None
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "raises":
            raise ValueError("bad hook")
        if self.how == "exits":
            raise SystemExit(3)
        if self.how == "cancels":
            raise asyncio.CancelledError
        return object()

    async def init(self, params: Any) -> Any:
        return await self._maybe("init")

    async def recall(self, params: Any) -> Any:
        return await self._maybe("recall")

    async def store(self, params: Any) -> Any:
        return await self._maybe("store")

    async def on_complete(self, params: Any) -> Any:
        return await self._maybe("on_complete")

    async def after_model_call(self, params: Any) -> Any:
        return await self._maybe("after_model_call")

    async def on_item_append(self, params: Any) -> Any:
        return await self._maybe("on_item_append")

    async def project_history(self, params: Any) -> Any:
        return await self._maybe("project_history")


HOOKS = ["recall", "store", "on_complete", "after_model_call", "on_item_append", "project_history"]


@pytest.mark.parametrize("how", ["raises", "wrong type", "exits", "cancels"])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_failing_hook_is_a_diagnostic_and_the_run_goes_on(
    telling: nr.Harness, hook: str, how: str
) -> None:
    run = telling.start(ask, "hello", layers=[Bad(hook, how)])
    assert json.loads(run.result())["items"][-1] == ["user", "hello"]
    found = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert [(each["layer"], each["hook"]) for each in found] == [("bad", hook)]
    assert found[0]["message"]


@pytest.mark.parametrize("hook", ["recall", "store", "after_model_call"])
def test_a_hook_that_hangs_is_cut_off(telling: nr.Harness, hook: str) -> None:
    started = time.monotonic()
    run = telling.start(ask, "hello", layers=[Bad(hook, "hangs")])
    run.result()
    assert time.monotonic() - started < 5
    (found,) = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert found["hook"] == hook
    assert "within 0.1 s" in found["message"]


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_an_init_that_fails_ends_the_run(telling: nr.Harness, how: str) -> None:
    with pytest.raises(nr.StepFailed) as caught:
        telling.run(ask, "hello", layers=[Bad("init", how)])
    assert caught.value.step_id == "bad.init"


class Optional(Bad):
    on_init_error = "disable"

    async def recall(self, params: Any) -> str:
        return "must not be shown"

    provides = {"x": nr.layer_data(lambda state: 1)}


def test_a_layer_may_be_lost_at_its_init(telling: nr.Harness) -> None:
    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> list[Any]:
        return [json.loads(await ctx.run(ask, "hello"))["items"], list(ctx.context)]

    found = telling.run(asks, layers=[Optional("init", "raises")])
    assert found == [[["user", "hello"]], []]


class Clears(nr.ContextLayer):
    id = "clears"

    async def init(self, params: Any) -> str:
        return "full"

    async def recall(self, params: Any) -> str:
        return f"state {params.state}"

    async def store(self, params: Any) -> nr.Update:
        return nr.Update(None)


def test_a_cleared_state_keeps_the_hooks_running(telling: nr.Harness) -> None:
    @nr.step
    async def asks(_: Any, ctx: nr.Context) -> str:
        await ctx.run(ask, "one")
        return json.dumps(json.loads(await ctx.run(ask, "two"))["items"])

    assert "state None" in telling.run(asks, layers=[Clears()])


def test_two_layers_of_one_id_are_refused_where_they_are_given(telling: nr.Harness) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        telling.start(ask, "hello", layers=[Clears(), Clears()])
    assert caught.value.code == "DUPLICATE_LAYER"
    with pytest.raises(nr.ConfigError) as caught:
        nr.with_context("w", ask, [Clears(), Clears()])
    assert caught.value.code == "DUPLICATE_LAYER"


def test_a_plain_function_is_a_hook_too(telling: nr.Harness) -> None:
    class Plain(nr.ContextLayer):
        id = "plain"

        def recall(self, params: Any) -> str:  # type: ignore[override]
            return threading.current_thread().name

    said = json.loads(telling.run(ask, "hello", layers=[Plain()]))
    (role, thread), _ = said["items"]
    assert role == "developer"
    assert not thread.startswith("noetic-run")
    assert not thread.startswith("noetic-telling"), "the loop's own thread"


def test_an_abort_cuts_a_hook_off(telling: nr.Harness) -> None:
    class Slow(nr.ContextLayer):
        id = "slow"
        timeouts = {"recall": 0}

        async def recall(self, params: Any) -> str:
            await asyncio.Event().wait()
            return ""

    run = telling.start(ask, "hello", layers=[Slow()])
    report = run.abort("stop")
    assert report.killed == report.abandoned == 0
    with pytest.raises(nr.Cancelled):
        run.result()


@pytest.mark.parametrize(
    "recall", [nr.Recall([{"no": "item"}]), nr.Recall("x", token_count="many"), nr.Recall([3])]
)
def test_a_recall_of_nonsense_shows_nothing(telling: nr.Harness, recall: Any) -> None:
    class Nonsense(nr.ContextLayer):
        id = "nonsense"

        async def recall(self, params: Any) -> nr.Recall:
            return recall

    run = telling.start(ask, "hello", layers=[Nonsense()])
    assert json.loads(run.result())["items"] == [["user", "hello"]]
    (found,) = [event.data for event in run.events() if event.type == "layer.diagnostic"]
    assert found["hook"] == "recall"
