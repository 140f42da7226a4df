"""Layers learn from a model step that was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from noetic_ray.engine.layers.hooks import keep_state, try_hook
from noetic_ray.engine.layers.stack import active, those_with
from noetic_ray.engine.tasks import engine_task
from noetic_ray.layers.hooks import Response, StoreParams, Update
from noetic_ray.usage import RoundMeta, StepMeta

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.layers.entry import LayerEntry


async def store(cell: Cell, split: int, rounds: Sequence[RoundMeta]) -> None:
    """Run the store hooks side by side; a failure of one is its own."""
    entries = those_with(active(cell), "store")
    if not entries:
        return
    total = StepMeta.over(rounds)
    response = Response(total.response_items, total.usage, total.cost)
    if len(entries) == 1:
        await _store_by(cell, entries[0], split, response)
        return
    tasks = [engine_task(cell.rt.loop, _store_by(cell, each, split, response)) for each in entries]
    for task in tasks:
        cell.adopt(task)
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()  # only those that an abort left behind; the context waits for them
    for task in tasks:
        task.result()


async def _store_by(cell: Cell, entry: LayerEntry, split: int, response: Response) -> None:
    log = cell.ctx.item_log

    def params() -> StoreParams:
        return StoreParams(
            cell.ctx, entry.storage, entry.state, log.items, log.since(split), response
        )

    answer = await try_hook(cell, entry, "store", params, Update)
    if answer:
        keep_state(cell, entry, answer.state)
