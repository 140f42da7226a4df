"""Calls functions that users give to layers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from noetic_ray.signatures import is_async


async def called(fn: Callable[..., Any], *args: Any) -> Any:
    """What a function gives, sync or async; a plain one runs in a thread."""
    if is_async(fn):
        return await fn(*args)
    given = await asyncio.to_thread(fn, *args)
    return await given if isawaitable(given) else given
