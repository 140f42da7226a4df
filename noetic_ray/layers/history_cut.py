"""Which of the newest items of a history a window keeps.

Everything here reads a history from its end, and no further than what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from noetic_ray.items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    Item,
    ReasoningItem,
)
from noetic_ray.layers.estimates import Estimates


def cut(
    history: Sequence[Item], room: float, share: float, start: int, estimates: Estimates
) -> int:
    """The index of the first item to keep, `start` or later; the history's length for none.

    `start` stays while everything from it fits into `room`. Otherwise the newest items that fit
    into `share` of the room are kept, so that the next ones find room without another cut; where
    that keeps nothing, the newest that fit at all.
    """
    fitting = sparing = len(history)
    used = 0
    while fitting > start:
        used += estimates.of(history[fitting - 1])
        if used > room:
            break
        fitting -= 1
        if used <= room * share:
            sparing = fitting
    if fitting == start:
        return start
    if share < 1:
        first = after_outputs(history, _after_calls(history, sparing))
        if first < len(history):
            return first
    return after_outputs(history, fitting)


def _after_calls(history: Sequence[Item], first: int) -> int:
    """Past the other calls of an answer that was cut in the middle: all of it goes at once."""
    if isinstance(history[first - 1], FunctionCallItem):
        while first < len(history) and isinstance(history[first], FunctionCallItem):
            first += 1
    return first


def after_outputs(history: Sequence[Item], first: int) -> int:
    """Past outputs whose calls came before the cut."""
    while first < len(history) and isinstance(history[first], FunctionCallOutputItem):
        first += 1
    return first


def paired(kept: Sequence[Item], tail: Sequence[Item]) -> list[Item]:
    """The kept history without calls that have no output in it or in the tail, and the reverse.

    An output belongs to the last call of its id before it, and a call has one. Thoughts that led
    to nothing but calls taken out go with them: providers refuse thoughts nothing follows.
    """
    alone = _alone(kept, tail)
    if not alone:
        return list(kept)
    alone |= _idle_thoughts(kept, alone)
    return [item for place, item in enumerate(kept) if place not in alone]


def _alone(kept: Sequence[Item], tail: Sequence[Item]) -> set[int]:
    """Places of the calls and outputs in `kept` that have no partner."""
    calls: dict[str, int] = {}
    alone: set[int] = set()
    for place, item in enumerate(kept):
        if isinstance(item, FunctionCallItem):
            if item.call_id in calls:
                alone.add(calls[item.call_id])
            calls[item.call_id] = place
        elif isinstance(item, FunctionCallOutputItem) and calls.pop(item.call_id, None) is None:
            alone.add(place)
    called: set[str] = set()
    for item in tail:
        if isinstance(item, FunctionCallItem):
            called.add(item.call_id)
        elif isinstance(item, FunctionCallOutputItem) and item.call_id not in called:
            calls.pop(item.call_id, None)
    return alone.union(calls.values())


def _idle_thoughts(kept: Sequence[Item], alone: set[int]) -> set[int]:
    """Places of the reasoning right before calls in `alone`, with no other call after it."""
    idle: set[int] = set()
    follower: Item | None = None
    gone = False
    for place in range(len(kept) - 1, -1, -1):
        item = kept[place]
        if place in alone:
            gone = gone or not isinstance(follower, FunctionCallItem)
        elif gone and isinstance(item, ReasoningItem):
            idle.add(place)
        else:
            follower, gone = item, False
    return idle
