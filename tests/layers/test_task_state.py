"""Facts of many children, merged without losing any."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest

import noetic_ray as nr
from noetic_ray.layers.storage import plain_json
from tests.layers.builtin.support import Hosted


async def state_of(**options: Any) -> Hosted:
    return await Hosted(nr.layers.task_state(**options)).init()


async def test_a_namespace_is_read_by_its_name_alone() -> None:
    state = await state_of()
    await state.call("set", namespace="plan", values={"a": [1]})
    read = await state.call("get", "plan")
    read["a"].append(2)
    assert await state.call("get", namespace="plan") == {"a": [1]}
    assert await state.call("get", "other") == {}


async def test_what_is_set_can_always_be_saved() -> None:
    state = await state_of()
    await state.call("set", namespace="plan", values={"at": datetime(2026, 1, 2)})
    assert plain_json(state.state, "the state")
    assert state.data("snapshot") == {"plan": {"at": "2026-01-02T00:00:00"}}


@pytest.mark.parametrize("remover_first", [True, False])
async def test_a_child_that_removes_takes_nothing_from_its_siblings(remover_first: bool) -> None:
    state = await state_of()
    await state.call("set", namespace="n", values={"list": ["a"], "old": 1})
    adder, remover = await state.spawn(), await state.spawn()
    await adder.call("set", namespace="n", values={"list": ["a", "b"]})
    await remover.call("remove", namespace="n", keys=["list", "old"])
    for child in (remover, adder) if remover_first else (adder, remover):
        await state.take_back(child)
    assert state.data("snapshot") == {"n": {"list": ["a", "b"]}}


async def test_added_members_come_once_and_true_is_not_one() -> None:
    state = await state_of()
    await state.call("set", namespace="n", values={"list": [1], "flag": 1})
    child = await state.spawn()
    await child.call("set", namespace="n", values={"list": [1, True, "x", "x"], "flag": True})
    await state.take_back(child)
    await state.take_back(child)
    found = state.data("snapshot")["n"]
    assert [repr(each) for each in found["list"]] == ["1", "True", "'x'"]
    assert found["flag"] is True


async def test_two_hundred_children_lose_nothing_in_any_order() -> None:
    state = await state_of()
    await state.call("set", namespace="n", values={"list": [], "deep": {"list": [{"id": -1}]}})
    children = [await state.spawn() for _ in range(200)]
    for number, child in enumerate(children):
        deep = {"list": [{"id": -1}, {"id": number}], str(number): True}
        await child.call("set", namespace="n", values={"list": [number], "deep": deep})
        await child.call("set", namespace=f"own {number}", values={"n": number})
    random.Random(7).shuffle(children)
    for child in children:
        await state.take_back(child)
    snapshot = state.data("snapshot")
    assert sorted(snapshot["n"]["list"]) == list(range(200))
    assert sorted(each["id"] for each in snapshot["n"]["deep"]["list"]) == list(range(-1, 200))
    assert all(snapshot["n"]["deep"][str(number)] for number in range(200))
    assert all(snapshot[f"own {number}"] == {"n": number} for number in range(200))


async def test_a_state_of_an_execution_stays_there() -> None:
    state = await state_of(scope="execution")
    await state.call("set", namespace="n", values={"a": 1})
    child = await state.spawn()
    assert child.data("snapshot") == {}
    await child.call("set", namespace="n", values={"b": 2})
    await state.take_back(child)
    assert state.data("snapshot") == {"n": {"a": 1}}


@pytest.mark.parametrize("names", [[], ["plan", ""], {"plan": {"a": 1}}, 7])
def test_namespaces_are_a_list_of_names(names: Any) -> None:
    with pytest.raises(nr.ConfigError):
        nr.layers.task_state(namespaces=names)
