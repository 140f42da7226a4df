"""Asks the layers what they want to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from noetic_ray.engine.layers.hooks import FAILED, diagnose, keep_state, try_hook
from noetic_ray.engine.layers.stack import Active, those_with
from noetic_ray.errors import NoeticError
from noetic_ray.items import Item, developer_message, parse_item
from noetic_ray.layers.allocator import allocate
from noetic_ray.layers.blocks import Block
from noetic_ray.layers.estimates import Estimates
from noetic_ray.layers.hooks import UNSET, DeltaParams, ProjectParams, Recall, RecallParams
from noetic_ray.layers.window import Window
from noetic_ray.log import ItemsView

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.layers.entry import LayerEntry
    from noetic_ray.layers.anchoring import Draft

Blocks = dict[str, Block]


class Recalls:
    """The layers' texts for one model step."""

    def __init__(
        self, cell: Cell, entries: Active, query: str, window: Window | None, system: int
    ) -> None:
        self._cell = cell
        self._query = query
        self._entries = those_with(entries, "recall")
        self._budgets = _budgets(self._entries, window, system)
        self._blocks: Blocks = {}

    @property
    def blocks(self) -> list[Block]:
        """What is shown, in slot order."""
        ids = [entry.layer.id for entry in self._entries]
        return [self._blocks[id] for id in ids if id in self._blocks]

    async def all(self, estimates: Estimates, again: Iterable[LayerEntry] = ()) -> None:
        """Ask every layer: atomic ones first, then the eventual ones that have nothing kept."""
        forced = set(again)
        ordered = sorted(self._entries, key=lambda entry: entry.layer.recall_mode == "eventual")
        for entry in ordered:
            if entry in forced or not self._serve_kept(entry):
                await self._ask(entry, estimates)

    async def again(self, estimates: Estimates, entries: Iterable[LayerEntry]) -> None:
        """Ask some layers once more."""
        wanted = set(entries)
        for entry in self._entries:
            if entry in wanted:
                await self._ask(entry, estimates)

    def _serve_kept(self, entry: LayerEntry) -> bool:
        if entry.layer.recall_mode != "eventual" or entry.eventual is None:
            return False
        self._put(entry, entry.eventual[0])
        return True

    async def _ask(self, entry: LayerEntry, estimates: Estimates) -> None:
        ctx = self._cell.ctx
        budget = self._budgets.get(entry.layer.id)

        def params() -> RecallParams:
            return RecallParams(
                ctx, entry.storage, entry.state, ctx.item_log.items, self._query, budget
            )

        answer = await try_hook(self._cell, entry, "recall", params, str, Recall)
        block = None if answer is FAILED else self._block(entry, answer, estimates)
        self._put(entry, block)
        if entry.layer.recall_mode == "eventual" and answer is not FAILED:
            kept = block
            if block is not None and block.moved:
                kept = Block(block.layer_id, block.items, block.tokens, block.wish)
            entry.eventual = (kept,)

    def _put(self, entry: LayerEntry, block: Block | None) -> None:
        if block is None:
            self._blocks.pop(entry.layer.id, None)
        else:
            self._blocks[entry.layer.id] = block

    def _block(self, entry: LayerEntry, answer: Any, estimates: Estimates) -> Block | None:
        recall = answer if isinstance(answer, Recall) else Recall(answer or "")
        moved = recall.state is not UNSET
        if moved:
            keep_state(self._cell, entry, recall.state)
        try:
            items = _items_of(recall.items)
            tokens = _count_of(recall.token_count)
        except (NoeticError, TypeError) as error:
            diagnose(self._cell, entry.layer.id, "recall", error)
            return None
        if not items:
            return None
        if tokens is None:
            tokens = sum(estimates.of(item) for item in items)
        return Block(entry.layer.id, items, tokens, entry.layer.placement, moved)


def _items_of(items: Sequence[Item] | str) -> tuple[Item, ...]:
    if isinstance(items, str):
        return (developer_message(items),) if items else ()
    return tuple(parse_item(item) for item in items)


def _count_of(tokens: object) -> int | None:
    whole = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
    if tokens is not None and not whole:
        raise TypeError(f"token_count of the recall is {tokens!r}, not a whole number from 0")
    return tokens  # type: ignore[return-value]


def _budgets(
    entries: Sequence[LayerEntry], window: Window | None, system: int
) -> Mapping[str, int | None]:
    if window is None or not entries:
        return {}
    shares = allocate(
        window.token_budget,
        window.response_reserve,
        system,
        [entry.layer.budget for entry in entries],
    )
    return {entry.layer.id: share for entry, share in zip(entries, shares.layers, strict=True)}


async def render_deltas(cell: Cell, entries: Active, draft: Draft) -> dict[str, str | None]:
    """What layers say of their changes themselves; their whole text stands in for the rest."""
    deltas: dict[str, str | None] = {}
    ctx = cell.ctx
    by_id = {entry.layer.id: entry for entry in those_with(entries, "render_delta")}
    for stale in draft.stale:
        entry = by_id.get(stale.layer_id)
        if entry is None or stale.action != "replace" or stale.prev is None or stale.next is None:
            continue
        params = DeltaParams(ctx, entry.storage, entry.state, stale.prev, stale.next)
        answer = await try_hook(cell, entry, "render_delta", lambda p=params: p, str)  # type: ignore[misc]
        deltas[stale.layer_id] = answer or None
    return deltas


async def project(
    cell: Cell, entries: Active, history: Sequence[Item], tail: Sequence[Item]
) -> Sequence[Item]:
    """The history as the layers want it to look; the very object given when none changes it.

    What is in `tail` follows anyway: a layer that answers with the whole log does not double it.
    """
    raw = history
    ctx = cell.ctx
    for entry in those_with(entries, "project_history"):
        shown = history

        def params(entry: LayerEntry = entry, shown: Sequence[Item] = shown) -> ProjectParams:
            return ProjectParams(ctx, entry.storage, entry.state, shown)

        answer = await try_hook(cell, entry, "project_history", params, list, tuple, ItemsView)
        if answer is None or answer is FAILED or answer is history:
            continue
        try:
            history = answer if isinstance(answer, ItemsView) else [parse_item(i) for i in answer]
        except (NoeticError, TypeError) as error:
            diagnose(cell, entry.layer.id, "project_history", error)
    if history is raw:
        return raw
    own = {item.id for item in tail}
    return [item for item in history if item.id not in own]
