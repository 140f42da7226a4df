"""Reading a context's log out of the journal."""

from __future__ import annotations

from noetic_ray.items import Item, item_from_json
from noetic_ray.journal.reader import JournalReader

PAGE = 1_000


async def read_items(
    reader: JournalReader, run_id: str, context_id: str, since: int, until: int | None
) -> list[Item]:
    """A context's own items from `since` up to `until` (None: what is there), page by page."""
    items: list[Item] = []
    at = since
    while until is None or at < until:
        limit = PAGE if until is None else min(PAGE, until - at)
        page = await reader.items(run_id, context_id, at, limit, wait_for=until)
        items += [item_from_json(raw) for raw in page.items]
        at += len(page.items)
        if not page.items or (until is None and at >= page.total):
            break
    return items
