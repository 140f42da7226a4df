"""JSON schemas in the strict form that providers can hold a model to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What the strict form has no words for.
_IMPOSSIBLE = frozenset(
    {
        "patternProperties",
        "propertyNames",
        "unevaluatedProperties",
        "dependentRequired",
        "dependentSchemas",
        "prefixItems",
        "uniqueItems",
        "contains",
        "not",
        "if",
        "then",
        "else",
    }
)
#: What only annotates, and is refused.
_DROPPED = frozenset({"default", "discriminator", "examples", "$schema", "$id"})
_KINDS = frozenset({"type", "$ref", "anyOf", "enum", "const"})
_BY_NAME = ("properties", "$defs", "definitions")


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema with closed objects whose fields are all required; None when that cannot be.

    Free-form objects, tuples and the like have no strict form, and the root must be an object.
    """
    try:
        strict = _node(schema, schema)
    except (_NotStrict, RecursionError):
        return None
    return strict if strict.get("type") == "object" else None


class _NotStrict(Exception):
    """Some part has no strict form."""


def _node(node: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(node, Mapping) or not node or _IMPOSSIBLE & node.keys():
        raise _NotStrict
    node = _without_all_of(_resolved(node, root))
    strict: dict[str, Any] = {}
    for key, value in node.items():
        if key in _BY_NAME:
            strict[key] = {name: _node(each, root) for name, each in value.items()}
        elif key == "items":
            strict[key] = _node(value, root)
        elif key in ("anyOf", "oneOf"):
            strict["anyOf"] = [_node(each, root) for each in value]
        elif key not in _DROPPED:
            strict[key] = value
    return _closed(strict)


def _closed(node: dict[str, Any]) -> dict[str, Any]:
    kind = node.get("type")
    if kind == "object" or "properties" in node:
        properties = node.get("properties")
        if not properties or node.get("additionalProperties") not in (None, False):
            raise _NotStrict
        node["required"] = list(properties)
        node["additionalProperties"] = False
    elif (kind == "array" and "items" not in node) or not _KINDS & node.keys():
        raise _NotStrict
    return node


def _resolved(node: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A reference must stand alone; with other words beside it, its target takes its place."""
    beside = {k: v for k, v in node.items() if k not in _DROPPED and k != "$ref"}
    if "$ref" not in node or (not beside and root is not node):
        return node
    target: Any = root
    for step in str(node["$ref"]).removeprefix("#/").split("/"):
        target = target.get(step) if isinstance(target, Mapping) else None
    if not isinstance(target, Mapping):
        raise _NotStrict
    return {**target, **beside}


def _without_all_of(node: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = node.get("allOf")
    if parts is None:
        return node
    if len(parts) != 1 or not isinstance(parts[0], Mapping):
        raise _NotStrict
    rest = {key: value for key, value in node.items() if key != "allOf"}
    return {**parts[0], **rest}
