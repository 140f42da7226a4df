"""The fields of a pydantic model as arguments that are checked later, when they are merged."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, WithJsonSchema

from noetic_ray.canonical import canonical, to_json_bytes

#: Where a JSON schema holds data, not schemas.
_DATA = frozenset({"default", "examples", "const", "enum"})


def arguments_of(schema: type[BaseModel], partly: bool) -> Any:
    """A type for any dict, described by the model's JSON schema; `partly` requires no field.

    Raises what pydantic raises for a model without one, ValueError for one that is no object.
    """
    described = schema.model_json_schema()
    shape = _inlined(described, described.get("$defs", {}), (), partly)
    if shape.get("type") != "object":
        raise ValueError(f"its JSON schema is of type {shape.get('type')}, not object")
    if not takes_anything(schema):
        shape["additionalProperties"] = False
    return Annotated[dict[str, Any], WithJsonSchema(shape)]


def takes_anything(schema: type[BaseModel]) -> bool:
    """Whether a model keeps fields it does not name."""
    return schema.model_config.get("extra") == "allow"


def _inlined(node: Any, defs: dict[str, Any], inside: tuple[str, ...], partly: bool) -> Any:
    """A schema without references; what contains itself is cut off at the second time."""
    if isinstance(node, list):
        return [_inlined(each, defs, inside, partly) for each in node]
    if not isinstance(node, dict):
        return node
    name = node.get("$ref")
    if isinstance(name, str):
        name = name.rpartition("/")[2]
        if name in inside:
            return {}
        return _inlined(defs[name], defs, (*inside, name), partly)
    return {
        key: value if key in _DATA else _part(key, value, defs, inside, partly)
        for key, value in node.items()
        if not _left_out(key, value, partly)
    }


def _part(key: str, value: Any, defs: dict[str, Any], inside: tuple[str, ...], partly: bool) -> Any:
    if key == "properties":  # names of fields, which may be called like words of JSON schema
        return {name: _inlined(each, defs, inside, partly) for name, each in value.items()}
    return _inlined(value, defs, inside, partly)


def _left_out(key: str, value: Any, partly: bool) -> bool:
    if key == "title":
        return isinstance(value, str)
    return key in ("$defs", "discriminator") or (partly and key == "required")


def fitted(schema: type[BaseModel], value: Any) -> Any:
    """Plain data as the model keeps it, fields that were not given left out.

    Raises pydantic's ValidationError when it does not fit, also for fields the model does not
    have: to drop them would look like success. What comes back fits again.
    """
    extra: Any = None if takes_anything(schema) else "forbid"
    model = schema.model_validate_json(to_json_bytes(value), extra=extra)
    try:
        kept = canonical(
            model.model_dump(mode="json", by_alias=True, exclude_unset=True, round_trip=True)
        )
        stable = schema.model_validate_json(to_json_bytes(kept)) == model
    except ValueError:  # a model that reads other names than it writes
        stable = False
    return kept if stable else value
