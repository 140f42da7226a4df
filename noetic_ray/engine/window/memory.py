"""What a context remembers of its windows from one model step to the next."""

from __future__ import annotations

from noetic_ray.items import Item
from noetic_ray.layers.estimates import Estimates


class WindowMemory:
    """Token estimates, where the history was cut, and what stands for the part cut off.

    `summary` covers the first `summarized` items of the log.
    """

    __slots__ = ("estimates", "start", "summarized", "summary")

    def __init__(self) -> None:
        self.estimates = Estimates()
        self.start = 0
        self.summary: Item | None = None
        self.summarized = 0
