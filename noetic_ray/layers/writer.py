"""Writes layer states behind, the latest of each key, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from noetic_ray.protocols import KeyValues

OnError = Callable[[str, Exception], None]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class StateWriter:
    """Belongs to one context and its event loop; `spawn` makes tasks that somebody owns.

    What a cancelled task had in hand is kept and goes with the next `put` or `flush`.
    """

    def __init__(self, values: KeyValues, on_error: OnError, spawn: Spawn) -> None:
        self._values = values
        self._on_error = on_error
        self._spawn = spawn
        self._pending: dict[str, bytes | None] = {}
        self._puts = 0
        self._settled = 0
        self._turn = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def put(self, key: str, value: bytes | None) -> None:
        """Have a value written, or a key removed; the latest wins. Returns at once."""
        self._pending[key] = value
        self._puts += 1
        self._start()

    async def flush(self) -> None:
        """Return when everything put before is written, or reported."""
        mine = self._puts
        while self._settled < mine:
            self._start()
            await self._turn.wait()

    def _start(self) -> None:
        if self._writing is not None and not self._writing.done():
            return
        work = self._write()
        try:
            self._writing = self._spawn(work)
        except BaseException:
            work.close()
            raise
        self._writing.add_done_callback(self._next_turn)

    async def _write(self) -> None:
        while self._pending:
            changes, self._pending = self._pending, {}
            puts = self._puts
            try:
                await self._values.save(changes)
            except Exception as error:
                self._settle(puts)
                for key in changes:
                    self._on_error(key, error)
            except BaseException:
                self._pending = {**changes, **self._pending}
                raise
            else:
                self._settle(puts)

    def _settle(self, puts: int) -> None:
        self._settled = puts
        self._next_turn()

    def _next_turn(self, _: object = None) -> None:
        """Wake those who wait in `flush`, each of whom looks again."""
        self._turn.set()
        self._turn = asyncio.Event()
