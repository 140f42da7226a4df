"""Facts in namespaces, merged from many children."""

from __future__ import annotations

import pickle

import pytest

import noetic_ray as nr
from tests.layers.builtin.support import Hosted


async def test_values_are_set_read_and_removed() -> None:
    state = await Hosted(nr.layers.task_state()).init()
    await state.call("set", namespace="plan", values={"a": 1, "b": 2})
    await state.call("remove", namespace="plan", keys=["a"])
    assert await state.call("get", namespace="plan") == {"b": 2}
    assert await state.recall() == '<task_state>\nplan: {"b": 2}\n</task_state>'
    await state.call("remove", namespace="plan")
    assert await state.recall() is None
    assert state.data("snapshot") == {}


async def test_two_hundred_children_add_to_one_list() -> None:
    state = await Hosted(nr.layers.task_state()).init()
    await state.call("set", namespace="files", values={"done": ["first"], "count": 0})
    children = [await state.spawn() for _ in range(200)]
    for number, child in enumerate(children):
        done = [*(await child.call("get", namespace="files"))["done"], f"{number}"]
        await child.call("set", namespace="files", values={"done": done, f"k{number}": number})
    for child in children:
        await state.take_back(child)
    files = state.data("snapshot")["files"]
    assert sorted(files["done"]) == sorted(["first", *map(str, range(200))])
    assert sum(files[f"k{n}"] for n in range(200)) == sum(range(200))
    assert files["count"] == 0


async def test_a_child_s_own_value_wins_and_what_it_removed_is_gone() -> None:
    state = await Hosted(nr.layers.task_state()).init()
    await state.call("set", namespace="n", values={"a": 1, "b": 2})
    child = await state.spawn()
    await child.call("set", namespace="n", values={"a": 5})
    await child.call("remove", namespace="n", keys=["b"])
    await state.take_back(child)
    assert state.data("snapshot") == {"n": {"a": 5}}


async def test_only_named_namespaces_are_taken() -> None:
    layer = pickle.loads(pickle.dumps(nr.layers.task_state(namespaces=["plan"])))
    state = await Hosted(layer).init()
    with pytest.raises(ValueError, match="no namespace 'other'"):
        await state.call("set", namespace="other", values={})
    with pytest.raises(nr.ConfigError):
        nr.layers.task_state(namespaces="plan")
