"""A context's figures, for snapshots and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetic_ray.context import ContextSnapshot
from noetic_ray.usage import TokenUsage

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell


def snapshot(cell: Cell) -> ContextSnapshot:
    """A context's figures now."""
    ctx = cell.ctx
    return ContextSnapshot(
        id=ctx.id,
        status=ctx._status,
        depth=ctx.depth,
        step_count=ctx.step_count,
        items=len(ctx.item_log),
        tokens=ctx.tokens.copy(),
        cost=ctx.cost,
        elapsed=ctx.elapsed,
        aborted=ctx.aborted,
        abort_reason=ctx.abort_reason,
    )


def tokens_of(usage: TokenUsage) -> dict[str, int | None]:
    """Usage as event data."""
    return {
        "input": usage.input,
        "output": usage.output,
        "total": usage.total,
        "cached": usage.cached,
        "unreported": usage.unreported,
    }
