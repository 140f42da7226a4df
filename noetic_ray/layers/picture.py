"""A window in figures: what an event carries, and what is drawn from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noetic_ray.layers.anchoring import Plan
    from noetic_ray.layers.window import Assembled

#: The bands of a window in the order a model sees them.
BANDS = ("system", "tools", "anchor", "history", "live", "updates", "tail")


def picture_of(
    plan: Plan,
    assembled: Assembled | None,
    system: int,
    tools: tuple[int, int],
    tail_items: int,
    history: tuple[int, int] = (0, 0),
    tail: int = 0,
) -> dict[str, Any]:
    """Bands as {name: [items, tokens]}, the layers' entries and the epoch.

    Without `assembled` the log is sent whole: `history` and `tail` say how much of it that is.
    """
    bands: dict[str, list[int]] = {"system": [1 if system else 0, system], "tools": list(tools)}
    if assembled is not None:
        tokens = assembled.tokens
        bands["anchor"] = [assembled.anchor_items, tokens.anchor]
        bands["history"] = [assembled.history_items, tokens.history]
        bands["live"] = [assembled.live_items, tokens.live]
        bands["updates"] = [assembled.update_items, tokens.updates]
        bands["tail"] = [tail_items, tokens.tail]
    else:
        bands["history"] = list(history)
        bands["tail"] = [tail_items, tail]
    return {
        "bands": bands,
        "layers": [asdict(entry) for entry in plan.entries],
        "epoch": None if plan.epoch is None else asdict(plan.epoch),
    }


def band_of(picture: Mapping[str, Any], name: str) -> tuple[int, int]:
    """(items, tokens) of a band."""
    items, tokens = picture["bands"].get(name, (0, 0))
    return int(items), int(tokens)
