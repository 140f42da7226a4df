"""Listings in pages."""

from __future__ import annotations

from typing import Any

import pytest

from noetic_ray.errors import McpError
from noetic_ray.mcp.paging import all_pages


def _fetch(pages: dict[str | None, tuple[list[Any], str | None]]) -> Any:
    asked: list[str | None] = []

    async def fetch(cursor: str | None) -> tuple[list[Any], str | None]:
        asked.append(cursor)
        return pages[cursor]

    fetch.asked = asked  # type: ignore[attr-defined]
    return fetch


async def test_every_page_is_fetched_in_order() -> None:
    fetch = _fetch({None: ([{"name": "a"}], "2"), "2": ([], "3"), "3": ([{"name": "b"}], None)})
    assert await all_pages(fetch, "files", "name") == [{"name": "a"}, {"name": "b"}]
    assert fetch.asked == [None, "2", "3"]


async def test_the_first_of_two_entries_with_one_name_counts() -> None:
    fetch = _fetch({None: ([{"uri": "u", "n": 1}, {"uri": "u", "n": 2}, {"n": 3}, {"n": 4}], "")})
    assert await all_pages(fetch, "files", "uri") == [{"uri": "u", "n": 1}, {"n": 3}, {"n": 4}]


@pytest.mark.parametrize("back", ["2", "3"])
async def test_a_cursor_that_comes_again_is_an_error(back: str) -> None:
    fetch = _fetch({None: ([], "2"), "2": ([], "3"), "3": ([], back)})
    with pytest.raises(McpError, match="does not end") as caught:
        await all_pages(fetch, "files", "name")
    assert caught.value.client == "files"
