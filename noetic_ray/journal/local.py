"""The journal of an inline harness: a core on the same event loop."""

from __future__ import annotations

from typing import Any

from noetic_ray.journal.core import JournalCore
from noetic_ray.journal.reader import JournalReader


class LocalJournal(JournalReader):
    """Reads a core in this process; `transport` is for the `JournalSender` beside it."""

    def __init__(self, core: JournalCore) -> None:
        self._core = core

    async def transport(self, payload: bytes) -> bytes:
        """Bring one batch to the core."""
        return await self._core.handle(payload)

    async def hello(self) -> None:
        """Nothing can be wrong with a core that exists."""

    async def aclose(self, span_timeout: float = 5.0) -> None:
        """Close the core."""
        await self._core.aclose(span_timeout)

    async def _ask(self, method: str, **arguments: Any) -> Any:
        return await getattr(self._core, method)(**arguments)
