"""What Ray's own tracing is started with in a test."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider


def setup() -> None:
    """A provider that records and exports nothing."""
    trace.set_tracer_provider(TracerProvider())
