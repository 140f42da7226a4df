"""What a context remembers of its windows from one model step to the next."""

from __future__ import annotations

from noetic_ray.items import Item
from noetic_ray.layers.estimates import Estimates
from noetic_ray.layers.window import Window


class Cut:
    """Where one kind of window cut the history, and what stands for the part cut off.

    `summary` covers the first `summarized` items of the log, as far as there is one.
    """

    __slots__ = ("start", "summarized", "summary")

    def __init__(self) -> None:
        self.start = 0
        self.summary: Item | None = None
        self.summarized = 0


class WindowMemory:
    """Token estimates, and the cut of each window in use."""

    __slots__ = ("_cuts", "estimates")

    def __init__(self) -> None:
        self.estimates = Estimates()
        self._cuts: dict[Window | None, Cut] = {}

    def cut_of(self, window: Window | None) -> Cut:
        """What is remembered of windows of this kind."""
        return self._cuts.setdefault(window, Cut())
