"""observations, semantic_recall and episodic."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.layers.builtin.embedding import embedded, hashed_words, packed, unpacked
from noetic_ray.layers.builtin.semantic_recall import chunks
from noetic_ray.until import cosine
from tests.layers.builtin.support import Hosted, Memory


def test_hashed_words_are_the_same_everywhere() -> None:
    vector = hashed_words("The harbour master of Oslo")
    assert math.isclose(math.hypot(*vector), 1.0)
    assert vector == hashed_words("the HARBOUR master of oslo!")
    assert round(sum(vector), 6) == round(sum(hashed_words("The harbour master of Oslo")), 6)
    assert hashed_words("") == [0.0] * 256


def test_related_texts_are_closer_than_others() -> None:
    near = cosine(hashed_words("ships in the harbour"), hashed_words("a ship enters the harbour"))
    far = cosine(hashed_words("ships in the harbour"), hashed_words("recipes for plum cake"))
    assert near > far + 0.2


def test_a_vector_survives_packing() -> None:
    vector = hashed_words("one two three four")
    assert cosine(vector, unpacked(packed(vector))) > 0.999


async def test_an_embedding_is_checked() -> None:
    with pytest.raises(ValueError, match="empty"):
        await embedded(lambda text: [], "x")
    with pytest.raises(ValueError, match="finite"):
        await embedded(lambda text: [math.nan], "x")

    async def later(text: str) -> list[float]:
        return [1, 2]

    assert await embedded(later, "x") == [1.0, 2.0]


def test_texts_are_cut_at_spaces() -> None:
    pieces = list(chunks("word " * 100, 50))
    assert all(len(piece) <= 50 for piece in pieces)
    assert " ".join(pieces).split() == ["word"] * 100
    assert list(chunks("  ", 50)) == []


async def test_earlier_texts_like_the_question_are_recalled() -> None:
    memory = Memory()
    first = await Hosted(nr.layers.semantic_recall(), memory).init()
    await first.store(
        nr.user_message("My cat is called Mia."), nr.assistant_message("A nice name for a cat.")
    )
    await first.store(nr.user_message("The tax office opens at nine."))
    second = await Hosted(nr.layers.semantic_recall(top_k=1), memory).init()
    assert second.data("size") == 3
    assert await second.recall("What is my cat called?") == (
        "<recalled>\n- user: My cat is called Mia.\n</recalled>"
    )
    assert await second.recall("") is None
    assert await second.recall("zzz qqq") is None
    (found,) = await second.call("search", query="office tax", top_k=1)
    assert found["text"] == "The tax office opens at nine."


async def test_what_this_conversation_said_is_not_recalled() -> None:
    here = await Hosted(nr.layers.semantic_recall()).init()
    await here.store(nr.user_message("My cat is called Mia."))
    assert await here.recall("my cat") is None


async def test_two_contexts_of_a_scope_do_not_overwrite_each_other() -> None:
    memory = Memory()
    one = await Hosted(nr.layers.semantic_recall(), memory).init()
    two = await Hosted(nr.layers.semantic_recall(), memory).init()
    await one.store(nr.user_message("apples are red"))
    await two.store(nr.user_message("pears are green"))
    await one.recall("anything")
    assert one.data("size") == 2


async def test_the_oldest_are_forgotten() -> None:
    layer = await Hosted(nr.layers.semantic_recall(max_items=3)).init()
    for number in range(6):
        await layer.store(nr.user_message(f"number {number}"))
    assert layer.data("size") == 3
    found = await layer.call("search", query="number", top_k=10)
    assert {each["text"] for each in found} == {"number 3", "number 4", "number 5"}


async def test_an_embedding_of_one_s_own_is_used() -> None:
    def embed(text: str) -> list[float]:
        return [1.0, 0.0] if "sea" in text or "ocean" in text else [0.0, 1.0]

    memory = Memory()
    layer = await Hosted(nr.layers.semantic_recall(embed), memory).init()
    await layer.store(nr.user_message("the ocean is deep"), nr.user_message("bread is dear"))
    other = await Hosted(nr.layers.semantic_recall(embed), memory).init()
    assert await other.recall("tell me of the sea") == (
        "<recalled>\n- user: the ocean is deep\n</recalled>"
    )


async def test_an_execution_becomes_an_episode() -> None:
    memory = Memory()
    first = await Hosted(nr.layers.episodic(), memory).init()
    await first.store(
        nr.user_message("Book a berth for the ferry"),
        nr.FunctionCallItem(call_id="c", name="book", arguments="{}"),
        nr.FunctionCallOutputItem(call_id="c", output="ok"),
        nr.assistant_message("Booked berth 7."),
    )
    await first.complete()
    second = await Hosted(nr.layers.episodic(), memory).init()
    shown = await second.recall("book another berth for a ferry")
    assert shown == (
        "<episodes>\n- Asked: Book a berth for the ferry | completed using book |"
        " Booked berth 7.\n</episodes>"
    )
    (found,) = await second.call("search", query="ferry berth")
    assert (found["outcome"], found["tools"]) == ("completed", ["book"])


async def test_an_aborted_execution_is_no_episode() -> None:
    layer = await Hosted(nr.layers.episodic()).init()
    await layer.store(nr.user_message("x"))
    await layer.complete("aborted")
    assert layer.data("size") == 0


async def test_a_summary_of_one_s_own_is_kept() -> None:
    layer = await Hosted(nr.layers.episodic(summarize=lambda params: params.outcome)).init()
    await layer.store(nr.user_message("x"))
    await layer.complete("failed")
    (found,) = await layer.call("search", query="failed")
    assert found["text"] == "failed"


async def test_facts_count_once_and_the_newest_come_first() -> None:
    layer = await Hosted(nr.layers.observations(max_items=2)).init()
    assert await layer.recall() is None
    await layer.call("add", text="Likes  tea")
    assert await layer.call("add", text="likes tea") == "known"
    await layer.call("add", text="Lives in Oslo")
    await layer.call("add", text="Has a cat")
    assert await layer.recall() == ("<observations>\n- Has a cat\n- Lives in Oslo\n</observations>")
    assert await layer.call("forget", text="has a") == 1
    assert [fact["text"] for fact in layer.data("all")] == ["Lives in Oslo"]


async def test_facts_are_seen_in_steps_and_shared_with_children() -> None:
    def observe(params: Any) -> list[str]:
        return [nr.item_text(item) for item in params.new_items if item.role == "user"]

    layer = await Hosted(nr.layers.observations(observe=observe)).init()
    await layer.store(nr.user_message("I am Kim"), nr.assistant_message("Hello"))
    one, two = await layer.spawn(), await layer.spawn()
    await one.call("add", text="From one")
    await two.call("add", text="From two")
    await layer.take_back(one)
    await layer.take_back(two)
    assert [fact["text"] for fact in layer.data("all")] == ["I am Kim", "From one", "From two"]


@pytest.mark.parametrize("make", ["observations", "semantic_recall", "episodic", "steering"])
def test_they_travel(make: str) -> None:
    layer = getattr(nr.layers, make)()
    assert pickle.loads(pickle.dumps(layer)).id == make


def test_wrong_options_are_refused() -> None:
    for wrong in (
        lambda: nr.layers.semantic_recall(top_k=0),
        lambda: nr.layers.semantic_recall(embed="model"),  # type: ignore[arg-type]
        lambda: nr.layers.episodic(max_episodes=-1),
        lambda: nr.layers.observations(max_items=True),
    ):
        with pytest.raises(nr.ConfigError):
            wrong()
