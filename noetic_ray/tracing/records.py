"""Spans as the engine keeps them: small, picklable, without the OpenTelemetry SDK.

One record per context, step, model call and tool call. `ctx.span` shows a record as an
OpenTelemetry Span (`tracing/otel.py`); the exporter's side rebuilds SDK spans from the
finished tuples. The SDK's own span costs several times more and holds a lock.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

INTERNAL, CLIENT = 0, 2
UNSET, OK, ERROR = 0, 1, 2
SpanEvent = tuple[str, int, Mapping[str, Any]]
SpanLink = tuple[int, int, Mapping[str, Any]]

#: Not the module's own generator: user code that seeds it would give all contexts the same ids.
_generator = random.Random()
_bits = _generator.getrandbits
os.register_at_fork(after_in_child=_generator.seed)


class FinishedSpan(NamedTuple):
    """A span at its end; times in nanoseconds since the epoch, ids as integers."""

    trace_id: int
    span_id: int
    parent_id: int
    name: str
    kind: int
    start: int
    end: int
    status: int
    description: str | None
    attributes: dict[str, Any]
    events: tuple[SpanEvent, ...]
    links: tuple[SpanLink, ...]


def new_trace_id() -> int:
    """128 random bits, never zero."""
    return _bits(128) or 1


class SpanRecord:
    """A span in flight.

    `sink` takes it when it has ended; without one nobody will ever see it. A `span_id` of 0
    means a random one.
    """

    __slots__ = (
        "_sink",
        "attributes",
        "description",
        "end_time",
        "events",
        "kind",
        "links",
        "name",
        "parent_id",
        "span_id",
        "start",
        "status",
        "trace_id",
    )

    def __init__(
        self,
        sink: Any,
        name: str,
        trace_id: int,
        parent_id: int,
        kind: int = INTERNAL,
        span_id: int = 0,
    ) -> None:
        self._sink = sink
        self.name = name
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = span_id or _bits(64) or 1
        self.kind = kind
        self.start = time.time_ns()
        self.end_time = 0
        self.attributes: dict[str, Any] | None = None
        self.events: list[SpanEvent] | None = None
        self.links: list[SpanLink] | None = None
        self.status = UNSET
        self.description: str | None = None

    def set(self, key: str, value: Any) -> None:
        """Set one attribute; None is left out."""
        if value is None or self.end_time:
            return
        if self.attributes is None:
            self.attributes = {}
        self.attributes[key] = value

    def event(
        self, name: str, attributes: Mapping[str, Any] | None = None, at: int | None = None
    ) -> None:
        """Add an event; `at` is in nanoseconds since the epoch, now by default."""
        if self.end_time:
            return
        if self.events is None:
            self.events = []
        self.events.append((name, time.time_ns() if at is None else at, dict(attributes or {})))

    def stop(self, end_time: int | None = None) -> None:
        """Fix the end and refuse what comes later; `close` still says how it ended."""
        if not self.end_time:
            self.end_time = end_time or time.time_ns()

    def close(self, outcome: str, reason: str | None = None, error_type: str | None = None) -> None:
        """End the span and hand it over, once. Anything but `completed` is status ERROR."""
        sink = self._sink
        if not self.end_time:
            self.end_time = time.time_ns()
        if sink is None:
            return
        self._sink = None
        if self.attributes is None:
            self.attributes = {}
        self.attributes["noetic.outcome"] = outcome
        if outcome != "completed":
            self.status = ERROR
            self.description = reason or outcome
            if error_type is not None:
                self.attributes["error.type"] = error_type
        sink(self._finished())

    def _finished(self) -> FinishedSpan:
        return FinishedSpan(
            self.trace_id,
            self.span_id,
            self.parent_id,
            self.name,
            self.kind,
            self.start,
            self.end_time,
            self.status,
            self.description,
            self.attributes or {},
            tuple(self.events or ()),
            tuple(self.links or ()),
        )
