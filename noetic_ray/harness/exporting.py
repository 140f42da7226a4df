"""Brings finished spans to the exporter a harness was given, wherever that lives.

An exporter that was given as an object stays in the driver, which fetches spans from the journal.
One that is to be made by a function or a class, or "otlp", is made in the journal's process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from noetic_ray.engine.tasks import engine_task
from noetic_ray.errors import ConfigError, NoeticError
from noetic_ray.journal.reader import JournalReader
from noetic_ray.journal.spans import SpanExport, SpanSink

log = logging.getLogger("noetic_ray")
OTLP = "otlp"
FLUSH_SECONDS = 5.0
#: How long a result waits for an exporter that has been too slow and has not caught up since.
LATE_SECONDS = 0.1
POLL_SECONDS = 5.0


class SpanPump:
    """Carries spans from the journal to an exporter in this process, and waits for exporters.

    The exporter is called in a thread of its own, never on a loop. For an exporter that lives in
    the journal only `drain` does something here.
    """

    def __init__(self, exporter: Any, reader: JournalReader, service: str) -> None:
        self._reader = reader
        self._seen = 0
        self._lost = 0
        self._late = False
        self._arrived = asyncio.Event()
        self._export: SpanExport | None = None
        self._follower: asyncio.Task[None] | None = None
        if not is_factory(exporter):
            from noetic_ray.tracing.export import ExporterSink

            self._export = SpanExport(ExporterSink(exporter, service, ours=False))
            self._follower = engine_task(asyncio.get_running_loop(), self._follow(self._export))

    async def _follow(self, export: SpanExport) -> None:
        try:
            while True:
                page = await self._reader.read_spans(self._seen, wait=POLL_SECONDS)
                self._seen = page.last
                for span in page.spans:
                    export.put(span)
                self._note_lost(page.lost)
                arrived, self._arrived = self._arrived, asyncio.Event()
                arrived.set()
        except NoeticError as error:
            log.warning("spans can no longer be read: %s", error)
        finally:
            self._arrived.set()

    def _note_lost(self, lost: int) -> None:
        if lost > self._lost:
            log.warning("%d spans were dropped: they came faster than they left", lost - self._lost)
            self._lost = lost

    async def drain(
        self, marks: Mapping[str, int] | None = None, seconds: float = FLUSH_SECONDS
    ) -> None:
        """Return when the exporter has all spans so far, after 5 s at the latest.

        `marks` count what each sender of events had taken; the journal waits for that first. An
        exporter that was too slow is given a tenth of a second from then on, until it keeps up.
        """
        patience = min(seconds, LATE_SECONDS) if self._late else min(seconds, FLUSH_SECONDS)
        try:
            async with asyncio.timeout(patience):
                in_time = await self._all_exported(patience, marks)
        except TimeoutError:
            in_time = False
        except NoeticError as error:
            log.warning("spans were not flushed: %s", error)
            return
        if not in_time and not self._late:
            log.warning("spans were not exported within %g s; results wait no longer", patience)
        self._late = not in_time

    async def _all_exported(self, patience: float, marks: Mapping[str, int] | None) -> bool:
        last = await self._reader.flush_spans(patience, marks)
        if last is None or self._export is None:
            return last is not None
        while self._seen < last and self._follower is not None and not self._follower.done():
            await self._arrived.wait()
        return await self._export.flushed(patience)

    async def aclose(self, seconds: float) -> None:
        """Export what is left, then flush the exporter, all within `seconds`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self.drain(seconds=seconds)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait((self._follower,))
        if self._export is not None:
            left = min(deadline - loop.time(), LATE_SECONDS if self._late else seconds)
            await loop.run_in_executor(None, self._export.close, max(0.0, left))


def is_factory(exporter: Any) -> bool:
    """Whether the exporter is to be made in the journal's process."""
    if isinstance(exporter, type) or exporter == OTLP:
        return True
    return callable(exporter) and not hasattr(exporter, "export")


def check_exporter(exporter: Any) -> None:
    """Raise ConfigError for what is neither an exporter nor makes one."""
    if exporter is None or is_factory(exporter) or callable(getattr(exporter, "export", None)):
        return
    raise ConfigError(
        "INVALID_EXPORTER",
        f"the exporter is {exporter!r:.100}",
        "give an OpenTelemetry SpanExporter, a function that makes one, or 'otlp'",
    )


def sink_factory(exporter: Any, service: str) -> Callable[[], SpanSink] | None:
    """What makes, in the journal's process, the function that exports spans there.

    None for an exporter that stays here. The driver's OTEL_* environment is taken along.
    """
    if exporter is None or not is_factory(exporter):
        return None
    settings = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}

    def make() -> SpanSink:
        from noetic_ray.tracing.export import ExporterSink, otlp_exporter

        os.environ.update(settings)
        made = otlp_exporter() if exporter == OTLP else _made(exporter)
        return ExporterSink(made, service, ours=True)

    return make


def _made(factory: Callable[[], Any]) -> Any:
    name = getattr(factory, "__qualname__", repr(factory))
    try:
        made = factory()
    except Exception as error:
        raise ConfigError(
            "EXPORTER_FAILED",
            f"{name} did not make an exporter: {error!r}",
            "it is called in the journal's process; check exporter= and the OTEL_* environment",
        ) from error
    if not callable(getattr(made, "export", None)):
        raise ConfigError(
            "INVALID_EXPORTER",
            f"{name} made {made!r:.100}, which cannot export",
            "return an OpenTelemetry SpanExporter",
        )
    return made
