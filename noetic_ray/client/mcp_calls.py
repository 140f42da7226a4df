"""Batches of tool calls: what an entry says, and how they run side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from noetic_ray.errors import McpError
from noetic_ray.mcp.results import McpRecord, ToolResult

T = TypeVar("T")


class ToolCall(NamedTuple):
    """One call of a batch."""

    name: str
    arguments: dict[str, Any]


def as_calls(client: str, given: Any) -> list[ToolCall]:
    """The entries of a batch. Raises McpError naming what is wrong, before any is called."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise McpError(client, f"a batch is a list of calls, not {type(given).__name__}")
    return [_as_call(client, index, each) for index, each in enumerate(given)]


def _as_call(client: str, index: int, given: Any) -> ToolCall:
    if not isinstance(given, Mapping):
        raise McpError(client, f"call {index} of the batch is no dict but {given!r:.100}")
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise McpError(client, f"call {index} of the batch has no `name`; nothing was called")
    arguments = given.get("args", given.get("arguments"))
    return ToolCall(name, dict(arguments) if isinstance(arguments, Mapping) else {})


def failed_call(error: McpError) -> ToolResult:
    """What a call that raised is within a batch."""
    block = McpRecord({"type": "text", "text": str(error)})
    return ToolResult([block], True, None, str(error))


async def side_by_side(work: Sequence[Callable[[], Awaitable[T]]], most: int) -> list[T]:
    """Do all of it, at most `most` at once, and return the results in order.

    None of it goes on when one raises or the caller is cancelled.
    """
    results: list[Any] = [None] * len(work)
    waiting = iter(enumerate(work))

    async def worker() -> None:
        for index, start in waiting:
            results[index] = await start()

    if min(most, len(work)) <= 1:
        await worker()
        return results
    tasks = [asyncio.ensure_future(worker()) for _ in range(min(most, len(work)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return results
