"""Shows a span record of ours as an OpenTelemetry Span. Imported when `ctx.span` is first read."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from noetic_ray.tracing.records import ERROR, OK, UNSET, SpanRecord
from noetic_ray.tracing.values import clean_attributes, clean_value

_CODES = {StatusCode.UNSET: UNSET, StatusCode.OK: OK, StatusCode.ERROR: ERROR}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class RecordSpan(trace.Span):
    """A live view on a record; ending it twice or writing after the end changes nothing."""

    def __init__(self, record: SpanRecord) -> None:
        self._record = record

    def get_span_context(self) -> SpanContext:
        """Ids of the span; valid without an exporter too."""
        record = self._record
        return SpanContext(record.trace_id, record.span_id, is_remote=False, trace_flags=_SAMPLED)

    def is_recording(self) -> bool:
        """Whether attributes still have an effect."""
        return not self._record.end_time

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; a value OpenTelemetry has no form for is dropped with a warning."""
        self._record.set(str(key), None if value is None else clean_value(key, value))

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def add_event(
        self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None
    ) -> None:
        """Add an event; `timestamp` is in nanoseconds since the epoch."""
        self._record.event(str(name), clean_attributes(attributes), timestamp)

    def add_link(self, context: SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Link to another span, of this trace or another one."""
        record = self._record
        if record.end_time or not context.is_valid:
            return
        if record.links is None:
            record.links = []
        record.links.append((context.trace_id, context.span_id, clean_attributes(attributes)))

    def update_name(self, name: str) -> None:
        """Rename the span."""
        if not self._record.end_time:
            self._record.name = str(name)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status; OK is final and UNSET changes nothing, as OpenTelemetry asks."""
        record = self._record
        code = status.status_code if isinstance(status, Status) else status
        if record.end_time or record.status == OK or code is StatusCode.UNSET:
            return
        record.status = _CODES[code]
        text = status.description if isinstance(status, Status) else description
        record.description = text if code is StatusCode.ERROR else None

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an `exception` event."""
        kind = type(exception)
        where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        facts = {
            "exception.type": f"{where}{kind.__qualname__}",
            "exception.message": str(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)),
            "exception.escaped": str(escaped),
        }
        self.add_event("exception", {**facts, **(attributes or {})}, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """Fix the span's end now; it is exported, with its outcome, when the step ends."""
        self._record.stop(end_time)
