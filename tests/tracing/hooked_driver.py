"""A driver with Ray's own tracing on: prints the tree of a traced run."""

from __future__ import annotations

import ray
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ray.util.tracing.tracing_helper import _is_tracing_enabled

import noetic_ray as nr
from tests.tracing.models import play
from tests.tracing.test_span_tree import branches, calculator
from tests.tracing.traces import trace_of


def main() -> None:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 1024 * 1024,
        _tracing_startup_hook="tests.tracing.hook:setup",
    )
    print("tracing by Ray:", _is_tracing_enabled())
    exporter = InMemorySpanExporter()
    placement = nr.Placement("actor", max_actors=3)
    model = nr.testing.ScriptedModel(play)
    with nr.Harness("hooked", model, placement=placement, exporter=exporter) as harness:
        for step in (branches, calculator):
            run = harness.start(step)
            run.result(60)
            print("\n".join(trace_of(exporter, run.id).tree()))
    ray.shutdown()


if __name__ == "__main__":
    main()
