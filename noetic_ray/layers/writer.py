"""Writes layer states behind, the latest of each key, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from noetic_ray.protocols import KeyValues

OnError = Callable[[str, Exception], None]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class StateWriter:
    """Belongs to one context and its event loop; `spawn` makes tasks that somebody owns."""

    def __init__(self, values: KeyValues, on_error: OnError, spawn: Spawn) -> None:
        self._values = values
        self._on_error = on_error
        self._spawn = spawn
        self._pending: dict[str, bytes | None] = {}
        self._writing: asyncio.Task[None] | None = None

    def put(self, key: str, value: bytes | None) -> None:
        """Have a value written, or a key removed; the latest wins. Returns at once."""
        self._pending[key] = value
        if self._writing is None:
            self._writing = self._spawn(self._write())

    async def flush(self) -> None:
        """Return when everything put before is written, or reported."""
        while self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        try:
            while self._pending:
                changes, self._pending = self._pending, {}
                try:
                    await self._values.save(changes)
                except Exception as error:
                    for key in changes:
                        self._on_error(key, error)
        finally:
            self._writing = None
