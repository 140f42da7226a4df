"""Notes: merged deep, checked against a schema, copied to children and merged back."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import noetic_ray as nr
from noetic_ray.layers.builtin.merging import deep_merge, take_changes
from noetic_ray.tools import ToolArgumentsError
from tests.layers.builtin.support import Hosted


class Trip(BaseModel):
    city: str = ""
    days: int = 0
    stops: list[str] = []


async def test_notes_are_merged_and_shown() -> None:
    pad = await Hosted(nr.layers.scratchpad()).init()
    assert await pad.recall() is None
    await pad.call("update", {"trip": {"city": "Oslo"}})
    await pad.call("update", {"trip": {"days": 3}})
    assert pad.data("snapshot") == {"trip": {"city": "Oslo", "days": 3}}
    shown = await pad.recall()
    assert shown == '<scratchpad>\n{"trip": {"city": "Oslo", "days": 3}}\n</scratchpad>'


async def test_a_text_is_kept_under_previous_when_data_comes() -> None:
    pad = await Hosted(nr.layers.scratchpad()).init()
    await pad.call("update", "remember the milk")
    await pad.call("update", value={"city": "Oslo"})
    assert pad.data("snapshot") == {"_previous": "remember the milk", "city": "Oslo"}
    await pad.call("update", "all new")
    assert pad.data("text") == "all new"


async def test_lists_and_other_values_are_replaced() -> None:
    pad = await Hosted(nr.layers.scratchpad(initial={"a": [1, 2], "b": {"c": 1}})).init()
    await pad.call("update", {"a": [3], "b": 4})
    assert pad.data("snapshot") == {"a": [3], "b": 4}
    await pad.call("clear")
    assert pad.data("snapshot") is None


async def test_a_schema_is_kept() -> None:
    pad = await Hosted(nr.layers.scratchpad(Trip)).init()
    await pad.call("update", city="Oslo")
    await pad.call("update", days=3)
    with pytest.raises(ValueError, match="days"):
        await pad.call("update", days="many")
    assert pad.data("snapshot") == {"city": "Oslo", "days": 3}
    await pad.call("replace", city="Rome", days=1)
    assert pad.data("snapshot") == {"city": "Rome", "days": 1}


async def test_a_field_the_schema_does_not_have_is_told_and_not_dropped() -> None:
    pad = await Hosted(nr.layers.scratchpad(Trip)).init()
    with pytest.raises(ValueError, match="value"):
        await pad.call("update", {"value": {"city": "Oslo"}})
    assert pad.data("snapshot") is None
    update: Any = pad.layer.provides["update"]
    assert update.shape.schema["additionalProperties"] is False


def test_its_tools_have_schemas_a_model_can_fill() -> None:
    free: Any = nr.layers.scratchpad().provides["update"]
    assert set(free.shape.schema["properties"]) == {"value"}
    shaped: Any = nr.layers.scratchpad(Trip).provides["update"]
    assert set(shaped.shape.schema["properties"]) == {"city", "days", "stops"}
    assert "required" not in shaped.shape.schema


async def test_read_only_notes_have_no_functions() -> None:
    pad = nr.layers.scratchpad(read_only=True, initial="fixed")
    assert set(pad.provides) == {"snapshot", "text"}
    assert (await (await Hosted(pad).init()).recall()) == "<scratchpad>\nfixed\n</scratchpad>"


async def test_over_the_budget_the_closing_tag_stays() -> None:
    pad = await Hosted(nr.layers.scratchpad(initial="x" * 1000)).init()
    shown = await pad.recall(budget=40)
    assert shown.endswith("</scratchpad>")
    assert len(shown) <= 160


async def test_children_change_different_keys_and_all_survive() -> None:
    pad = await Hosted(nr.layers.scratchpad(initial={"kept": 1, "gone": 2})).init()
    one, two = await pad.spawn(), await pad.spawn()
    await one.call("update", {"a": 1})
    await two.call("replace", {"kept": 1, "b": {"c": 2}})
    await pad.take_back(one)
    await pad.take_back(two)
    assert pad.data("snapshot") == {"kept": 1, "a": 1, "b": {"c": 2}}


async def test_a_child_s_child_brings_its_changes_up() -> None:
    pad = await Hosted(nr.layers.scratchpad(initial={"a": 1})).init()
    child = await pad.spawn()
    grandchild = await child.spawn()
    await grandchild.call("update", {"deep": True})
    await child.take_back(grandchild)
    await pad.take_back(child)
    assert pad.data("snapshot") == {"a": 1, "deep": True}


async def test_machinery_keys_and_bottomless_data_are_refused() -> None:
    pad = await Hosted(nr.layers.scratchpad()).init()
    await pad.call("update", {"__proto__": 1, "constructor": 2, "__class__": 3, "ok": 4})
    assert pad.data("snapshot") == {"ok": 4}
    deep: Any = {}
    for _ in range(40):
        deep = {"x": deep}
    with pytest.raises(ValueError, match="32"):
        await pad.call("update", deep)
    assert pad.data("snapshot") == {"ok": 4}


async def test_wrong_arguments_are_told_at_once() -> None:
    pad = await Hosted(nr.layers.scratchpad()).init()
    with pytest.raises(ToolArgumentsError):
        await pad.call("update", 7)


def test_it_travels() -> None:
    pad = pickle.loads(pickle.dumps(nr.layers.scratchpad(Trip)))
    assert pad.schema is Trip
    assert set(pad.provides["update"].shape.schema["properties"]) == {"city", "days", "stops"}


plain = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", max_size=2), inner),
    max_leaves=8,
)
dicts = st.dictionaries(st.text("abcd", min_size=1, max_size=2), plain, max_size=4)


@settings(deadline=None)
@given(dicts, dicts)
def test_merging_twice_is_merging_once(base: Any, update: Any) -> None:
    once = deep_merge(base, update)
    assert deep_merge(once, update) == once


@settings(deadline=None)
@given(dicts, dicts)
def test_disjoint_updates_may_come_in_any_order(base: Any, more: Any) -> None:
    one = {f"x{key}": value for key, value in base.items()}
    two = {f"y{key}": value for key, value in more.items()}
    assert deep_merge(deep_merge({}, one), two) == deep_merge(deep_merge({}, two), one)


@settings(deadline=None)
@given(dicts, dicts)
def test_what_nobody_else_changed_comes_back_whole(seed: Any, theirs: Any) -> None:
    assert take_changes(seed, seed, theirs) == theirs


@settings(deadline=None)
@given(dicts, dicts)
def test_a_child_that_changed_nothing_changes_nothing(ours: Any, seed: Any) -> None:
    assert take_changes(ours, seed, seed) == ours
