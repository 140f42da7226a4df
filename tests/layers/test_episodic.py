"""What became of earlier executions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import noetic_ray as nr
from tests.layers.builtin.support import Hosted, Memory


async def finished(layer: Any, memory: Memory, *items: Any, outcome: str = "completed") -> Hosted:
    hosted = await Hosted(layer, memory).init()
    await hosted.store(*items)
    await hosted.complete(outcome)
    return hosted


async def found(layer: Any, memory: Memory, query: str, **options: Any) -> list[dict[str, Any]]:
    hosted = await Hosted(layer, memory).init()
    answer: list[dict[str, Any]] = await hosted.call("search", query=query, **options)
    return answer


async def test_an_episode_is_of_what_this_execution_added() -> None:
    layer, memory = nr.layers.episodic(), Memory()
    second = Hosted(layer, memory)
    second.log = [nr.user_message("book a ferry"), nr.assistant_message("Booked.")]
    await second.init()
    await second.store(nr.user_message("cancel the ferry"))
    await second.complete("failed")
    (episode,) = await found(layer, memory, "ferry")
    assert (episode["input"], episode["outcome"], episode["answer"]) == (
        "cancel the ferry",
        "failed",
        "",
    )
    assert abs(episode["time"] - time.time()) < 60


async def test_an_execution_that_said_nothing_is_no_episode() -> None:
    layer, memory = nr.layers.episodic(), Memory()
    hosted = Hosted(layer, memory)
    hosted.log = [nr.user_message("book a ferry")]
    await hosted.init()
    await hosted.complete()
    await finished(layer, memory, nr.developer_message("x"))
    assert hosted.data("size") == 0
    assert await found(layer, memory, "ferry") == []


async def test_notes_stand_among_the_episodes() -> None:
    layer, memory = nr.layers.episodic(), Memory()
    hosted = await Hosted(layer, memory).init()
    assert await hosted.call("add", text=" Ferries to Bergen need a booking. ") == "noted"
    assert hosted.data("size") == 1
    other = await Hosted(layer, memory).init()
    assert await other.recall("ferries to Bergen") == (
        "<episodes>\n- Ferries to Bergen need a booking.\n</episodes>"
    )
    with pytest.raises(ValueError, match="needs a text"):
        await hosted.call("add", text="  ")


async def test_only_the_newest_episodes_are_kept() -> None:
    layer, memory = nr.layers.episodic(max_episodes=2), Memory()
    for number in range(4):
        await finished(layer, memory, nr.user_message(f"ferry {number}"))
    assert {each["input"] for each in await found(layer, memory, "ferry", top_k=9)} == {
        "ferry 2",
        "ferry 3",
    }


@pytest.mark.parametrize("said", ["", 3, None])
async def test_a_summary_that_is_no_text_is_an_error(said: Any) -> None:
    async def summarize(params: Any) -> Any:
        return said

    with pytest.raises(TypeError, match="summarize of layer 'episodic'"):
        await finished(nr.layers.episodic(summarize=summarize), Memory(), nr.user_message("x"))


async def test_nothing_is_shown_without_a_question_or_room() -> None:
    layer, memory = nr.layers.episodic(), Memory()
    await finished(layer, memory, nr.user_message("ferry"))
    hosted = await Hosted(layer, memory).init()
    assert await hosted.recall(" ") is None
    assert await hosted.recall("ferry", 0) is None
    assert "ferry" in await hosted.recall("ferry")


def test_runs_of_a_resource_become_its_episodes(make_harness: Callable[..., nr.Harness]) -> None:
    model = nr.testing.ScriptedModel(lambda request: "Booked berth 7.")
    harness = make_harness(model, placement="inline", layers=[nr.layers.episodic()])
    ask = nr.call_model("ask", model="m", tools=[])
    earlier = [nr.user_message("hello"), nr.assistant_message("hi")]
    harness.run(ask, "book a ferry", items=earlier, resource_id="kim", thread_id="1")

    @nr.step
    async def looks(query: str, ctx: nr.Context) -> Any:
        return await ctx.context["episodic"].search(query=query)

    (episode,) = harness.run(looks, "a ferry", resource_id="kim", thread_id="2")
    assert (episode["input"], episode["answer"]) == ("book a ferry", "Booked berth 7.")
    assert harness.run(looks, "a ferry", resource_id="ann", thread_id="3") == []
