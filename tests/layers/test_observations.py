"""Facts learnt over time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noetic_ray as nr
from tests.layers.builtin.support import Hosted

words = st.lists(st.sampled_from("abcdefg"), max_size=8)


async def known(*facts: str, **options: Any) -> Hosted:
    hosted = await Hosted(nr.layers.observations(**options)).init()
    for fact in facts:
        await hosted.call("add", text=fact)
    return hosted


def texts(hosted: Hosted) -> list[str]:
    return [fact["text"] for fact in hosted.data("all")]


@given(before=words, children=st.lists(words, max_size=4))
async def test_the_parent_has_the_union_in_the_order_of_arrival(
    before: list[str], children: list[list[str]]
) -> None:
    parent = await known(*before)
    expected = list(dict.fromkeys(before))
    spawned = [await parent.spawn() for _ in children]
    for child, learnt in zip(spawned, children, strict=True):
        for fact in learnt:
            await child.call("add", text=fact)
    for child, learnt in zip(spawned, children, strict=True):
        await parent.take_back(child)
        expected = list(dict.fromkeys([*expected, *learnt]))
    assert texts(parent) == expected


@given(facts=words, most=st.integers(1, 5))
async def test_the_oldest_go_first(facts: list[str], most: int) -> None:
    hosted = await known(max_items=most)
    expected: list[str] = []
    for fact in facts:
        await hosted.call("add", text=fact)
        if fact not in expected:
            expected = [*expected, fact][-most:]
    assert texts(hosted) == expected


async def test_what_the_parent_forgot_meanwhile_stays_forgotten() -> None:
    parent = await known("likes tea")
    child = await parent.spawn()
    grandchild = await child.spawn()
    await grandchild.call("add", text="has a cat")
    await child.take_back(grandchild)
    await parent.call("forget", text="likes tea")
    await parent.take_back(child)
    assert texts(parent) == ["has a cat"]


async def test_what_a_child_forgets_stays_known() -> None:
    parent = await known("likes tea")
    child = await parent.spawn()
    assert await child.call("forget", text="likes tea") == 1
    await parent.take_back(child)
    assert texts(parent) == ["likes tea"]


async def test_facts_keep_the_time_they_were_learnt() -> None:
    parent = await known()
    child = await parent.spawn()
    await child.call("add", text="has a cat")
    (learnt,) = child.data("all")
    await parent.take_back(child)
    assert parent.data("all") == [learnt]
    assert set(learnt) == {"text", "time"}


async def test_forgetting_takes_the_fact_itself_before_beginnings() -> None:
    hosted = await known("likes tea", "likes tea with milk", "likes  Coffee")
    assert await hosted.call("forget", text="Likes  tea") == 1
    assert texts(hosted) == ["likes tea with milk", "likes Coffee"]
    assert await hosted.call("forget", text="likes") == 2
    assert await hosted.call("forget", text="likes") == 0


async def test_blank_texts_are_refused() -> None:
    hosted = await known("likes tea")
    for name in ("add", "forget"):
        with pytest.raises(ValueError, match=r"text|which fact"):
            await hosted.call(name, text="  ")
    assert texts(hosted) == ["likes tea"]


async def test_the_newest_that_fit_are_shown() -> None:
    hosted = await known("likes tea", "has a cat", "lives in Oslo")
    assert await hosted.recall(budget=0) is None
    assert await hosted.recall(budget=12) == "<observations>\n- lives in Oslo\n</observations>"


async def test_data_cannot_change_the_state() -> None:
    hosted = await known("likes tea")
    hosted.data("all")[0]["text"] = "likes coffee"
    assert texts(hosted) == ["likes tea"]


@pytest.mark.parametrize("seen", ["a text", [1], {"a": 1}.items()])
async def test_observing_something_else_than_texts_is_an_error(seen: Any) -> None:
    hosted = await known(observe=lambda params: seen)
    with pytest.raises(TypeError, match="observe of layer 'observations'"):
        await hosted.store(nr.user_message("x"))


async def test_texts_are_kept_in_a_form_that_can_be_saved() -> None:
    hosted = await known(observe=lambda params: ["half \ud83d"])
    await hosted.store(nr.user_message("x"))
    assert texts(hosted) == ["half \ufffd"]


async def test_observing_nothing_changes_nothing() -> None:
    async def observe(params: Any) -> None:
        return None

    hosted = await known("likes tea", observe=observe)
    before = hosted.state
    await hosted.store(nr.user_message("x"))
    assert hosted.state is before
