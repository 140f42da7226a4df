"""What a run's client sees: its messages and its trace, read from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetic_ray.canonical import from_json
from noetic_ray.journal.reader import JournalReader

if TYPE_CHECKING:
    from noetic_ray.client.message import Message
    from noetic_ray.harness.trace_view import TraceView

MESSAGES = ("message.",)


class ClientView:
    """Asks the journal for the few events it needs. Belongs to the driver's loop."""

    def __init__(self, run_id: str, reader: JournalReader) -> None:
        self._run_id = run_id
        self._reader = reader

    async def messages(self, accept: str) -> list[dict[str, Any]]:
        """The frames a client gets."""
        from noetic_ray.client.frames import frames_of

        return frames_of(await self._events(MESSAGES), accept, self._run_id)

    async def shown(self) -> list[Message]:
        """The final view of the messages."""
        from noetic_ray.client.shown import ShownFold

        fold = ShownFold()
        for type, context_id, _, data in await self._events(MESSAGES):
            fold.feed(type, context_id, data)
        return fold.messages()

    async def trace(self) -> TraceView:
        """Nodes and spaces."""
        from noetic_ray.client.trace_fold import TRACE_TYPES, TraceFold
        from noetic_ray.harness.trace_view import TraceView

        fold = TraceFold()
        for type, context_id, time, data in await self._events(TRACE_TYPES):
            fold.feed(type, context_id, time, data)
        return TraceView.of(fold)

    async def _events(self, types: tuple[str, ...]) -> list[tuple[str, str, float, Any]]:
        found = await self._reader.select(self._run_id, types)
        return [
            (type, context_id, time, from_json(data))
            for _, type, context_id, time, data in found.entries
        ]
