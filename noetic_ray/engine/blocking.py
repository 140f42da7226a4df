"""Waiting on behalf of a context: an abort of it is what a cut wait raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from noetic_ray.errors import Cancelled

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

T = TypeVar("T")


async def blocking(cell: Cell, operation: Awaitable[T]) -> T:
    """Await an operation; cut by the context's abort it raises `Cancelled` with its reason."""
    try:
        return await operation
    except asyncio.CancelledError:
        raise cut(cell) from None


def cut(cell: Cell) -> BaseException:
    """Why a blocked operation was cut: its context's abort, or somebody's plain cancel."""
    ctx = cell.ctx
    return Cancelled(ctx.abort_reason) if ctx.aborted else asyncio.CancelledError()
