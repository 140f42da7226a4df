from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from noetic_ray.canonical import from_json
from noetic_ray.errors import ConfigError
from noetic_ray.layers.storage import Overlay, ScopedStorage, plain_json, scope_prefix


class Table:
    """Keys and bytes in a dict, with the requests that came."""

    def __init__(self, **values: bytes) -> None:
        self.values = dict(values)
        self.loads: list[list[str]] = []
        self.saves = 0

    async def load(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        self.loads.append(wanted)
        return {key: self.values[key] for key in wanted if key in self.values}

    async def save(self, changes: Mapping[str, bytes | None]) -> None:
        self.saves += 1
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    async def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.values if key.startswith(prefix))


def _prefix(
    layer: str = "notes",
    scope: str = "thread",
    thread: str = "t",
    resource: str | None = "r",
    id: str = "x",
) -> str:
    return scope_prefix(layer, scope, thread, resource, id)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def storage(table: Table) -> ScopedStorage:
    return ScopedStorage(table, _prefix())


# Where keys stand.


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("thread", "layers/notes/thread/t/"),
        ("resource", "layers/notes/resource/r/"),
        ("global", "layers/notes/global/-/"),
        ("execution", "layers/notes/execution/x/"),
    ],
)
def test_each_scope_has_its_place(scope: str, expected: str) -> None:
    assert _prefix(scope=scope) == expected


def test_without_a_resource_the_thread_stands_for_it() -> None:
    assert _prefix(scope="resource", resource=None) == "layers/notes/resource/t/"


def test_ids_cannot_reach_into_each_other_s_place() -> None:
    prefixes = [
        _prefix(layer, thread=thread)
        for layer in ("a", "a/thread", "a/thread/b", "a%2F", "A", "ä", "a b", "../a")
        for thread in ("b", "b/thread/c", "thread/b", "%62", "b/", "", "t", "..", "-")
    ]
    assert len(set(prefixes)) == len(prefixes)
    for one in prefixes:
        assert one.count("/") == 4
        assert [other for other in prefixes if other.startswith(one)] == [one]


async def test_layers_scopes_and_owners_are_kept_apart(table: Table) -> None:
    places = [
        _prefix(),
        _prefix("other"),
        _prefix(thread="t2"),
        _prefix(thread="t/2"),
        _prefix(scope="global"),
        _prefix(scope="resource"),
        _prefix(scope="execution"),
    ]
    storages = [ScopedStorage(table, place) for place in places]
    for n, each in enumerate(storages):
        await each.set("key", n)
    assert [await each.get("key") for each in storages] == list(range(len(places)))
    await storages[0].delete("key")
    assert [await each.list() for each in storages] == [[], *([["key"]] * (len(places) - 1))]


async def test_two_contexts_of_one_thread_share_their_keys(table: Table) -> None:
    await ScopedStorage(table, _prefix(id="x")).set("key", "mine")
    assert await ScopedStorage(table, _prefix(id="y")).get("key") == "mine"


# Reading and writing.


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1.5,
        2**70,
        "",
        "Grüße \x00 🎈",
        [],
        {},
        [1, [2, {"a": None}]],
        {"": {"b": [True, 1e300]}},
    ],
)
async def test_values_come_back_as_they_were(storage: ScopedStorage, value: Any) -> None:
    await storage.set("key", value)
    found = await storage.get("key", "default")
    assert found == value
    assert type(found) is type(value)


async def test_tuples_come_back_as_lists(storage: ScopedStorage) -> None:
    await storage.set("key", {"pair": (1, (2, "x"))})
    assert await storage.get("key") == {"pair": [1, [2, "x"]]}


async def test_a_value_belongs_to_who_reads_it(storage: ScopedStorage) -> None:
    value = {"list": [1]}
    await storage.set("key", value)
    value["list"].append(2)
    (await storage.get("key"))["list"].append(3)
    assert await storage.get("key") == {"list": [1]}


async def test_an_unknown_key_gives_the_default_and_a_stored_none_does_not(
    storage: ScopedStorage,
) -> None:
    assert await storage.get("key") is None
    assert await storage.get("key", 7) == 7
    await storage.set("key", None)
    assert await storage.get("key", 7) is None


async def test_many_keys_are_read_in_one_request(table: Table, storage: ScopedStorage) -> None:
    await storage.set("a", 1)
    await storage.set("b/c", 2)
    assert await storage.get_many(key for key in ("b/c", "a", "nobody", "a")) == {"a": 1, "b/c": 2}
    assert len(table.loads) == 1
    assert await storage.get_many([]) == {}


async def test_keys_are_listed_by_prefix(storage: ScopedStorage) -> None:
    for key in ("b", "notes/2", "notes/10", "notes", "Notes"):
        await storage.set(key, 1)
    assert await storage.list() == ["Notes", "b", "notes", "notes/10", "notes/2"]
    assert await storage.list("notes/") == ["notes/10", "notes/2"]
    assert await storage.list("nobody") == []


async def test_an_unknown_key_may_be_deleted(table: Table, storage: ScopedStorage) -> None:
    await storage.delete("key")
    await storage.set("key", 1)
    await storage.delete("key")
    await storage.delete("key")
    assert await storage.get("key", "gone") == "gone"
    assert table.values == {}


@pytest.mark.parametrize("key", ["", None, 1, b"key", "half \ud800"])
async def test_a_key_is_a_text(table: Table, storage: ScopedStorage, key: Any) -> None:
    for use in (
        storage.get(key),
        storage.set(key, 1),
        storage.delete(key),
        storage.get_many([key]),
    ):
        with pytest.raises(ConfigError) as caught:
            await use
        assert caught.value.code == "INVALID_LAYER_KEY"
        assert caught.value.hint
    assert table.saves == 0


# What JSON cannot hold.


class Color(enum.StrEnum):
    RED = "red"


def _nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


def _circle() -> Any:
    value: dict[str, Any] = {}
    value["me"] = [value]
    return value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({1, 2}, "a set"),
        (b"bytes", "a bytes"),
        (object, "a type"),
        (float("nan"), "nan"),
        ([float("inf")], "inf"),
        ({1: "a"}, "dict key 1, a int"),
        ({"a": {None: "b"}}, "dict key None"),
        ({"a": [{"b": 1j}]}, "a complex"),
        (Color.RED, "a Color"),
        ({Color.RED: 1}, "a Color"),
        ("half \ud800", "surrogate"),
        ({"half \udc00": 1}, "surrogate"),
        ([10**5_000], "thousands of digits"),
        (_nested(181), "180 levels"),
        (_circle(), "or itself"),
    ],
)
async def test_a_value_that_would_come_back_otherwise_is_refused_with_its_key(
    table: Table, storage: ScopedStorage, value: Any, named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await storage.set("my key", value)
    assert caught.value.code == "LAYER_VALUE_NOT_JSON"
    assert "'my key'" in str(caught.value)
    assert named in str(caught.value)
    assert table.saves == 0


@pytest.mark.parametrize("levels", [1, 100, 180])
def test_deep_values_are_taken_as_far_as_they_can_be_read(levels: int) -> None:
    assert from_json(plain_json(_nested(levels), "it")) == _nested(levels)


def test_large_numbers_are_taken_as_far_as_they_can_be_read() -> None:
    number = 2**14_000 - 1
    assert from_json(plain_json([number, -number], "it")) == [number, -number]


def test_the_same_part_may_stand_in_two_places() -> None:
    part = {"a": 1}
    assert from_json(plain_json([part, part], "it")) == [part, part]


# The overlay.


async def test_an_overlay_reads_through_and_never_writes_below() -> None:
    below = Table(a=b"1", b=b"1")
    overlay = Overlay(below)
    await overlay.save({"a": b"2", "b": None, "c": b"2", "unknown": None})
    assert await overlay.load(["a", "b", "c", "unknown"]) == {"a": b"2", "c": b"2"}
    assert below.values == {"a": b"1", "b": b"1"}
    assert below.saves == 0


async def test_an_overlay_lists_what_one_would_find() -> None:
    below = Table(aa=b"1", ab=b"1", b=b"1")
    overlay = Overlay(below)
    await overlay.save({"ac": b"2", "ab": None, "c": b"2", "az": None, "aa": b"2"})
    assert await overlay.keys("a") == ["aa", "ac"]
    assert await overlay.keys("") == ["aa", "ac", "b", "c"]
    await overlay.save({"ab": b"3", "ac": None})
    assert await overlay.keys("a") == ["aa", "ab"]


async def test_an_overlay_sees_what_changes_below() -> None:
    below = Table()
    overlay = Overlay(below)
    await below.save({"a": b"1"})
    assert await overlay.load(["a"]) == {"a": b"1"}
    await overlay.save({"a": b"2"})
    await below.save({"a": b"3"})
    assert await overlay.load(iter(["a"])) == {"a": b"2"}


async def test_what_is_removed_while_an_overlay_reads_is_not_read() -> None:
    class Removing(Table):
        async def load(self, keys: Iterable[str]) -> dict[str, bytes]:
            found = await super().load(keys)
            await overlay.save({"a": None, "b": b"2"})
            return found

    overlay = Overlay(Removing(a=b"1", b=b"1"))
    assert await overlay.load(["a", "b"]) == {"b": b"2"}


async def test_storage_over_an_overlay_changes_nothing_below(table: Table) -> None:
    await ScopedStorage(table, _prefix()).set("kept", 1)
    before = dict(table.values)
    preview = ScopedStorage(Overlay(table), _prefix())
    await preview.set("new", 2)
    await preview.delete("kept")
    assert await preview.list() == ["new"]
    assert await preview.get("kept", "gone") == "gone"
    assert table.values == before
