"""What a model sees in one request: the bands of a window, in order and within its budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias, get_args

from noetic_ray.errors import ConfigError
from noetic_ray.items import Item
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.estimates import Estimates
from noetic_ray.layers.history_cut import after_outputs, cut, paired

Overflow: TypeAlias = Literal["truncate", "sliding_window", "summarize"]

#: How much of its room the history keeps when it must be cut again. A cut that moved with every
#: item would change the front of each request, and a provider's cache of it would never be hit.
_SHARES: dict[str, float] = {"truncate": 0.75, "sliding_window": 1.0, "summarize": 0.5}


@dataclass(frozen=True, slots=True)
class Window:
    """How much a model is shown, and what becomes of a history that does not fit.

    Tokens are estimates, four characters each. `token_budget` is for everything in a request,
    infinity for no limit; `response_reserve` of it is kept free for the answer. Instructions, the
    step's own items and news about layers are always shown; layers come next, then the newest of
    the history, never half of a tool call and its output.

    `overflow`: "truncate" leaves out the oldest items, a good part at once. "sliding_window" shows
    the newest `size` items of the history, as far as they fit. "summarize" keeps the newest that
    fill half of the room and shows a summary of the others, written by `model` or else by the
    step's own.

    Raises ConfigError `INVALID_WINDOW`.
    """

    token_budget: float = 128_000
    response_reserve: float = 4_000
    overflow: Overflow = "truncate"
    size: int | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        self._check_tokens()
        if self.overflow not in get_args(Overflow):
            choices = ", ".join(get_args(Overflow))
            raise _bad(f"overflow={self.overflow!r}", f"Choose one of {choices}.")
        if self.size == 0 and self.size is not False:
            object.__setattr__(self, "size", None)
        self._check_size()
        self._check_model()

    def _check_tokens(self) -> None:
        for name in ("token_budget", "response_reserve"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or math.isnan(value) or value < 0:
                raise _bad(f"{name}={value!r}", "Give tokens as a number, 0 or more.")
        if not self.token_budget > self.response_reserve:
            raise _bad(
                f"token_budget={self.token_budget!r}, response_reserve={self.response_reserve!r}",
                "Give a budget above the reserve, or nothing can be shown.",
            )

    def _check_size(self) -> None:
        sliding = self.overflow == "sliding_window"
        if self.size is None:
            if sliding:
                raise _bad(
                    'overflow="sliding_window"', "Give size=..., the items of the history to show."
                )
            return
        if not isinstance(self.size, int) or isinstance(self.size, bool) or self.size < 1:
            raise _bad(f"size={self.size!r}", "Give a whole number of items, at least 1, or None.")
        if not sliding:
            raise _bad(
                f"size={self.size!r}, overflow={self.overflow!r}",
                'Give overflow="sliding_window" too; only that counts items.',
            )

    def _check_model(self) -> None:
        if self.model is None:
            return
        if not isinstance(self.model, str) or not self.model.strip():
            raise _bad(f"model={self.model!r}", "Give the name of a model, or None.")
        if self.overflow != "summarize":
            raise _bad(
                f"model={self.model!r}, overflow={self.overflow!r}",
                'Give overflow="summarize" too; the model writes the summaries.',
            )


def _bad(what: str, hint: str) -> ConfigError:
    return ConfigError("INVALID_WINDOW", f"Window({what})", hint)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a window is made of. `history` may be long: a view of a log, not a copy.

    `tail` is what the step itself added, `updates` the message on what in the anchor band is out
    of date. The instructions are no item; `system_tokens` is what they use.
    """

    anchor: Sequence[Block] = ()
    history: Sequence[Item] = ()
    live: Sequence[Block] = ()
    updates: Item | None = None
    tail: Sequence[Item] = ()
    system_tokens: int = 0


@dataclass(frozen=True, slots=True)
class BandTokens:
    """Estimated tokens of the items shown, band by band."""

    anchor: int = 0
    history: int = 0
    live: int = 0
    updates: int = 0
    tail: int = 0

    @property
    def total(self) -> int:
        """All bands together, the instructions not included."""
        return self.anchor + self.history + self.live + self.updates + self.tail


@dataclass(frozen=True, slots=True)
class Assembled:
    """A window: `items` in the order of the bands, of which the counts say where each ends.

    A summary counts as the first item of the history. `history_start` is the index in
    `Parts.history` from which on it was kept, its length for none; unpaired calls and outputs
    after it are left out. `dropped` are the indices, end excluded, that were kept up to now and
    are not any more; None when there are none.
    """

    items: tuple[Item, ...]
    anchor_items: int
    history_items: int
    live_items: int
    update_items: int
    tail_items: int
    history_start: int
    dropped: tuple[int, int] | None
    tokens: BandTokens

    @property
    def cache_boundary(self) -> int:
        """How many leading items stay the same as long as the anchor band does."""
        return self.anchor_items


@dataclass(slots=True)
class _Purse:
    """Tokens left to claim."""

    left: float
    estimates: Estimates

    def claim(self, items: Iterable[Item]) -> list[Item]:
        """Those of the items that fit, each paid for; what does not fit is passed over."""
        kept = []
        for item in items:
            cost = self.estimates.of(item)
            if cost <= self.left:
                self.left -= cost
                kept.append(item)
        return kept


def assemble(
    parts: Parts,
    window: Window | None,
    estimates: Estimates,
    start: int = 0,
    summary: Item | None = None,
) -> Assembled:
    """Put a window together; without a `window` everything is shown.

    `start` is the index in the history before which nothing is shown. Give the `history_start` of
    the assembly before, and 0 when the history is another one: a cut then stays where it is until
    the history is full again. With "summarize" the caller has `dropped` summarized and gives the
    `summary` from then on; it takes its tokens before the history does.

    The work depends on what is shown, not on how long the history is.
    """
    updates = () if parts.updates is None else (parts.updates,)
    tail = tuple(parts.tail)
    fixed = estimates.total(updates), estimates.total(tail)
    purse = _Purse(_budget(window, parts.system_tokens) - sum(fixed), estimates)
    anchor = purse.claim(_items(parts.anchor))
    live = purse.claim(_items(parts.live))
    told = purse.claim(() if summary is None else (summary,))
    begin = max(0, min(start, len(parts.history)))
    first = _first(parts.history, window, purse, begin)
    newest = parts.history[first:]
    # A whole log without a budget is shown as it is.
    history = [*told, *(newest if window is None and not first else paired(newest, tail))]
    return Assembled(
        items=(*anchor, *history, *live, *updates, *tail),
        anchor_items=len(anchor),
        history_items=len(history),
        live_items=len(live),
        update_items=len(updates),
        tail_items=len(tail),
        history_start=first,
        dropped=(begin, first) if first > begin else None,
        tokens=BandTokens(
            estimates.total(anchor), estimates.total(history), estimates.total(live), *fixed
        ),
    )


def _budget(window: Window | None, system_tokens: int) -> float:
    if window is None:
        return math.inf
    return window.token_budget - window.response_reserve - system_tokens


def _items(blocks: Sequence[Block]) -> Iterable[Item]:
    return chain.from_iterable(block.items for block in blocks)


def _first(history: Sequence[Item], window: Window | None, purse: _Purse, start: int) -> int:
    """The index of the first item of the history to show."""
    if window is None:
        return start
    share = _SHARES[window.overflow]
    if window.overflow == "truncate" and start == 0:
        share = 1.0
    if window.size is not None and len(history) - window.size > start:
        start = after_outputs(history, len(history) - window.size)
    return cut(history, purse.left, share, start, purse.estimates)
