"""What the front door needs from the place where contexts run."""

from __future__ import annotations

from typing import Any, Protocol

from noetic_ray.engine.child import Link, Listener
from noetic_ray.engine.local_channels import OnDropped
from noetic_ray.engine.spec import ContextSpec
from noetic_ray.engine.tasks import LoopThread
from noetic_ray.journal.reader import JournalReader
from noetic_ray.journal.sender import JournalSender
from noetic_ray.placement import Placement


class Backend(Protocol):
    """One harness's processes. All but `thread` belongs to that thread's loop."""

    thread: LoopThread
    journal: JournalSender
    channels: Any
    on_dropped: OnDropped

    @property
    def reader(self) -> JournalReader:
        """The reading end of the harness's journal."""
        ...

    def launch(self, spec: ContextSpec, placement: Placement, listener: Listener) -> Link:
        """Start a root context."""
        ...

    def abort_now(self, run_id: str, reason: str | None) -> None:
        """Begin to abort a run, from any thread, where a body may hold the loop of `thread`."""

    def require_alive(self) -> None:
        """Raise ConfigError SESSION_ENDED when what the backend runs on is gone."""

    async def check(self, placement: Placement) -> None:
        """Raise ConfigError PLACEMENT_INFEASIBLE for what can never be placed."""

    async def aclose(self, seconds: float) -> None:
        """End everything that was started; writing what is left takes at most `seconds`."""
