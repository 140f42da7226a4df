"""Spans: small records in the engine, OpenTelemetry at both edges (`ctx.span`, exporters)."""
