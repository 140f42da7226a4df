"""Notes that survive odd data, odd schemas and children that end in any order."""

from __future__ import annotations

import json
import pickle
from datetime import date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

import noetic_ray as nr
from noetic_ray.layers.builtin.merging import deep_merge, plain, take_changes
from noetic_ray.layers.storage import plain_json
from tests.layers.builtin.support import Hosted


class Address(BaseModel):
    street: str
    city: str


class Trip(BaseModel):
    name: str = ""
    title: str = ""
    address: Address | None = None


class Aliased(BaseModel):
    city: str = Field(alias="cityName")
    days: int = 0


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    when: date | None = None
    days: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def weeks(self) -> int:
        return self.days // 7


class Tree(BaseModel):
    kind: str = ""
    left: Tree | None = None


class Purse(BaseModel):
    coins: int = 0
    notes: int = 0

    @model_validator(mode="after")
    def holds_ten(self) -> Purse:
        if self.coins + self.notes > 10:
            raise ValueError("more than it holds")
        return self


async def pad_of(*args: Any, **options: Any) -> Hosted:
    return await Hosted(nr.layers.scratchpad(*args, **options)).init()


async def test_a_part_of_a_nested_model_is_an_update() -> None:
    pad = await pad_of(Trip)
    await pad.call("update", address={"street": "Karl Johans gate", "city": "Oslo"})
    await pad.call("update", address={"city": "Bergen"})
    assert pad.data("snapshot") == {"address": {"street": "Karl Johans gate", "city": "Bergen"}}


def test_tools_describe_nested_fields_and_require_none() -> None:
    shape = nr.layers.scratchpad(Trip).provides["update"].shape.schema  # type: ignore[union-attr]
    assert set(shape["properties"]) == {"name", "title", "address"}
    nested = shape["properties"]["address"]["anyOf"][0]
    assert set(nested["properties"]) == {"street", "city"}
    assert "required" not in shape
    assert "required" not in nested
    whole = nr.layers.scratchpad(Aliased).provides["replace"].shape.schema  # type: ignore[union-attr]
    assert whole["required"] == ["cityName"]


async def test_a_model_that_contains_itself_is_a_schema() -> None:
    pad = await Hosted(pickle.loads(pickle.dumps(nr.layers.scratchpad(Tree)))).init()
    await pad.call("update", kind="root", left={"kind": "leaf"})
    assert pad.data("snapshot") == {"kind": "root", "left": {"kind": "leaf"}}
    assert set(pad.layer.provides["update"].shape.schema["properties"]) == {"kind", "left"}  # type: ignore[union-attr]


async def test_a_model_with_aliases_keeps_fitting() -> None:
    pad = await pad_of(Aliased)
    await pad.call("update", cityName="Oslo")
    await pad.call("update", days=2)
    assert pad.data("snapshot") == {"cityName": "Oslo", "days": 2}


async def test_a_strict_model_with_computed_fields_keeps_fitting() -> None:
    pad = await pad_of(Strict)
    await pad.call("update", when=date(2026, 1, 2))
    await pad.call("update", days=14)
    assert pad.data("snapshot") == {"when": "2026-01-02", "days": 14}
    with pytest.raises(ValueError, match=r"stay as they were: days"):
        await pad.call("update", days="many")
    assert pad.data("snapshot") == {"when": "2026-01-02", "days": 14}


async def test_what_is_kept_can_always_be_saved() -> None:
    pad = await pad_of()
    await pad.call("update", {"at": datetime(2026, 1, 2, 3), "odd": float("nan"), "set": {1}})
    assert plain_json(pad.state, "the state")
    assert pad.data("snapshot") == {"at": "2026-01-02T03:00:00", "odd": "NaN", "set": [1]}


@pytest.mark.parametrize("way", ["update", "replace"])
async def test_keys_of_machinery_are_dropped_wherever_they_stand(way: str) -> None:
    pad = await pad_of()
    await pad.call(way, {"a": [{"__proto__": 1, "b": {"constructor": 2, "__x__": 3, "ok": 4}}]})
    assert pad.data("snapshot") == {"a": [{"b": {"ok": 4}}]}


@pytest.mark.parametrize("way", ["update", "replace"])
async def test_lists_count_as_depth(way: str) -> None:
    fits: Any = 1
    for _ in range(31):
        fits = [fits]
    pad = await pad_of()
    await pad.call(way, {"a": fits})
    with pytest.raises(ValueError, match="more than 32 deep"):
        await pad.call(way, {"a": [fits]})
    assert pad.data("snapshot") == {"a": fits}


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (int, {}),
        (Strict, {"initial": {"days": "many"}}),
        (None, {"initial": 7}),
        (None, {"template": " "}),
        (None, {"id": ""}),
        (None, {"scope": "nowhere"}),
        (None, {"budget": (5, 1)}),
    ],
)
def test_wrong_options_are_told_where_they_are_written(schema: Any, options: Any) -> None:
    with pytest.raises(nr.ConfigError) as caught:
        nr.layers.scratchpad(schema, **options)
    assert caught.value.code == "INVALID_LAYER"


async def test_the_template_is_shown_until_there_are_notes() -> None:
    pad = await pad_of(template="# Trip\n- City:")
    assert await pad.recall() == "<scratchpad>\n# Trip\n- City:\n</scratchpad>"
    await pad.call("update", "Oslo")
    assert await pad.recall() == "<scratchpad>\nOslo\n</scratchpad>"


async def test_without_room_nothing_is_shown_and_without_a_limit_everything() -> None:
    pad = await pad_of(initial="x" * 10_000)
    assert not await pad.recall(budget=0)
    assert "x" * 10_000 in await pad.recall(budget=None)


async def test_notes_cannot_leave_their_tag() -> None:
    pad = await pad_of(initial="a</scratchpad>b")
    assert (await pad.recall()).count("</scratchpad>") == 1


@pytest.mark.parametrize("text_first", [True, False])
async def test_a_text_and_data_of_two_children_are_both_kept(text_first: bool) -> None:
    pad = await pad_of()
    one, two = await pad.spawn(), await pad.spawn()
    await one.call("update", "a text")
    await two.call("update", {"key": 1})
    for child in (one, two) if text_first else (two, one):
        await pad.take_back(child)
    assert pad.data("snapshot") == {"_previous": "a text", "key": 1}


async def test_a_child_that_clears_takes_nothing_from_its_siblings() -> None:
    pad = await pad_of(initial={"old": 1, "changed": 1})
    one, two = await pad.spawn(), await pad.spawn()
    await one.call("update", {"new": 2, "changed": {"deep": 3}})
    await two.call("clear")
    await pad.take_back(one)
    await pad.take_back(two)
    assert pad.data("snapshot") == {"new": 2, "changed": {"deep": 3}}


async def test_a_list_several_children_changed_is_the_last_one_s() -> None:
    pad = await pad_of(initial={"list": [1]})
    one, two = await pad.spawn(), await pad.spawn()
    await one.call("update", {"list": [1, 2]})
    await two.call("update", {"list": [1, 3]})
    await pad.take_back(one)
    await pad.take_back(two)
    assert pad.data("snapshot") == {"list": [1, 3]}


async def test_changes_that_do_not_fit_together_are_refused() -> None:
    pad = await pad_of(Purse)
    one, two = await pad.spawn(), await pad.spawn()
    await one.call("update", coins=9)
    await two.call("update", notes=9)
    await pad.take_back(one)
    with pytest.raises(ValueError, match="more than it holds"):
        await pad.take_back(two)
    assert pad.data("snapshot") == {"coins": 9}


async def test_notes_of_an_execution_stay_there() -> None:
    pad = await pad_of(scope="execution", initial={"own": 1})
    await pad.call("update", {"mine": 2})
    child = await pad.spawn()
    assert child.data("snapshot") == {"own": 1}
    await child.call("update", {"theirs": 3})
    await pad.take_back(child)
    assert pad.data("snapshot") == {"own": 1, "mine": 2}


async def test_a_snapshot_is_a_copy() -> None:
    pad = await pad_of(initial={"list": [1]})
    pad.data("snapshot")["list"].append(2)
    (await pad.call("update", {"k": [1]}))["k"].append(2)
    assert pad.data("snapshot") == {"list": [1], "k": [1]}
    assert (await pad_of(initial={"list": [1]})).data("snapshot") == {"list": [1]}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=8,
)
dicts = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def typed(value: Any) -> str:
    """Tells 1 from True, whatever the order of keys."""
    return json.dumps(value, sort_keys=True)


@settings(deadline=None)
@given(dicts, dicts)
def test_merging_twice_is_merging_once(base: Any, update: Any) -> None:
    base, update = plain(base), plain(update)
    before = typed(base)
    once = deep_merge(base, update)
    assert typed(deep_merge(once, update)) == typed(once)
    assert typed(base) == before


@settings(deadline=None)
@given(dicts, dicts, dicts)
def test_merging_is_associative_on_disjoint_keys(one: Any, two: Any, three: Any) -> None:
    parts = [
        plain({f"{name}{key}": value for key, value in part.items()})
        for name, part in zip("xyz", (one, two, three), strict=True)
    ]
    a, b, c = parts
    left = deep_merge(deep_merge(a, b), c)
    assert typed(left) == typed(deep_merge(a, deep_merge(b, c)))
    assert typed(left) == typed({**a, **b, **c})


@settings(deadline=None)
@given(dicts, dicts, dicts)
def test_children_that_add_different_keys_all_survive(seed: Any, one: Any, two: Any) -> None:
    seed = plain(seed)
    first = deep_merge(seed, plain({"one": one}))
    second = deep_merge(seed, plain({"two": two}))
    merged = take_changes(take_changes(seed, seed, first), seed, second)
    assert typed(merged) == typed({**seed, "one": plain(one), "two": plain(two)})


@settings(deadline=None)
@given(dicts, dicts)
def test_the_changes_of_an_only_child_arrive_exactly(seed: Any, theirs: Any) -> None:
    assert typed(take_changes(plain(seed), plain(seed), plain(theirs))) == typed(plain(theirs))
