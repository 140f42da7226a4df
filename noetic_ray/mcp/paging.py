"""Listings that come in pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from noetic_ray.errors import McpError

__all__ = ["all_pages"]

Entry = TypeVar("Entry")
#: Asks for the page after a cursor (None: the first); returns its entries and the next cursor.
Fetch: TypeAlias = Callable[[str | None], Awaitable[tuple[Sequence[Entry], str | None]]]


async def all_pages(fetch: Fetch[Entry], client: str, mark: str) -> list[Entry]:
    """Every entry of a listing, in order; of entries with the same `mark` (name, uri) the first.

    Raises McpError when the server gives a cursor a second time: the listing would never end.
    """
    found: dict[object, Entry] = {}
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        entries, cursor = await fetch(cursor)
        for entry in entries:
            name = entry.get(mark) if isinstance(entry, Mapping) else None
            found.setdefault(name if isinstance(name, str) else ("unmarked", len(found)), entry)
        if not cursor:
            return list(found.values())
        if cursor in seen:
            raise McpError(client, f"its listing does not end: the cursor {cursor!r} came twice")
        seen.add(cursor)
