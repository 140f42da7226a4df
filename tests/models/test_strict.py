from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from noetic_ray.models.strict import strict_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Leaf(BaseModel):
    """A leaf."""

    size: Annotated[int, Field(ge=0)] = 3
    colour: Colour = Field(default=Colour.RED, description="Its colour.")


class Tree(BaseModel):
    name: str
    default: str
    kind: Literal["oak", "elm"] | None = None
    leaves: list[Leaf] = []
    children: list[Tree] = []


def objects(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for each in node for found in objects(each)]
    if not isinstance(node, dict):
        return []
    here = [node] if node.get("type") == "object" else []
    return here + [found for each in node.values() for found in objects(each)]


def test_objects_are_closed_and_all_fields_required() -> None:
    strict = strict_schema(Leaf.model_json_schema())
    assert strict is not None
    assert strict["required"] == ["size", "colour"]
    assert strict["additionalProperties"] is False
    assert "default" not in strict["properties"]["size"]
    assert strict["properties"]["size"]["minimum"] == 0


def test_a_reference_with_words_beside_it_is_replaced_by_its_target() -> None:
    strict = strict_schema(Leaf.model_json_schema())
    assert strict is not None
    assert strict["properties"]["colour"]["enum"] == ["red", "blue"]
    assert strict["properties"]["colour"]["description"] == "Its colour."


def test_a_recursive_model_is_strict_with_an_object_at_its_root() -> None:
    strict = strict_schema(Tree.model_json_schema())
    assert strict is not None
    assert strict["type"] == "object"
    assert set(strict["required"]) == {"name", "default", "kind", "leaves", "children"}
    assert all(each["additionalProperties"] is False for each in objects(strict))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"allOf": [{"type": "string"}, {"minLength": 2}]},
        {"$ref": "#/$defs/missing", "description": "x"},
        True,
    ],
)
def test_what_has_no_strict_form(part: Any) -> None:
    assert strict_schema({"type": "object", "properties": {"part": part}}) is None


def test_the_root_must_be_an_object() -> None:
    assert strict_schema({"type": "array", "items": {"type": "string"}}) is None


def test_one_of_becomes_any_of_and_a_single_all_of_is_unfolded() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"oneOf": [{"type": "string"}, {"type": "null"}], "discriminator": {}},
            "b": {"allOf": [{"type": "string"}], "description": "x"},
        },
    }
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["properties"]["a"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert strict["properties"]["b"] == {"type": "string", "description": "x"}


def test_the_given_schema_is_not_changed() -> None:
    schema = Leaf.model_json_schema()
    strict_schema(schema)
    assert schema == Leaf.model_json_schema()
