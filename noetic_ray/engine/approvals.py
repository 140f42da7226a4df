"""Tools that wait for a person: the call asks, `harness.approve` or `deny` answers.

The answer travels over a queue channel of its own, so it reaches a context in any process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uuid_utils import uuid7

from noetic_ray.channels import Channel, channel
from noetic_ray.engine.cell import Cell
from noetic_ray.errors import SteeringDenied


def answer_channel(approval_id: str) -> Channel[Any]:
    """Where the answer to one request arrives: (approved, reason)."""
    return channel(f"noetic.approval/{approval_id}", None, mode="queue", capacity=1, external=True)


async def ask_approval(cell: Cell, tool: str, arguments: Mapping[str, Any]) -> None:
    """Wait for a person's word. Raises SteeringDenied with the reason when it is no."""
    id = str(uuid7())
    data = {"id": id, "tool": tool, "arguments": arguments}
    cell.emit("approval.requested", data)
    values = await cell.ctx._services.recv(answer_channel(id), 1, None)
    approved, reason = values[0]
    cell.emit("approval.answered", {"id": id, "approved": approved, "reason": reason})
    if not approved:
        raise SteeringDenied(reason or f"a person denied the call of {tool}")
