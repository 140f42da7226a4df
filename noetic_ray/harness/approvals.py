"""Tool calls that wait for a person, as the driver knows them from the journal."""

from __future__ import annotations

from collections.abc import Iterable

from noetic_ray.canonical import from_json
from noetic_ray.errors import ConfigError
from noetic_ray.harness.report import Approval
from noetic_ray.journal.reader import JournalReader

_ENDS = ("context.ended", "context.lost")


class ApprovalDesk:
    """Open requests, each answered once. Belongs to the driver's loop."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._answered: set[str] = set()

    async def waiting(self, run_ids: Iterable[str]) -> list[Approval]:
        """Open requests of these runs, oldest first."""
        found: list[Approval] = []
        for run_id in run_ids:
            found += await self._of(run_id)
        return sorted(found, key=lambda each: each.id)  # ids are UUIDv7: by time

    async def take(self, id: str, run_ids: Iterable[str]) -> None:
        """Mark a request as answered. Raises ConfigError UNKNOWN_APPROVAL if none waits."""
        if all(each.id != id for each in await self.waiting(run_ids)) or id in self._answered:
            raise ConfigError(
                "UNKNOWN_APPROVAL",
                f"no tool call waits for an answer under the id {id!r}",
                "harness.approvals() lists those that wait; each is answered once",
            )
        self._answered.add(id)

    async def _of(self, run_id: str) -> list[Approval]:
        open: dict[str, Approval] = {}
        since, more = 0, True
        while more:
            page = await self._reader.read(run_id, since)
            for _, type, context_id, _, raw in page.entries:
                if type.startswith("approval."):
                    _fold(open, run_id, type, context_id, raw)
                elif type in _ENDS:
                    for id in [k for k, each in open.items() if each.context_id == context_id]:
                        del open[id]
            more = page.since > since and not page.ended
            since = page.since
        return [each for id, each in open.items() if id not in self._answered]


def _fold(open: dict[str, Approval], run_id: str, type: str, context_id: str, raw: bytes) -> None:
    data = from_json(raw)
    id = data["id"]
    if type == "approval.requested":
        open[id] = Approval(id, data["tool"], data["arguments"], context_id, run_id)
    else:
        open.pop(id, None)
