"""Picks the backend a harness's placement asks for."""

from __future__ import annotations

from noetic_ray.engine.tasks import LoopThread
from noetic_ray.harness import signals
from noetic_ray.harness.backend import Backend
from noetic_ray.harness.exporting import sink_factory
from noetic_ray.harness.settings import Settings


def open_backend(settings: Settings, thread: LoopThread) -> Backend:
    """Start the processes, if any, and connect to them."""
    if settings.engine.placement.mode == "inline":
        signals.install()
        return thread.call(_open_inline(settings, thread))
    from noetic_ray.harness.ray_backend import open_ray_backend

    return open_ray_backend(settings, thread)


async def _open_inline(settings: Settings, thread: LoopThread) -> Backend:
    from noetic_ray.harness.inline import InlineBackend

    make_sink = sink_factory(settings.exporter, settings.engine.name)
    sink = make_sink() if make_sink is not None else None
    return InlineBackend(settings.engine, thread, settings.store, sink, settings.mcp)
