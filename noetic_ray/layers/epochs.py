"""What a conversation remembers of its epochs: pins, how often layers change, cache misses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from noetic_ray.canonical import clean_text, from_json, to_json_bytes
from noetic_ray.errors import ItemSchemaMismatch
from noetic_ray.items import (
    InputText,
    Item,
    MessageItem,
    OutputText,
    item_json,
    parse_item,
)


@dataclass(frozen=True, slots=True)
class Pin:
    """A layer's items as they stand in the prefix; `text` None cannot be described in words."""

    layer_id: str
    items: tuple[Item, ...]
    tokens: int
    text: str | None
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        items = [from_json(item_json(item)) for item in self.items]
        return {
            "layer": self.layer_id,
            "items": items,
            "tokens": self.tokens,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pin:
        """The same pin again; other data fails, in whatever way it does."""
        items = tuple(parse_item(item) for item in data["items"])
        text = text_of(items)
        return cls(str(data["layer"]), items, int(data["tokens"]), text, str(data["digest"]))


@dataclass(frozen=True, slots=True)
class Churn:
    """How often a layer was seen and how often it had changed; old windows count less."""

    seen: float = 0.0
    changed: float = 0.0

    @property
    def rate(self) -> float | None:
        """The share of windows it had changed in; None before the first."""
        return self.changed / self.seen if self.seen else None

    def observed(self, changed: bool) -> Churn:
        """With one window more."""
        return Churn(self.seen + 1, self.changed + changed)

    def decayed(self, factor: float) -> Churn:
        """With all so far counting less."""
        return Churn(self.seen * factor, self.changed * factor)


@dataclass(slots=True)
class Lineage:
    """The memory of one conversation. `generation` -1 means that no epoch has begun.

    `age` counts the windows of the epoch. `instructions` is the digest of those it began with.
    `last` are the digests of the window before, by layer, "" for one that showed nothing.
    `rebill` are tokens by layer. `live` are the layers without a wish that stand behind the history
    in this epoch. `misses` counts windows in a row that a provider's cache did not serve, `blind`
    says that it is not listened to any more, `pending` that the next window begins an epoch
    because of a miss.
    """

    key: str
    generation: int = -1
    age: int = 0
    instructions: str = ""
    pins: tuple[Pin, ...] = ()
    last: dict[str, str] = field(default_factory=dict)
    churn: dict[str, Churn] = field(default_factory=dict)
    rebill: dict[str, int] = field(default_factory=dict)
    live: frozenset[str] = frozenset()
    misses: int = 0
    blind: bool = False
    pending: bool = False

    def __post_init__(self) -> None:
        self.key = clean_text(self.key)

    @property
    def epoch_id(self) -> str:
        """The epoch's name."""
        return f"{self.key}#{self.generation}"

    @property
    def anchor_tokens(self) -> int:
        """What the pinned items cost."""
        return sum(pin.tokens for pin in self.pins)

    def copy(self) -> Lineage:
        """A memory of its own, sharing what never changes."""
        return replace(self, last=dict(self.last), churn=dict(self.churn), rebill=dict(self.rebill))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "key": self.key,
            "generation": self.generation,
            "age": self.age,
            "instructions": self.instructions,
            "pins": [pin.to_json() for pin in self.pins],
            "last": dict(self.last),
            "churn": {id: [each.seen, each.changed] for id, each in self.churn.items()},
            "rebill": dict(self.rebill),
            "live": sorted(self.live),
            "misses": self.misses,
            "blind": self.blind,
            "pending": self.pending,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Lineage:
        """The same memory again. Raises ValueError for other data."""
        try:
            return cls._read(data)
        except (LookupError, TypeError, AttributeError, OverflowError, ItemSchemaMismatch) as wrong:
            raise ValueError(f"this is no memory of epochs: {wrong!r}") from None

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Lineage:
        return cls(
            key=str(data["key"]),
            generation=int(data["generation"]),
            age=int(data["age"]),
            instructions=str(data["instructions"]),
            pins=tuple(Pin.from_json(pin) for pin in data["pins"]),
            last=dict(data["last"]),
            churn={id: Churn(*map(float, each)) for id, each in data["churn"].items()},
            rebill={id: int(tokens) for id, tokens in data["rebill"].items()},
            live=frozenset(data["live"]),
            misses=int(data["misses"]),
            blind=bool(data["blind"]),
            pending=bool(data["pending"]),
        )


def text_of(items: Sequence[Item]) -> str | None:
    """The text of items that are messages of texts alone, a line break between two messages.

    None for others.
    """
    texts: list[str] = []
    for item in items:
        if not isinstance(item, MessageItem):
            return None
        parts = [part.text for part in item.content if isinstance(part, InputText | OutputText)]
        if len(parts) < len(item.content):
            return None
        texts.append("".join(parts))
    return "\n".join(texts)


def digest_of(items: Sequence[Item]) -> str:
    """What tells shown content apart: a message counts without its id and status."""
    hashed = hashlib.blake2b(digest_size=16)
    for item in items:
        data = item.model_dump(mode="json")
        if isinstance(item, MessageItem):
            data.pop("id", None)
            data.pop("status", None)
        hashed.update(to_json_bytes(_sorted(data)))
        hashed.update(b"\n")
    return hashed.hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value
