"""Keeps what stands before the history the same, and says behind it what has changed since.

Pure: nothing here waits, and a plan that is dropped has changed nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import quoteattr

from noetic_ray.items import MessageItem, developer_message
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.cache_config import ContextCache
from noetic_ray.layers.epochs import Churn, Lineage, Pin, digest_of, text_of
from noetic_ray.usage import EpochUsage, LayerUsageEntry, RoundUsage, estimate_tokens

Action = Literal["replace", "retract", "add"]
LEAST_PRESSURE = 256
MAX_MISSES = 3


@dataclass(frozen=True, slots=True)
class Stale:
    """A layer whose pinned text is not what it says now. None is a text that cannot be told."""

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
    """A window's layers before it is known what they say of their changes."""

    def __init__(
        self, lineage: Lineage, blocks: Sequence[Block], instructions: str, cache: ContextCache
    ) -> None:
        self._cache = cache
        self._blocks = tuple(blocks)
        self._by_id = {block.layer_id: block for block in blocks}
        self._instructions = instructions
        self._before = lineage
        self._next = lineage.copy()
        self._digests = {block.layer_id: digest_of(block.items) for block in blocks}
        self._changed: set[str] = set()
        self._reason: str | None = None
        self.stale: list[Stale] = []
        if cache.enabled:
            self._observe()
            self._reason = self._why_anew()
            if self._reason is None:
                self._compare()

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

    def _observe(self) -> None:
        """See who changed since the window before; a layer seen first has not."""
        for id in {*self._digests, *self._before.last}:
            now, then = self._digests.get(id, ""), self._before.last.get(id)
            if then is not None and now != then:
                self._changed.add(id)
            self._next.last[id] = now

    def _count(self) -> None:
        """Count this window in."""
        churn = self._next.churn
        for id in self._next.last:
            churn[id] = churn.get(id, Churn()).observed(id in self._changed)

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

    def _compare(self) -> None:
        pins = {pin.layer_id: pin for pin in self._before.pins}
        for pin in self._before.pins:
            block = self._by_id.get(pin.layer_id)
            if block is None or self._is_live(block, self._before.live):
                self.stale.append(Stale(pin.layer_id, "retract", pin.text, ""))
            elif self._digests[pin.layer_id] != pin.digest:
                now = text_of(block.items)
                self.stale.append(Stale(pin.layer_id, "replace", pin.text, now))
        for block in self._blocks:
            if block.layer_id not in pins and not self._is_live(block, self._before.live):
                self.stale.append(Stale(block.layer_id, "add", "", text_of(block.items)))

    def _is_live(self, block: Block, live: frozenset[str]) -> bool:
        if block.moved or block.wish == "live":
            return True
        return block.wish == "auto" and block.layer_id in live

    def finish(self, deltas: Mapping[str, str | None], room: int | None = None) -> Plan:
        """The window's layers; `deltas` are replacements in the layers' own words.

        `room` is how many tokens the update may have at most.
        """
        if not self._cache.enabled:
            return self._plain()
        if self._reason is None:
            update = self._update(deltas)
            self._reason = self._why_overfull(update, room)
            if self._reason is None:
                return self._go_on(update)
        return self._begin(self._reason)

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
        if room is not None and tokens > room:
            return "delta-overflow"
        allowed = self._cache.delta_budget_fraction * self._before.anchor_tokens
        return "delta-pressure" if tokens > max(LEAST_PRESSURE, allowed) else None

    def _begin(self, reason: str) -> Plan:
        """A new epoch: pin what layers show now."""
        after = self._next
        after.generation += 1
        after.age = 1
        after.instructions = _hash(self._instructions)
        after.pending = False
        after.live = self._bands()
        decay = self._cache.churn_decay
        after.churn = {id: churn.decayed(decay) for id, churn in after.churn.items()}
        self._count()
        anchored = [block for block in self._blocks if not self._is_live(block, after.live)]
        after.pins = tuple(self._pin(block) for block in anchored)
        after.rebill = {}
        return self._plan(tuple(anchored), None, reason)

    def _bands(self) -> frozenset[str]:
        """Which layers without a wish stand behind the history from now on."""
        cache, live = self._cache, set(self._before.live)
        for id, churn in self._next.churn.items():
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
        after = self._next
        after.age += 1
        self._count()
        for pin in after.pins:
            if pin.layer_id in self._changed:
                tokens = after.rebill.get(pin.layer_id, 0) + after.anchor_tokens
                after.rebill[pin.layer_id] = tokens
        anchored = tuple(Block(pin.layer_id, pin.items, pin.tokens) for pin in after.pins)
        return self._plan(anchored, update, None)

    def _plan(
        self,
        anchored: tuple[Block, ...],
        update: MessageItem | None,
        reason: str | None,
    ) -> Plan:
        after = self._next
        live = tuple(block for block in self._blocks if self._is_live(block, after.live))
        pinned = {pin.layer_id for pin in after.pins}
        entries = [self._entry(id, pinned) for id in sorted({*self._by_id, *pinned})]
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

    def _entry(self, id: str, pinned: set[str]) -> LayerUsageEntry:
        block = self._by_id.get(id)
        is_live = block is not None and self._is_live(block, self._next.live)
        replayed = id in pinned and self._next.age > 1 and not is_live
        return LayerUsageEntry(
            layer_id=id,
            token_count=0 if block is None else block.tokens,
            items=0 if block is None else len(block.items),
            placement="live" if is_live else "anchor",
            served="pinned" if replayed else "fresh",
            changed=id in self._changed,
            churn_rate=self._next.churn[id].rate,
            rebill_tokens=self._next.rebill.get(id, 0),
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

    One that says nothing is not asked again: absent is not zero.
    """
    if lineage.blind:
        return
    cached = None if usage is None else usage.cached_tokens
    if usage is None or cached is None:
        lineage.blind = True
        return
    if cached == 0 and (usage.cache_write_tokens or 0) > 0:
        return
    if lineage.age < cache.min_epoch_assemblies:
        return
    if cached >= min(cache.min_cached_tokens, expected_prefix / 2):
        lineage.misses = 0
        return
    lineage.misses += 1
    if lineage.misses >= MAX_MISSES:
        lineage.blind = True
    else:
        lineage.pending = True


def _told(stale: Stale, delta: str | None) -> list[str]:
    head = f"<layer id={quoteattr(stale.layer_id)} action={quoteattr(stale.action)}"
    if stale.action == "retract":
        return [f"{head}/>"]
    return [f"{head}>", delta or stale.next or "", "</layer>"]


def _tokens(message: MessageItem | None) -> int:
    return 0 if message is None else estimate_tokens(text_of((message,)) or "")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
