"""Exporters that behave well and badly."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class FileExporter(SpanExporter):
    """Writes a line per call: pid, what was called, names of spans or the service."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            self._write("export", span.name, str(span.resource.attributes["service.name"]))
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self._write("force_flush")
        return True

    def shutdown(self) -> None:
        self._write("shutdown")

    def _write(self, *words: str) -> None:
        with self._path.open("a") as file:
            file.write("\t".join((str(os.getpid()), *words)) + "\n")


class EnvironmentExporter(FileExporter):
    """A class that is its own factory: the file is named by the environment."""

    def __init__(self) -> None:
        super().__init__(Path(os.environ["OTEL_TEST_FILE"]))


class BrokenExporter(SpanExporter):
    """Raises, or says that it failed."""

    def __init__(self, raises: bool) -> None:
        self.calls = 0
        self._raises = raises

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.calls += 1
        if self._raises:
            raise OSError("collector down")
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        raise OSError("collector still down")


class StuckExporter(SpanExporter):
    """Exports nothing before `free` is set."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.names: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.free.wait(60)
        self.names += [span.name for span in spans]
        return SpanExportResult.SUCCESS
