"""What a layer wants to show in one window, after its recall."""

from __future__ import annotations

from dataclasses import dataclass

from noetic_ray.items import Item
from noetic_ray.layers.base import PlacementWish


@dataclass(frozen=True, slots=True)
class Block:
    """A layer's items, in slot order among the others of a window.

    `tokens` is as the layer reported. `moved` says that the recall returned a state, which makes
    it live whatever its `wish`.
    """

    layer_id: str
    items: tuple[Item, ...]
    tokens: int
    wish: PlacementWish = "auto"
    moved: bool = False
