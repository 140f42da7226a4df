"""Steps whose module does not import the SDK, for the processes that host contexts."""

from __future__ import annotations

import sys

import noetic_ray as nr


@nr.step
async def imported(_: None, ctx: nr.Context) -> list[str]:
    """The parts of OpenTelemetry this process has imported once a span was used."""
    assert ctx.span.get_span_context().is_valid
    return [name for name in sys.modules if name.startswith("opentelemetry.")]
