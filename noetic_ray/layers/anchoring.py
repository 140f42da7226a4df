"""Keeps what stands before the history the same, and says behind it what has changed since.

Pure: nothing here waits, and a plan that is dropped has changed nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import quoteattr

from noetic_ray.items import MessageItem, developer_message
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.cache_config import ContextCache
from noetic_ray.layers.epochs import Churn, Lineage, Pin, digest_of, text_of
from noetic_ray.layers.estimates import estimate_item
from noetic_ray.usage import EpochUsage, LayerUsageEntry, RoundUsage, estimate_tokens

Action = Literal["replace", "retract", "add"]
LEAST_PRESSURE = 256
MAX_MISSES = 3


@dataclass(frozen=True, slots=True)
class Stale:
    """A layer whose pinned text is not what it says now.

    `prev` and `next` are "" where there is nothing, and None where what is there is no text.
    """

    layer_id: str
    action: Action
    prev: str | None
    next: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One window's layers. `lineage` is what to remember when the answer is kept.

    `expected_prefix` is the estimated size, in tokens, of what a warm cache would hold.
    """

    anchor: tuple[Block, ...]
    live: tuple[Block, ...]
    update: MessageItem | None
    entries: tuple[LayerUsageEntry, ...]
    epoch: EpochUsage | None
    lineage: Lineage
    expected_prefix: int


class Draft:
    """A window's layers before it is known what they say of their changes.

    `stale` are the layers that an update has to speak of, in slot order.
    """

    def __init__(
        self, lineage: Lineage, blocks: Sequence[Block], instructions: str, cache: ContextCache
    ) -> None:
        self._cache = cache
        self._before = lineage
        self._blocks = tuple(block for block in blocks if block.items)
        self._by_id = {block.layer_id: block for block in self._blocks}
        self._instructions = instructions
        self._digests: dict[str, str] = {}
        self._changed: frozenset[str] = frozenset()
        self._reason: str | None = None
        self.stale: list[Stale] = []
        if cache.enabled:
            self._digests = {block.layer_id: digest_of(block.items) for block in self._blocks}
            self._changed = frozenset(self._differing())
            self._reason = self._why_anew()
            if self._reason is None:
                self.stale = list(self._compare())

    @classmethod
    def open(
        cls,
        lineage: Lineage,
        blocks: Sequence[Block],
        instructions: str | None,
        cache: ContextCache,
    ) -> Draft:
        """Compare what layers show with what is pinned; `lineage` stays as it is."""
        return cls(lineage, blocks, instructions or "", cache)

    def finish(self, deltas: Mapping[str, str | None], room: int | None = None) -> Plan:
        """The window's layers; `deltas` are replacements in the layers' own words.

        `room` is how many tokens the update may have at most.
        """
        if not self._cache.enabled:
            return self._plain()
        if self._reason is not None:
            return self._begin(self._reason)
        update = self._update(deltas)
        reason = self._why_overfull(update, room)
        return self._go_on(update) if reason is None else self._begin(reason)

    # -- what has changed ------------------------------------------------------------------------

    def _differing(self) -> Iterable[str]:
        """Who shows something else than in the window before; a layer seen first does not."""
        return (id for id, then in self._before.last.items() if self._digests.get(id, "") != then)

    def _why_anew(self) -> str | None:
        before = self._before
        if before.generation < 0:
            return "cold-start"
        if before.instructions != _hash(self._instructions):
            return "instructions-changed"
        if before.pending:
            return "cache-miss"
        if before.age >= self._cache.max_epoch_assemblies:
            return "max-age"
        return None

    def _compare(self) -> Iterable[Stale]:
        pins = {pin.layer_id: pin for pin in self._before.pins}
        for id in _slot_order(self._before.pins, self._blocks):
            pin, block = pins.get(id), self._by_id.get(id)
            if block is None or _is_live(block, self._before.live):
                if pin is not None:
                    yield Stale(id, "retract", pin.text, "")
            elif pin is None:
                yield Stale(id, "add", "", text_of(block.items))
            elif pin.digest != self._digests[id]:
                yield Stale(id, "replace", pin.text, text_of(block.items))

    def _update(self, deltas: Mapping[str, str | None]) -> MessageItem | None:
        if not self.stale:
            return None
        lines = [
            f"<context_update epoch={quoteattr(self._before.epoch_id)}>",
            "What follows supersedes the blocks of the same layers above.",
        ]
        for each in self.stale:
            lines += _told(each, deltas.get(each.layer_id))
        return developer_message("\n".join([*lines, "</context_update>"]))

    def _why_overfull(self, update: MessageItem | None, room: int | None) -> str | None:
        if any(each.prev is None or each.next is None for each in self.stale):
            return "delta-overflow"
        tokens = _tokens(update)
        if update is not None and room is not None and tokens > room:
            return "delta-overflow"
        allowed = self._cache.delta_budget_fraction * self._before.anchor_tokens
        return "delta-pressure" if tokens > max(LEAST_PRESSURE, allowed) else None

    # -- what becomes of it ----------------------------------------------------------------------

    def _begin(self, reason: str) -> Plan:
        """A new epoch: pin what layers show now."""
        after = self._before.copy()
        after.generation += 1
        after.age = 1
        after.instructions = _hash(self._instructions)
        after.pending = False
        after.rebill = {}
        after.live = self._bands()
        decay = self._cache.churn_decay
        after.churn = {id: churn.decayed(decay) for id, churn in after.churn.items()}
        self._observe(after)
        anchored = tuple(block for block in self._blocks if not _is_live(block, after.live))
        after.pins = tuple(self._pin(block) for block in anchored)
        return self._plan(after, anchored, None, reason)

    def _bands(self) -> frozenset[str]:
        """Which layers without a wish stand behind the history from now on."""
        cache, live = self._cache, set(self._before.live)
        for id, churn in self._before.churn.items():
            rate = churn.rate
            if rate is None or churn.seen < cache.min_churn_samples:
                continue
            if rate >= cache.auto_demote_churn:
                live.add(id)
            elif rate <= cache.auto_promote_churn:
                live.discard(id)
        return frozenset(live)

    def _pin(self, block: Block) -> Pin:
        id = block.layer_id
        return Pin(id, block.items, block.tokens, text_of(block.items), self._digests[id])

    def _go_on(self, update: MessageItem | None) -> Plan:
        """The epoch goes on: serve the pins as they are."""
        after = self._before.copy()
        after.age += 1
        self._observe(after)
        for pin in after.pins:
            if pin.layer_id in self._changed:
                tokens = after.rebill.get(pin.layer_id, 0) + after.anchor_tokens
                after.rebill[pin.layer_id] = tokens
        anchored = tuple(Block(pin.layer_id, pin.items, pin.tokens) for pin in after.pins)
        return self._plan(after, anchored, update, None)

    def _observe(self, after: Lineage) -> None:
        """Count this window in, for all layers ever seen."""
        ids = dict.fromkeys((*after.last, *self._digests))
        after.last = {id: self._digests.get(id, "") for id in ids}
        for id in ids:
            after.churn[id] = after.churn.get(id, Churn()).observed(id in self._changed)

    def _plan(
        self,
        after: Lineage,
        anchored: tuple[Block, ...],
        update: MessageItem | None,
        reason: str | None,
    ) -> Plan:
        live = tuple(block for block in self._blocks if _is_live(block, after.live))
        pinned = {pin.layer_id for pin in after.pins}
        entries = [self._entry(id, after, pinned) for id in sorted({*self._by_id, *pinned})]
        epoch = EpochUsage(
            id=after.epoch_id,
            age=after.age,
            anchor_tokens=after.anchor_tokens,
            live_tokens=sum(block.tokens for block in live),
            delta_tokens=_tokens(update),
            reanchor_reason=reason,
        )
        expected = estimate_tokens(self._instructions) + after.anchor_tokens
        return Plan(anchored, live, update, tuple(entries), epoch, after, expected)

    def _entry(self, id: str, after: Lineage, pinned: set[str]) -> LayerUsageEntry:
        block = self._by_id.get(id)
        live = block is not None and _is_live(block, after.live)
        replayed = id in pinned and after.age > 1 and not live
        return LayerUsageEntry(
            layer_id=id,
            token_count=0 if block is None else block.tokens,
            items=0 if block is None else len(block.items),
            placement="live" if live else "anchor",
            served="pinned" if replayed else "fresh",
            changed=id in self._changed,
            churn_rate=after.churn[id].rate,
            rebill_tokens=after.rebill.get(id, 0),
        )

    def _plain(self) -> Plan:
        """Anchoring is off: everything before the history, anew each time."""
        entries = [
            LayerUsageEntry(
                block.layer_id, block.tokens, len(block.items), "anchor", "fresh", False, None, 0
            )
            for block in sorted(self._blocks, key=lambda block: block.layer_id)
        ]
        tokens = sum(block.tokens for block in self._blocks)
        expected = estimate_tokens(self._instructions) + tokens
        return Plan(self._blocks, (), None, tuple(entries), None, self._before, expected)


def judge(
    lineage: Lineage, usage: RoundUsage | None, expected_prefix: int, cache: ContextCache
) -> None:
    """Learn from what a provider says its cache did with a window's first round.

    One that says nothing is not asked again: absent is not zero. Changes `lineage` in place.
    """
    if lineage.blind:
        return
    cached = None if usage is None else usage.cached_tokens
    if usage is None or cached is None:
        _stop_listening(lineage)
        return
    if cached == 0 and (usage.cache_write_tokens or 0) > 0:
        return
    if lineage.age < cache.min_epoch_assemblies:
        return
    if cached >= min(cache.min_cached_tokens, expected_prefix / 2):
        lineage.misses = 0
        return
    lineage.misses += 1
    lineage.pending = True
    if lineage.misses >= MAX_MISSES:
        _stop_listening(lineage)


def _stop_listening(lineage: Lineage) -> None:
    lineage.blind = True
    lineage.pending = False


def _is_live(block: Block, live: frozenset[str]) -> bool:
    if block.moved or block.wish == "live":
        return True
    return block.wish == "auto" and block.layer_id in live


def _slot_order(pins: Sequence[Pin], blocks: Sequence[Block]) -> list[str]:
    """The layers of both; one that shows nothing now follows the pinned one before it."""
    shown = {block.layer_id for block in blocks}
    following: dict[str | None, list[str]] = {}
    place = None
    for pin in pins:
        if pin.layer_id in shown:
            place = pin.layer_id
        else:
            following.setdefault(place, []).append(pin.layer_id)
    order = list(following.get(None, ()))
    for block in blocks:
        order += (block.layer_id, *following.get(block.layer_id, ()))
    return order


def _told(stale: Stale, delta: str | None) -> list[str]:
    head = f"<layer id={quoteattr(stale.layer_id)} action={quoteattr(stale.action)}"
    if stale.action == "retract":
        return [f"{head}/>"]
    own_words = delta if stale.action == "replace" else None
    return [f"{head}>", own_words or stale.next or "", "</layer>"]


def _tokens(message: MessageItem | None) -> int:
    return 0 if message is None else estimate_item(message)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
