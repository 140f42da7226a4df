"""Where a conversation's epochs are remembered: by thread at the root, by context below."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from noetic_ray.canonical import from_json, to_json_bytes
from noetic_ray.engine.layers.hooks import diagnose
from noetic_ray.errors import NoeticError
from noetic_ray.layers.epochs import Lineage

if TYPE_CHECKING:
    from noetic_ray.engine.cell import Cell

ROOT = "anchors/"


async def lineage_of(cell: Cell) -> Lineage:
    """The memory of this context's epochs, taken up where an earlier run of the thread left it."""
    if cell.lineage is None:
        ctx = cell.ctx
        key = f"t:{ctx.thread_id}" if ctx.depth == 0 else f"x:{ctx.id}"
        kept = await _load(cell) if _is_kept(cell) else None
        cell.lineage = kept or Lineage(key)
    return cell.lineage


def keep_lineage(cell: Cell, lineage: Lineage) -> None:
    """Remember it, beyond this run where the thread was named."""
    cell.lineage = lineage
    stack = cell.layers
    if stack is not None and _is_kept(cell) and not cell.spec.preview:
        stack.open_writer()
        assert stack.writer is not None
        stack.writer.put(_key(cell), to_json_bytes(lineage.to_json()))


def _is_kept(cell: Cell) -> bool:
    """Without layers nothing is pinned, and there is nothing to remember."""
    return cell.ctx.depth == 0 and cell.spec.named_thread and cell.layers is not None


def _key(cell: Cell) -> str:
    return ROOT + quote(cell.ctx.thread_id, safe="")


async def _load(cell: Cell) -> Lineage | None:
    key = _key(cell)
    try:
        data = (await cell.values.load((key,))).get(key)
        return None if data is None else Lineage.from_json(from_json(data))
    except (NoeticError, ValueError, KeyError, TypeError) as error:
        diagnose(cell, "context_cache", "restore", error)
        return None
