"""Shows the newest part of a long history, whole exchanges and nothing unpaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noetic_ray.errors import ConfigError
from noetic_ray.items import Item, MessageItem
from noetic_ray.layers import slots
from noetic_ray.layers.base import ContextLayer, check_layer
from noetic_ray.layers.history_cut import paired
from noetic_ray.layers.hooks import ProjectParams

LEAST, MOST = 2, 10_000
#: How many times `max_items` are shown at most.
CAP = 4
_SEARCHED = 4


class History(ContextLayer[Any]):
    """Show at most `max_items` (2 to 10,000) of the newest items.

    The cut is moved back to a user's and to an assistant's message where it has none, to four times
    as many items at most. A system message among the first four stays, calls without their outputs
    and outputs without their calls do not.

    Example: `nr.layers.history(max_items=20)`.

    Has no state.
    """

    scope = "execution"

    def __init__(
        self, max_items: int = 40, *, id: str = "history", slot: float = slots.HISTORY
    ) -> None:
        whole = isinstance(max_items, int) and not isinstance(max_items, bool)
        if not whole or not LEAST <= max_items <= MOST:
            raise ConfigError(
                "INVALID_HISTORY_MAX_ITEMS",
                f"max_items of layer {id!r} is {max_items!r}",
                f"Give a whole number from {LEAST} to {MOST:,}.",
            )
        self.id = id
        self.slot = slot
        self.max_items = max_items
        check_layer(self)

    async def project_history(self, params: ProjectParams) -> Sequence[Item]:
        """The very items given when they are few enough."""
        items = params.items
        if len(items) <= self.max_items:
            return items
        system = _early_system(items)
        most = CAP * self.max_items - (system is not None)
        kept = paired(items[_first(items, self.max_items, most) :], ())
        return kept if system is None or system in kept[:_SEARCHED] else [system, *kept]


def _first(items: Sequence[Item], max_items: int, most: int) -> int:
    """Where the part to show begins: no further back than the messages it was moved for."""
    newest = len(items) - max_items
    missing = {"user", "assistant"} - {_role(items[i]) for i in range(newest, len(items))}
    first = newest
    for place in range(newest - 1, max(0, len(items) - most) - 1, -1):
        if not missing:
            break
        if _role(items[place]) in missing:
            missing.discard(_role(items[place]))
            first = place
    return first


def _role(item: Item) -> str:
    return item.role if isinstance(item, MessageItem) else ""


def _early_system(items: Sequence[Item]) -> Item | None:
    early = (items[i] for i in range(min(_SEARCHED, len(items))))
    return next((item for item in early if _role(item) == "system"), None)
