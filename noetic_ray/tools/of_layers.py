"""Stands in a list of tools for the functions of context layers."""

from __future__ import annotations

from dataclasses import dataclass

from noetic_ray.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LayerTools:
    """The functions of these layers, or of all that are active when `ids` is empty."""

    ids: tuple[str, ...]


def layer_tools(*ids: str) -> LayerTools:
    """Offer layer functions beside the tools listed: `tools=[search, nr.layer_tools("notes")]`.

    A step without `tools=` offers them anyway. Without ids, those of every active layer.
    """
    for id in ids:
        if not isinstance(id, str) or not id:
            raise ConfigError("INVALID_TOOL", f"layer_tools was given {id!r}", "Give layer ids.")
    return LayerTools(ids)
