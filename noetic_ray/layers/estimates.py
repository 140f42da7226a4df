"""What items cost in tokens, estimated once each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic_core import to_json

from noetic_ray.items import InputFile, InputImage, Item, MessageItem, item_json
from noetic_ray.log import ItemsView
from noetic_ray.usage import estimate_tokens

#: Fields for our own books; a provider does not get them.
_OURS = {"id", "status", "provider_id", "provider_call_id"}


#: What an image or a file costs, whatever its size in bytes: providers bill pixels and pages.
IMAGE_TOKENS = 1_000
FILE_TOKENS = 5_000


def estimate_item(item: Item) -> int:
    """Tokens of the item as a provider gets it: its JSON, four characters a token.

    An image counts 1,000 tokens and a file 5,000, guesses that keep a picture sent as text from
    pushing a whole conversation out.
    """
    if isinstance(item, MessageItem):
        attached = [part for part in item.content if isinstance(part, InputImage | InputFile)]
        if attached:
            rest = [part for part in item.content if part not in attached]
            bare = item.model_copy(update={"content": rest})
            return estimate_tokens(_sent(bare).decode()) + sum(map(_attachment, attached))
    return estimate_tokens(_sent(item).decode())


def _attachment(part: InputImage | InputFile) -> int:
    return IMAGE_TOKENS if isinstance(part, InputImage) else FILE_TOKENS


def _sent(item: Item) -> bytes:
    try:
        return to_json(item, exclude=_OURS)
    except Exception:  # what no JSON can hold is written in canonical form
        return item_json(item)


class Estimates:
    """Estimates of the items seen lately, and of one growing log.

    Items are told apart by identity. The last `limit` / 2 of them, and at most `limit`, are kept.
    Not for several threads at once.
    """

    __slots__ = ("_count", "_estimate", "_first", "_half", "_last", "_new", "_old", "_sum")

    def __init__(
        self, estimate: Callable[[Item], int] = estimate_item, limit: int = 65_536
    ) -> None:
        self._estimate = estimate
        self._half = max(limit // 2, 1)
        # An entry keeps its item alive, or another could come to have the same address. When the
        # new ones are many the old ones go all at once; what is asked for again becomes new.
        self._new: dict[int, tuple[Item, int]] = {}
        self._old: dict[int, tuple[Item, int]] = {}
        self._count = self._sum = 0
        self._first: Item | None = None
        self._last: Item | None = None

    def of(self, item: Item) -> int:
        """Tokens of one item."""
        held = self._new.get(id(item))
        return held[1] if held is not None else self._enter(item)

    def total(self, items: Iterable[Item]) -> int:
        """Tokens of several."""
        return sum(map(self.of, items))

    def history_total(self, items: Sequence[Item]) -> int:
        """Tokens of a whole log. Of a longer view of the log given last only the new items are
        visited; any other sequence is added up from the start."""
        if not isinstance(items, ItemsView):
            return self.total(items)
        if not self._continued_by(items):
            self._count = self._sum = 0
        self._sum += self.total(items[self._count :])
        self._count = len(items)
        if items:
            self._first, self._last = items[0], items[-1]
        return self._sum

    def _continued_by(self, items: ItemsView) -> bool:
        if not self._count:
            return True
        if len(items) < self._count:
            return False
        return items[0] is self._first and items[self._count - 1] is self._last

    def _enter(self, item: Item) -> int:
        key = id(item)
        held = self._old.get(key) or (item, self._estimate(item))
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}
        self._new[key] = held
        return held[1]
