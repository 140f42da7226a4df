"""Turns finished records into spans of the OpenTelemetry SDK and hands them to an exporter."""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from noetic_ray.errors import ConfigError
from noetic_ray.tracing.records import FinishedSpan

log = logging.getLogger("noetic_ray")
FLUSH_MILLIS = 5_000
_KINDS = {0: SpanKind.INTERNAL, 2: SpanKind.CLIENT}
_CODES = {0: StatusCode.UNSET, 1: StatusCode.OK, 2: StatusCode.ERROR}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


@lru_cache
def _scope() -> InstrumentationScope:
    return InstrumentationScope("noetic_ray", importlib.metadata.version("noetic-ray"))


def resource_for(service: str) -> Resource:
    """The resource the OTEL_* environment describes; without a name in it, the harness's."""
    described = Resource.create()
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return described if named else described.merge(Resource({SERVICE_NAME: service}))


def readable(span: FinishedSpan, resource: Resource) -> ReadableSpan:
    """The SDK's form of one finished span."""
    parent = None
    if span.parent_id:
        parent = SpanContext(span.trace_id, span.parent_id, True, _SAMPLED)
    return ReadableSpan(
        name=span.name,
        context=SpanContext(span.trace_id, span.span_id, False, _SAMPLED),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[Event(name, attributes, at) for name, at, attributes in span.events],
        links=[
            Link(SpanContext(trace_id, span_id, True, _SAMPLED), attributes)
            for trace_id, span_id, attributes in span.links
        ],
        kind=_KINDS.get(span.kind, SpanKind.INTERNAL),
        status=Status(_CODES[span.status], span.description),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=_scope(),
    )


class ExporterSink:
    """Gives spans to one exporter. Both methods block; their caller has a thread for them.

    An exporter that is `ours` was made for this sink alone. Another one belongs to who made it
    and may be in use elsewhere, or be used again: it is flushed, never shut down.
    """

    def __init__(self, exporter: Any, service: str, ours: bool) -> None:
        self._exporter = exporter
        self._ours = ours
        self._resource = resource_for(service)

    def __call__(self, spans: Sequence[Sequence[Any]]) -> None:
        """Export; raises what the exporter raises, and RuntimeError when it says it failed."""
        ready = [readable(FinishedSpan(*span), self._resource) for span in spans]
        if self._exporter.export(ready) is SpanExportResult.FAILURE:
            raise RuntimeError(f"{type(self._exporter).__name__}.export returned FAILURE")

    def close(self) -> None:
        """Flush the exporter, and shut it down when it is ours."""
        self._call("force_flush", FLUSH_MILLIS)
        if self._ours:
            self._call("shutdown")

    def _call(self, name: str, *arguments: Any) -> None:
        method = getattr(self._exporter, name, None)
        if method is None:
            return
        try:
            method(*arguments)
        except Exception as error:
            log.warning("%s of the span exporter failed: %r", name, error)


def otlp_exporter() -> Any:
    """The OTLP exporter, set up from the OTEL_* environment.

    Raises ConfigError with the install line when the package for its protocol is not installed.
    """
    protocol = _otlp_protocol()
    try:
        module = importlib.import_module(
            f"opentelemetry.exporter.otlp.proto.{protocol}.trace_exporter"
        )
    except ImportError:
        raise ConfigError(
            "MISSING_EXTRA",
            "exporter='otlp' needs the OTLP exporter, which is not installed",
            f"pip install opentelemetry-exporter-otlp-proto-{protocol}",
        ) from None
    return module.OTLPSpanExporter()


def _otlp_protocol() -> str:
    chosen = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
    chosen = chosen or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or ""
    return "grpc" if chosen.strip() == "grpc" else "http"
