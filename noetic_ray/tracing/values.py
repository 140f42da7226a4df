"""Attribute values as OpenTelemetry takes them, in types that every process knows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger("noetic_ray")

_EXACT = frozenset({str, int, float, bool, bytes})


def clean_value(key: str, value: Any) -> Any:
    """A plain copy, or None, with a warning, for what an attribute cannot hold.

    Subclasses become their plain type: an enum of the user's own would have to be imported
    wherever the span passes.
    """
    if type(value) in _EXACT:
        return value
    plain = _plain(value)
    if plain is None and isinstance(value, Sequence):
        parts = [_plain(part) for part in value]
        if None not in parts:
            return tuple(parts)
    if plain is None:
        kind = type(value).__name__
        log.warning(
            "span attribute %r is dropped: a %s is not a text, a number, a bool or a list of them",
            key,
            kind,
        )
    return plain


def clean_attributes(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values that can be kept, by key as text."""
    kept: dict[str, Any] = {}
    for key, value in (attributes or {}).items():
        plain = None if value is None else clean_value(key, value)
        if plain is not None:
            kept[str(key)] = plain
    return kept


def _plain(value: Any) -> Any:
    """The value itself in a plain type; None when it is no such value."""
    if type(value) in _EXACT:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return None
