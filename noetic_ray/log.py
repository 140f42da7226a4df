"""The append-only log of a context."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias, overload

from noetic_ray.errors import DuplicateItem
from noetic_ray.items import (
    FileSearchCallItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    ImageGenerationCallItem,
    Item,
    ItemTypes,
    MessageItem,
    ReasoningItem,
    WebSearchCallItem,
    item_json,
    new_id,
    parse_item,
)

__all__ = ["ItemLog", "ItemsView"]

Observer: TypeAlias = Callable[[Item], None]

#: Items of these very classes need no look before they are appended.
_READY = frozenset(
    {
        MessageItem,
        FunctionCallItem,
        FunctionCallOutputItem,
        ReasoningItem,
        WebSearchCallItem,
        FileSearchCallItem,
        ImageGenerationCallItem,
    }
)

#: One lock for all logs keeps an empty log small; it is held for well under a microsecond, plus
#: the observer, and is re-entrant for observers that append. Always by a with statement: an
#: exception thrown into a thread cannot come between taking the lock and guarding its return.
_guard = threading.RLock()


class _Segment(NamedTuple):
    """Leading items shared with another log, which may go on appending behind ``stop``."""

    items: list[Item]
    start: int
    stop: int
    ids: dict[str, int]


class ItemsView(Sequence[Item]):
    """An immutable window on a log: it never changes and copies nothing.

    Equal to any tuple, list or view with the same items. Pickles as a tuple.
    """

    __slots__ = ("_own", "_own_length", "_segments", "_start")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, segments: tuple[_Segment, ...], own: list[Item], own_length: int) -> None:
        self._segments = segments
        self._start = segments[-1].stop if segments else 0
        self._own = own
        self._own_length = own_length

    def __len__(self) -> int:
        return self._start + self._own_length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return self._cut(*index.indices(len(self)))
        length = self._start + self._own_length
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            raise IndexError(f"item {index} of a log of {length}")
        if place >= self._start:
            return self._own[place - self._start]
        return _find(self._segments, place)

    def _cut(self, start: int, stop: int, step: int) -> tuple[Item, ...]:
        if step == 1 and start >= self._start:
            return tuple(self._own[start - self._start : max(stop, start) - self._start])
        return tuple(self[place] for place in range(start, stop, step))

    def __iter__(self) -> Iterator[Item]:
        own = islice(self._own, self._own_length)
        if not self._segments:
            return own
        shared = (islice(each.items, each.stop - each.start) for each in self._segments)
        return chain(*shared, own)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ItemsView | tuple | list):
            return NotImplemented
        same_length = len(self) == len(other)
        return same_length and all(a is b or a == b for a, b in zip(self, other, strict=False))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def _find(segments: tuple[_Segment, ...], place: int) -> Item:
    for each in reversed(segments):
        if place >= each.start:
            return each.items[place - each.start]
    raise IndexError(place)


class ItemLog:
    """What happened in a context, in order. Items are added and never changed or removed.

    Any thread may append and read. ``items`` given at the start are not announced to
    ``on_append``, which is called with every later item in the order of the log.
    """

    __slots__ = ("_ids", "_own", "_rules", "_segments", "_view", "on_append")

    def __init__(
        self,
        items: Iterable[Item | Mapping[str, Any]] = (),
        *,
        item_types: ItemTypes | None = None,
        strict: bool = False,
        on_append: Observer | None = None,
    ) -> None:
        self._segments: tuple[_Segment, ...] = ()
        self._own: list[Item] = []
        self._ids: dict[str, int] | None = None
        self._view: ItemsView | None = None
        self._rules = (item_types or {}, strict) if item_types or strict else None
        self.on_append: Observer | None = None
        for item in items:
            self.append(item)
        self.on_append = on_append

    @property
    def items(self) -> ItemsView:
        """All items now; the same object until the next append."""
        view = self._view
        length = len(self._own)
        if view is None or view._own_length != length:
            view = self._view = ItemsView(self._segments, self._own, length)
        return view

    @property
    def sealed(self) -> int:
        """How many leading items are shared with the log this one was forked from."""
        return self._segments[-1].stop if self._segments else 0

    def append(self, item: Item | Mapping[str, Any]) -> Item:
        """Add an item, or a dict as for ``parse_item``, and return what is in the log.

        The same id with the same content adds nothing. Raises DuplicateItem for other content,
        ItemSchemaMismatch for what is no item.
        """
        ready: Item = item if type(item) in _READY else self._checked(item)  # type: ignore[assignment]
        key = ready.id
        with _guard:
            ids = self._ids
            if ids is None:
                ids = self._ids = {}
            if key in ids or (self._segments and self._inherited(key) is not None):
                return self._same(ready)
            own = self._own
            ids[key] = len(own)
            own.append(ready)
            if self.on_append is not None:
                self.on_append(ready)
        return ready

    def append_from_provider(self, item: Item | Mapping[str, Any]) -> Item:
        """Add an item whose id somebody else chose: a taken id is replaced by a fresh one and
        kept in ``provider_id``."""
        ready = self._checked(item)
        with _guard:
            if self._existing(ready.id) is not None:
                ready = ready.model_copy(update={"id": new_id(), "provider_id": ready.id})
            return self.append(ready)

    def since(self, n: int) -> tuple[Item, ...]:
        """The items from position ``n`` on."""
        return self.items[max(n, 0) :]

    def before(self, n: int) -> ItemsView:
        """The first ``n`` items, as a view that copies nothing but items inherited in part."""
        view = self.items
        if n >= len(view):
            return view
        start = self.sealed
        if n >= start:
            return ItemsView(self._segments, self._own, n - start)
        return ItemsView((), list(view[: max(n, 0)]), max(n, 0))

    def fork(self) -> ItemLog:
        """A log that starts with what is here now, shared and not copied, and goes its own way.

        The rules for extension items come along, the observer does not.
        """
        child = ItemLog()
        child._rules = self._rules
        with _guard:
            child._segments = self._segments
            if self._own:
                start = self.sealed
                segment = _Segment(self._own, start, start + len(self._own), self._ids or {})
                child._segments = (*self._segments, segment)
        return child

    def __len__(self) -> int:
        return self.sealed + len(self._own)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self.items[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self.items

    def __repr__(self) -> str:
        return f"<ItemLog of {len(self)} items>"

    def __reduce__(self) -> tuple[Any, ...]:
        types, strict = self._rules or ({}, False)
        return _restore, (tuple(self.items), dict(types), strict)

    def _checked(self, item: Any) -> Item:
        types, strict = self._rules or (None, False)
        return parse_item(item, extension_types=types, strict=strict)

    def _inherited(self, key: str) -> Item | None:
        for items, start, stop, ids in self._segments:
            place = ids.get(key)
            if place is not None and place < stop - start:
                return items[place]
        return None

    def _existing(self, key: str) -> Item | None:
        place = (self._ids or {}).get(key)
        return self._inherited(key) if place is None else self._own[place]

    def _same(self, item: Item) -> Item:
        existing = self._existing(item.id)
        assert existing is not None
        if existing is item or existing == item or item_json(existing) == item_json(item):
            return existing
        raise DuplicateItem(item.id)


def _restore(items: tuple[Item, ...], types: ItemTypes, strict: bool) -> ItemLog:
    return ItemLog(items, item_types=types, strict=strict)
