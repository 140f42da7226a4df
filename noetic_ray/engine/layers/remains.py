"""What an aborted context leaves behind: layers whose last hooks have not run.

A bare abort skips those hooks; who aborts with teardown, or cancels a run later, runs them from
here: bottom-up, the last child first, wherever that happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noetic_ray.context import Context
from noetic_ray.engine.layers.entry import LayerEntry, state_key
from noetic_ray.engine.layers.hooks import diagnose, keep_state, try_hook
from noetic_ray.engine.layers.stack import LayerStack
from noetic_ray.errors import NoeticError
from noetic_ray.layers.base import ContextLayer, has_hook
from noetic_ray.layers.hooks import CompleteParams, DisposeParams, Update

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell
    from noetic_ray.engine.spec import ContextSpec, Reply


@dataclass(slots=True)
class Remains:
    """One context's layers in the order they came, as (layer, state, saved, completed)."""

    context_id: str
    depth: int
    thread_id: str
    resource_id: str | None
    reason: str | None
    layers: list[tuple[ContextLayer[Any], Any, bool, bool]]


def remains_of(cell: Cell) -> list[Remains]:
    """What a context leaves itself; empty when no layer has anything left to do."""
    if cell.layers is None:
        return []
    left = [
        (entry.layer, entry.state, entry.key is not None, entry.completed)
        for entry in cell.layers.entries
        if entry.live and _has_last_words(entry.layer)
    ]
    return [_remains(cell.ctx, left)] if left else []


def remains_of_killed(spec: ContextSpec, reply: Reply) -> list[Remains]:
    """What is known of a context whose process was killed: the states it began with."""
    if not spec.layers or (spec.id, "killed") not in reply.outcomes:
        return []
    left = [
        (seed.layer, seed.state, False, False)
        for seed in spec.layers
        if _has_last_words(seed.layer)
    ]
    if not left:
        return []
    reason = reply.error.get("reason") if reply.error else None
    return [Remains(spec.id, spec.depth, spec.thread_id, spec.resource_id, reason, left)]


def bound_to_process(cell: Cell) -> list[LayerEntry]:
    """Layers with last hooks whose states no other process can be given."""
    if cell.layers is None or cell.rt.elsewhere is None:
        return []
    entries = [each for each in cell.layers.entries if each.live and _has_last_words(each.layer)]
    return [entry for entry in entries if not _can_travel(cell, entry.state)]


def _can_travel(cell: Cell, state: Any) -> bool:
    try:
        cell.rt.codec.dumps(state)
    except Exception:
        return False
    return True


async def let_go_here(cell: Cell, entries: Sequence[LayerEntry]) -> None:
    """Run the last hooks of an aborted context's layers in the process their states live in.

    It happens whoever aborted: nobody could do it later, somewhere else.
    """
    ctx = cell.ctx
    log = ctx.item_log.items
    for entry in entries:
        if has_hook(entry.layer, "on_complete") and not entry.completed:
            await _survive(cell, entry, "on_complete", _complete(cell, ctx, entry, log))
    for entry in reversed(entries):
        if has_hook(entry.layer, "dispose"):
            await _survive(cell, entry, "dispose", _dispose(cell, ctx, entry))
        entry.disposed = True


async def _survive(cell: Cell, entry: LayerEntry, hook: str, call: Awaitable[None]) -> None:
    """On an aborted context every failure would count as the abort's."""
    try:
        await call
    except BaseException as error:
        diagnose(cell, entry.layer.id, hook, error)


def _has_last_words(layer: ContextLayer[Any]) -> bool:
    return has_hook(layer, "on_complete") or has_hook(layer, "dispose")


def _remains(ctx: Context, layers: list[tuple[ContextLayer[Any], Any, bool, bool]]) -> Remains:
    return Remains(ctx.id, ctx.depth, ctx.thread_id, ctx.resource_id, ctx.abort_reason, layers)


async def tear_down(cell: Cell, remains: Sequence[Remains]) -> None:
    """Run the last hooks of contexts that are gone: the last one listed first."""
    for each in reversed(remains):
        await _tear_down_one(cell, each)


async def _tear_down_one(cell: Cell, remains: Remains) -> None:
    ctx = _stand_in(cell, remains)
    log = await _log_of(cell, remains.context_id)
    entries = [_revived(cell, ctx, *each) for each in remains.layers]
    for entry in entries:
        if has_hook(entry.layer, "on_complete") and not entry.completed:
            await _complete(cell, ctx, entry, log)
    for entry in reversed(entries):
        if has_hook(entry.layer, "dispose"):
            await _dispose(cell, ctx, entry)
    if cell.layers is not None and cell.layers.writer is not None:
        await cell.layers.writer.flush()


def _stand_in(cell: Cell, remains: Remains) -> Context:
    """The context as the hooks knew it; what it can still do is done by `cell`."""
    ctx = Context(remains.context_id, remains.depth, cell.spec.scope, cell.ctx._services)
    ctx.thread_id, ctx.resource_id = remains.thread_id, remains.resource_id
    ctx.aborted, ctx.abort_reason = True, remains.reason
    ctx._status = "cancelled"
    ctx._root_frame = cell.ctx._root_frame
    return ctx


def _revived(
    cell: Cell, ctx: Context, layer: ContextLayer[Any], state: Any, saved: bool, completed: bool
) -> LayerEntry:
    stack = cell.layers
    if stack is None:
        stack = cell.layers = LayerStack(cell)
    entry = LayerEntry(layer, ctx, stack.values)
    entry.state, entry.ready, entry.completed = state, True, completed
    if saved:
        entry.key = state_key(layer, ctx)
        stack.open_writer()
    return entry


async def _complete(cell: Cell, ctx: Context, entry: LayerEntry, log: Sequence[Any]) -> None:
    answer = await try_hook(
        cell,
        entry,
        "on_complete",
        lambda: CompleteParams(ctx, entry.storage, entry.state, log, "aborted"),
        Update,
    )
    if answer:
        keep_state(cell, entry, answer.state)


async def _dispose(cell: Cell, ctx: Context, entry: LayerEntry) -> None:
    await try_hook(cell, entry, "dispose", lambda: DisposeParams(ctx, entry.storage, entry.state))


async def _log_of(cell: Cell, context_id: str) -> Sequence[Any]:
    try:
        return await cell.rt.items_of(cell.spec.scope.run_id, context_id, 0)
    except NoeticError:
        return ()  # the journal is gone; the hooks run all the same


def in_order(parts: Iterable[tuple[int, list[Remains]]]) -> list[Remains]:
    """The remains of children, in the order the children were started."""
    return [each for _, remains in sorted(parts, key=lambda part: part[0]) for each in remains]
