from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from noetic_ray.canonical import canonical, clean_text, from_json, to_json_bytes

HUGE = 10**5000

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
hazards = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.sampled_from(["\ud83d", "\ud83d\ude00", object(), 1j, {1, 2}, UTC])
    | st.just(5000).map(lambda digits: 10**digits)
    | st.datetimes()
    | st.decimals()
    | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.none() | st.floats(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@given(json_values)
@settings(deadline=None)
def test_ordinary_json_comes_back_as_it_was(value: Any) -> None:
    assert from_json(to_json_bytes(value)) == value
    assert json.loads(to_json_bytes(value)) == value


@given(hazards)
@settings(deadline=None)
def test_anything_is_written_and_its_reading_is_stable(value: Any) -> None:
    written = to_json_bytes(value)
    read = from_json(written)
    assert to_json_bytes(read) == written
    assert canonical(read) == read
    json.loads(written)


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("a\ud83db", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-float("inf"), "-Infinity"),
        (HUGE, "1" + "0" * 5000),
        (-HUGE, "-1" + "0" * 5000),
        (10**4299, 10**4299),
        (10**4300 - 1, 10**4300 - 1),
        (10**4300, "1" + "0" * 4300),
        (b"\xff\xfb", "__s="),
        (b"abc", "YWJj"),
        (datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), "2024-05-06T07:08:09Z"),
        (date(2024, 5, 6), "2024-05-06"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        ((1, 2), [1, 2]),
        ({3}, [3]),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("beside", [None, "\udc00"], ids=["alone", "beside a lone surrogate"])
def test_each_hazard_has_one_form_and_leaves_others_alone(
    value: Any, form: Any, beside: str | None
) -> None:
    data = {"hazard": value, "deep": [{"x": value}], "same": {"n": 1.5, "t": "é", "z": None}}
    data["beside"] = beside
    read = from_json(to_json_bytes(data))
    assert read["hazard"] == form
    assert read["deep"] == [{"x": form}]
    assert read["same"] == {"n": 1.5, "t": "é", "z": None}
    assert type(read["hazard"]) is type(form)


def test_long_digits_inside_text_stay_text() -> None:
    value = {"text": "7" * 10_000, "n": 7}
    assert from_json(to_json_bytes(value)) == value


def test_huge_integer_is_found_behind_much_text() -> None:
    value = ["x" * 100_001, HUGE, "y" * 99_999]
    assert from_json(to_json_bytes(value)) == [value[0], "1" + "0" * 5000, value[2]]


def test_keys_become_text() -> None:
    assert from_json(to_json_bytes({1: "a", None: "b", "\ud800": "c"})) == {
        "1": "a",
        "None": "b",
        "\ufffd": "c",
    }


def test_objects_become_their_repr_without_addresses() -> None:
    read = from_json(to_json_bytes({"o": object(), "f": len, "n": 1}))
    assert read == {"o": "<object object>", "f": "<built-in function len>", "n": 1}


def test_an_object_that_cannot_be_shown_is_named() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Mute" in from_json(to_json_bytes([Mute()]))[0]


def test_models_and_dataclasses_with_hazards_keep_their_other_fields() -> None:
    class Model(BaseModel):
        text: str
        more: Any

    @dataclass
    class Data:
        a: int
        b: Any

    value = [Model(text="t", more="\ud800"), Data(1, object())]
    assert from_json(to_json_bytes(value)) == [
        {"text": "t", "more": "\ufffd"},
        {"a": 1, "b": "<object object>"},
    ]


def test_circles_and_great_depth_end() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    assert from_json(to_json_bytes(circle)) == [1, "<circular>"]

    deep: Any = "end"
    for _ in range(10_000):
        deep = [deep]
    written = to_json_bytes(deep)
    assert b"<too deep>" in written
    assert to_json_bytes(from_json(written)) == written


def test_depth_that_can_be_written_can_be_read() -> None:
    deep: Any = "end"
    for _ in range(240):
        deep = {"d": deep}
    assert from_json(to_json_bytes(deep)) == deep
    assert canonical(deep) == deep


def test_foreign_json_with_hazards_is_read_into_canonical_form() -> None:
    foreign = '{"n": NaN, "s": "\\ud83d", "i": 1' + "0" * 5000 + "}"
    read = from_json(foreign)
    assert read["s"] == "\ufffd"
    assert read["i"] == "1" + "0" * 5000
    assert to_json_bytes(read) == to_json_bytes(from_json(to_json_bytes(read)))


def test_what_is_no_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(b"{nope")


def test_canonical_shares_nothing_mutable() -> None:
    value = {"a": [1]}
    copy = canonical(value)
    value["a"].append(2)
    assert copy == {"a": [1]}


def test_clean_text_returns_the_same_object_when_nothing_is_wrong() -> None:
    text = "plain é \U0001f600"
    assert clean_text(text) is text
