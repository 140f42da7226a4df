"""How many tokens of a window each layer may use, and how many are meant for the history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from noetic_ray.errors import ConfigError
from noetic_ray.layers.base import BudgetWish

#: What an infinite window counts as, so that every share of it is a number of tokens.
UNBOUNDED = 2**53


@dataclass(frozen=True, slots=True)
class Allocation:
    """Tokens for each layer, in the order of the wishes, and for the history.

    A layer that wished for nothing has None.
    """

    layers: tuple[int | None, ...]
    history: int


@dataclass(frozen=True, slots=True)
class _Range:
    """`headroom` is how much more than `least` a layer can use; None is any amount."""

    least: int
    headroom: int | None


def allocate(
    total: float, reserve: float, system: float, budgets: Sequence[BudgetWish]
) -> Allocation:
    """Divide what `reserve` and `system` leave of a window of `total` tokens.

    The least of every layer comes first; where those alone are too much they shrink alike and the
    history gets nothing. Of the rest 60 % are for layers and 40 % for the history. Layers with a
    maximum get theirs in proportion to their headroom, out of all of the 60 % or, where another
    layer has none, out of half; layers without one divide what is left evenly, and without any it
    goes to the history. Crumbs of a division, less than a token for each layer, stay unused: that
    way nobody gets less when the window grows.

    Raises ConfigError `INVALID_WINDOW` for figures that make no sense, such as NaN.
    """
    available = _available(total, reserve, system)
    ranges = [_range(wish) for wish in budgets]
    shares, history = _divide(available, [each for each in ranges if each is not None])
    given = iter(shares)
    return Allocation(tuple(None if each is None else next(given) for each in ranges), history)


def _available(total: float, reserve: float, system: float) -> int:
    if math.isnan(total) or not math.isfinite(reserve) or not math.isfinite(system):
        raise ConfigError(
            "INVALID_WINDOW",
            f"a window of {total} tokens, {reserve} reserved and {system} for the instructions",
            "Give numbers; only the window itself may be infinite.",
        )
    return math.floor(max(min(total, UNBOUNDED) - reserve - system, 0))


def _range(wish: BudgetWish) -> _Range | None:
    if wish is None:
        return None
    if wish == "auto":
        return _Range(0, None)
    least, most = wish if isinstance(wish, tuple) else (0, wish)
    if not 0 <= least <= most or math.isinf(least):
        raise ConfigError(
            "INVALID_WINDOW",
            f"a layer's budget is {wish!r}",
            'Give tokens, (least, most) with a finite least, "auto" or None.',
        )
    return _Range(int(least), None if math.isinf(most) else int(most) - int(least))


def _divide(available: int, ranges: Sequence[_Range]) -> tuple[list[int], int]:
    needed = sum(each.least for each in ranges)
    if needed > available:
        return [each.least * available // needed for each in ranges], 0
    rest = available - needed
    extras, used = _extras(rest * 3 // 5, ranges)
    shares = [each.least + extra for each, extra in zip(ranges, extras, strict=True)]
    return shares, rest - used


def _extras(pool: int, ranges: Sequence[_Range]) -> tuple[list[int], int]:
    """What each gets of the pool beyond its least, and how much of the pool is theirs."""
    headroom = sum(each.headroom for each in ranges if each.headroom is not None)
    endless = sum(each.headroom is None for each in ranges)
    limited = min(pool // 2 if endless else pool, headroom)
    even = (pool - limited) // endless if endless else 0
    extras = [
        even if each.headroom is None else limited * each.headroom // max(headroom, 1)
        for each in ranges
    ]
    return extras, pool if endless else limited
