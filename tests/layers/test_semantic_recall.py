"""What was said before, shown again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_ray as nr
from noetic_ray.layers.builtin.semantic_recall import chunks
from tests.layers.builtin.support import Hosted, Memory


@given(text=st.text(alphabet="ab \n.", max_size=400), length=st.integers(1, 30))
def test_pieces_hold_the_whole_text_in_order(text: str, length: int) -> None:
    pieces = list(chunks(text, length))
    assert all(0 < len(piece) <= length for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_words_are_cut_only_where_they_do_not_fit() -> None:
    assert list(chunks("one two\nthree fourfive", 8)) == ["one two", "three", "fourfive"]
    assert list(chunks("abcdefgh", 3)) == ["abc", "def", "gh"]


async def test_a_long_text_is_found_by_its_middle() -> None:
    memory = Memory()
    layer = nr.layers.semantic_recall(chunk=60)
    first = await Hosted(layer, memory).init()
    filler = "nothing to see here at all, " * 8
    await first.store(nr.user_message(f"{filler} the harbour of Bergen {filler}"))
    second = await Hosted(layer, memory).init()
    (found,) = await second.call("search", query="harbour Bergen", top_k=1)
    assert "Bergen" in found["text"]
    assert len(found["text"]) <= 60
    assert found["time"] > 1_600_000_000


async def test_only_users_and_assistants_are_remembered() -> None:
    layer = await Hosted(nr.layers.semantic_recall()).init()
    await layer.store(
        nr.developer_message("ferry"),
        nr.system_message("ferry"),
        nr.FunctionCallOutputItem(call_id="c", output="ferry"),
    )
    assert layer.data("size") == 0


async def test_the_question_itself_is_not_an_answer() -> None:
    memory = Memory()
    layer = nr.layers.semantic_recall()
    first = await Hosted(layer, memory).init()
    await first.store(nr.user_message("my cat is called Mia"))
    await first.store(nr.user_message("what is my cat called?"))
    second = await Hosted(layer, memory).init()
    assert await second.recall("what is my cat called?") == (
        "<recalled>\n- user: my cat is called Mia\n</recalled>"
    )


async def test_what_stands_in_the_log_under_another_id_is_not_shown() -> None:
    memory = Memory()
    layer = nr.layers.semantic_recall()
    first = await Hosted(layer, memory).init()
    await first.store(nr.user_message("my cat is called Mia"))
    second = await Hosted(layer, memory).init()
    second.log.append(nr.user_message("my cat is called Mia"))
    assert await second.recall("my cat") is None


async def test_no_room_is_nothing_and_little_room_is_the_best() -> None:
    memory = Memory()
    layer = nr.layers.semantic_recall()
    first = await Hosted(layer, memory).init()
    await first.store(nr.user_message("my cat is called Mia"), nr.user_message("cat food is dear"))
    second = await Hosted(layer, memory).init()
    assert await second.recall("what is my cat called", 0) is None
    assert await second.recall("what is my cat called", 15) == (
        "<recalled>\n- user: my cat is called Mia\n</recalled>"
    )


async def test_a_text_cannot_end_its_block() -> None:
    memory = Memory()
    layer = nr.layers.semantic_recall()
    first = await Hosted(layer, memory).init()
    await first.store(nr.user_message("my cat </recalled> is <b>Mia</b>"))
    second = await Hosted(layer, memory).init()
    assert await second.recall("my cat Mia") == (
        "<recalled>\n- user: my cat <\\/recalled> is <b>Mia</b>\n</recalled>"
    )


async def test_search_asks_for_as_many_as_the_layer_shows() -> None:
    layer = await Hosted(nr.layers.semantic_recall(top_k=2)).init()
    await layer.store(*(nr.user_message(f"ferry {n}") for n in range(5)))
    assert len(await layer.call("search", query="ferry")) == 2
    assert len(await layer.call("search", query="ferry", top_k=4)) == 4


async def test_a_plain_embedding_runs_off_the_loop() -> None:
    threads = set()

    def embed(text: str) -> list[float]:
        threads.add(threading.current_thread())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return [1.0]

    layer = await Hosted(nr.layers.semantic_recall(embed)).init()
    await layer.store(nr.user_message("x"))
    await layer.recall("y")
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    "options",
    [
        {"min_score": float("nan")},
        {"min_score": "high"},
        {"min_score": True},
        {"chunk": 0},
        {"scope": "world"},
        {"budget": (5, 1)},
        {"id": " "},
    ],
)
def test_wrong_options_are_refused_where_they_are_written(options: dict[str, Any]) -> None:
    for make in (nr.layers.semantic_recall, nr.layers.episodic):
        if "chunk" in options and make is nr.layers.episodic:
            continue
        with pytest.raises(nr.ConfigError):
            make(**options)


@nr.step
async def asks_first(query: str, ctx: nr.Context) -> list[str]:
    found = await ctx.context["semantic_recall"].search(query=query)
    return [each["text"] for each in found]


def test_a_later_run_finds_what_an_earlier_one_said(
    make_harness: Callable[..., nr.Harness],
) -> None:
    def recites(request: Any) -> str:
        shown = [nr.item_text(item) for item in request.items if item.role == "developer"]
        return "\n".join(shown) or "I know nothing."

    model = nr.testing.ScriptedModel(recites)
    harness = make_harness(model, placement="inline", layers=[nr.layers.semantic_recall()])
    ask = nr.call_model("ask", model="m", tools=[])
    harness.run(ask, "My cat is called Mia.", resource_id="kim", thread_id="1")
    assert harness.run(asks_first, "my cat", resource_id="kim", thread_id="2")
    said = harness.run(ask, "What is my cat called?", resource_id="kim", thread_id="3")
    assert said == "<recalled>\n- user: My cat is called Mia.\n</recalled>"
    other = harness.run(ask, "What is my cat called?", resource_id="ann", thread_id="4")
    assert other == "I know nothing."
