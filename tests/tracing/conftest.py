"""A harness with an in-memory exporter on each backend, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import noetic_ray as nr
from tests.conftest import unique
from tests.tracing.models import play
from tests.tracing.traces import Trace, trace_of


class Traced(NamedTuple):
    """A harness and where its spans go."""

    harness: nr.Harness
    exporter: InMemorySpanExporter

    def run(self, step: Any, input: Any = None, **options: Any) -> tuple[Any, Trace]:
        """Run a step; returns its output and the trace as it is when the result is there."""
        run = self.harness.start(step, input, **options)
        output = run.result(60)
        return output, trace_of(self.exporter, run.id)

    def fail(self, step: Any, input: Any = None, **options: Any) -> tuple[nr.NoeticError, Trace]:
        """The same for a run that fails."""
        run = self.harness.start(step, input, **options)
        with pytest.raises(nr.NoeticError) as failed:
            run.result(60)
        return failed.value, trace_of(self.exporter, run.id)


@pytest.fixture(scope="package")
def _traced() -> Iterator[dict[str, Traced]]:
    made: dict[str, Traced] = {}
    yield made
    for each in made.values():
        each.harness.close()


@pytest.fixture
def traced(backend: str, _traced: dict[str, Traced], request: pytest.FixtureRequest) -> Traced:
    """A traced harness on each backend in turn."""
    if backend not in _traced:
        if backend != "inline":
            request.getfixturevalue("ray_cluster")
        exporter = InMemorySpanExporter()
        harness = nr.Harness(
            unique(f"traced-{backend}"),
            nr.testing.ScriptedModel(play),
            placement=nr.Placement(backend, max_actors=3),
            exporter=exporter,
            kill_after=0.5,
        )
        _traced[backend] = Traced(harness.open(), exporter)
    return _traced[backend]
