"""One after the other, in the order asked for, without a lock that is held across an await."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_inside: ContextVar[frozenset[int]] = ContextVar("noetic_serials", default=frozenset())


class Serial:
    """A line of operations on one thing. What an operation starts itself does not queue again."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail: asyncio.Future[None] | None = None

    async def run(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run `operation` when all that was asked for before has ended."""
        inside = _inside.get()
        if id(self) in inside:
            return await operation()
        before = self._tail
        mine = self._tail = asyncio.get_running_loop().create_future()
        try:
            if before is not None and not before.done():
                await asyncio.wait((before,))
            token = _inside.set(inside | {id(self)})
            try:
                return await operation()
            finally:
                _inside.reset(token)
        finally:
            self._pass_on(before, mine)

    def _pass_on(self, before: asyncio.Future[None] | None, mine: asyncio.Future[None]) -> None:
        """Let the next go on; one that gave up while waiting keeps the order."""
        if before is not None and not before.done():
            before.add_done_callback(lambda _: mine.set_result(None))
            return
        mine.set_result(None)
        if self._tail is mine:
            self._tail = None
