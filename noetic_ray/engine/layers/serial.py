"""One after the other, in the order asked for, without a lock that is held across an await."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_inside: ContextVar[frozenset[Serial]] = ContextVar("noetic_serials", default=frozenset())


class Serial:
    """A line of operations on one thing.

    What an operation starts itself does not queue again, and does not wait for a line whose
    operation waits for this one: two layers that call each other would never end.
    """

    __slots__ = ("_tail", "_waits")

    def __init__(self) -> None:
        self._tail: asyncio.Future[None] | None = None
        self._waits: list[Serial] = []

    async def run(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run `operation` when all that was asked for before has ended."""
        inside = _inside.get()
        if inside and self._leads_to(inside):
            return await operation()
        before = self._tail
        mine = self._tail = asyncio.get_running_loop().create_future()
        try:
            if before is not None and not before.done():
                await self._turn(before, inside)
            token = _inside.set(inside | {self})
            try:
                return await operation()
            finally:
                _inside.reset(token)
        finally:
            self._pass_on(before, mine)

    def _leads_to(self, held: frozenset[Serial]) -> bool:
        """Whether this line, or one its operation waits for, is among those held."""
        seen: set[Serial] = set()
        ahead = [self]
        while ahead:
            line = ahead.pop()
            if line in held:
                return True
            if line not in seen:
                seen.add(line)
                ahead += line._waits
        return False

    async def _turn(self, before: asyncio.Future[None], inside: frozenset[Serial]) -> None:
        for held in inside:
            held._waits.append(self)
        try:
            await asyncio.wait((before,))
        finally:
            for held in inside:
                held._waits.remove(self)

    def _pass_on(self, before: asyncio.Future[None] | None, mine: asyncio.Future[None]) -> None:
        """Let the next go on; one that gave up while waiting keeps the order."""
        if before is not None and not before.done():
            before.add_done_callback(lambda _: mine.set_result(None))
            return
        mine.set_result(None)
        if self._tail is mine:
            self._tail = None
